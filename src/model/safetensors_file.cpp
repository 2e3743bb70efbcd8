// Reading a header from a file: regular files only, and no more of them than the header.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include <fmt/format.h>

#include "model/safetensors.hpp"

namespace penstock::safetensors {
namespace {

struct Descriptor {
  explicit Descriptor(int value) : fd(value) {}
  Descriptor(const Descriptor&) = delete;  // one descriptor, one owner
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
  int fd;
};

Error cannot_read(const std::string& path, int error) {
  return make_error(Errc::kIo,
                    fmt::format("cannot read {}: {}; check the path and its owner", path,
                                std::generic_category().message(error)),
                    error);
}

/// Fills `into` from the start of the file; shorter where the file ends.
Status read_start(int fd, const std::string& path, std::vector<std::byte>& into) {
  std::size_t done = 0;
  while (done < into.size()) {
    const ssize_t count =
        ::pread(fd, into.data() + done, into.size() - done, static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return cannot_read(path, errno);
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  into.resize(done);
  return ok();
}

}  // namespace

Result<Header> read_header(const std::string& path) {
  // O_NONBLOCK: opening a pipe must not wait for a writer before it can be refused.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (file.fd < 0 || ::fstat(file.fd, &info) != 0) return cannot_read(path, errno);
  if (!S_ISREG(info.st_mode)) {
    return make_error(Errc::kArgument,
                      fmt::format("cannot read {}: it is not a regular file; name one", path));
  }
  const auto file_bytes = static_cast<std::uint64_t>(info.st_size);
  std::vector<std::byte> head(std::min<std::uint64_t>(file_bytes, 8));
  PENSTOCK_CHECK_OK(read_start(file.fd, path, head));
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < head.size(); ++i) {
    length |= std::to_integer<std::uint64_t>(head[i]) << (8 * i);
  }
  // parse() refuses what is longer, and says so.
  if (length <= kMaxHeaderBytes && length <= file_bytes - head.size()) {
    head.resize(head.size() + length);
    PENSTOCK_CHECK_OK(read_start(file.fd, path, head));
  }
  return parse(head, file_bytes, path);
}

}  // namespace penstock::safetensors
