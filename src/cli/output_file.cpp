#include "cli/output_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace penstock {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{4} << 20;
constexpr std::uint64_t kSyncBytes = std::uint64_t{64} << 20;

Error file_error(const char* what, const std::string& path, int error) {
  Errc code = Errc::kIo;
  const char* advice = "check the path, its owner and the filesystem";
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    code = Errc::kNoSpace;
    advice = "free space, or raise the quota or file size limit";
  } else if (error == EEXIST) {
    code = Errc::kState;
    advice = "choose another name";
  }
  return make_error(
      code,
      fmt::format("{} {}: {}; {}", what, path, std::generic_category().message(error), advice),
      error);
}

}  // namespace

OutputFile::OutputFile(int descriptor, std::string path)
    : descriptor_(descriptor), path_(std::move(path)), buffer_(kBufferBytes) {}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      path_(std::move(other.path_)),
      buffer_(std::move(other.buffer_)),
      used_(other.used_),
      written_(other.written_),
      on_drive_(other.on_drive_) {}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<OutputFile> OutputFile::create(const std::string& path, std::uint64_t bytes) {
  const int descriptor =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (descriptor < 0) return file_error("create", path, errno);
  OutputFile file(descriptor, path);
  if (::fchmod(descriptor, 0600) != 0) return file_error("set the mode of", path, errno);
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) return file_error("lock", path, errno);
  if (bytes == 0) return file;
  int error = 0;
  do {
    error =
        ::fallocate(descriptor, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  } while (error == EINTR);
  if (error != 0 && error != EOPNOTSUPP && error != ENOSYS) {
    return file_error("reserve space for", path, error);
  }
  return file;
}

Status OutputFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (used_ == 0 && bytes.size() >= buffer_.size()) {
      PENSTOCK_CHECK_OK(write_out(bytes.first(buffer_.size())));
      bytes = bytes.subspan(buffer_.size());
      continue;
    }
    const std::size_t part = std::min(bytes.size(), buffer_.size() - used_);
    std::memcpy(buffer_.data() + used_, bytes.data(), part);
    used_ += part;
    bytes = bytes.subspan(part);
    if (used_ == buffer_.size()) PENSTOCK_CHECK_OK(flush());
  }
  return ok();
}

Status OutputFile::flush() {
  const std::size_t bytes = std::exchange(used_, 0);
  return write_out(std::span<const std::byte>(buffer_).first(bytes));
}

Status OutputFile::write_out(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return file_error("write", path_, errno);
    written_ += static_cast<std::uint64_t>(count);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  if (written_ - on_drive_ < kSyncBytes) return ok();
  if (::fdatasync(descriptor_) != 0) return file_error("sync", path_, errno);
  // Only advice: where it is not taken, the pages stay a while.
  static_cast<void>(::posix_fadvise(descriptor_, static_cast<off_t>(on_drive_),
                                    static_cast<off_t>(written_ - on_drive_), POSIX_FADV_DONTNEED));
  on_drive_ = written_;
  return ok();
}

Status OutputFile::finish() {
  PENSTOCK_CHECK_OK(flush());
  if (::fsync(descriptor_) != 0) return file_error("sync", path_, errno);
  return ok();
}

Status sync_directory_of(const std::string& directory) {
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return file_error("sync", directory, errno);
  const int error = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  return error == 0 ? ok() : Status(file_error("sync", directory, error));
}

}  // namespace penstock
