#include "measure/bench_target.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include <fmt/format.h>

#include "base/clock.hpp"
#include "base/random.hpp"
#include "base/units.hpp"
#include "mem/arena.hpp"
#include "topo/drive_identity.hpp"

namespace penstock {

Status check_bench_path(const std::string& path) {
  const auto refuse = [&](int error, const char* remedy) {
    return make_error(
        Errc::kArgument,
        fmt::format("\"{}\": {}; {}", path, std::generic_category().message(error), remedy), error);
  };
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) {
    return refuse(errno, "name a directory on the drive that is to be measured");
  }
  if (!S_ISDIR(facts.st_mode)) {
    return refuse(ENOTDIR, "name a directory on the drive, not a file or a device");
  }
  if (::faccessat(AT_FDCWD, path.c_str(), W_OK | X_OK, AT_EACCESS) != 0) {
    return refuse(errno, "name a directory that you may write to");
  }
  return ok();
}

Result<std::uint64_t> bench_file_bytes(Storage& storage, const std::vector<std::string>& paths,
                                       std::uint64_t wanted) {
  std::uint64_t bytes = wanted == 0 ? kDefaultBenchBytes : wanted;
  for (const std::string& path : paths) {
    PENSTOCK_TAKE(free, storage.free_bytes(path));
    // Several paths may lie on one filesystem: each takes its part.
    if (wanted == 0) bytes = std::min(bytes, free / 10 / paths.size());
    const std::uint64_t least = wanted == 0 ? kLeastBenchBytes : wanted;
    if (bytes < kLeastBenchBytes || bytes > free / paths.size()) {
      return make_error(
          wanted != 0 && wanted < kLeastBenchBytes ? Errc::kArgument : Errc::kNoSpace,
          fmt::format("\"{}\": the file to measure with needs {} and {} are free{}; free space, "
                      "choose another drive, or set --size ({} at least)",
                      path, format_bytes(std::max(least, kLeastBenchBytes)), format_bytes(free),
                      wanted == 0 ? ", of which a tenth is used" : "",
                      format_bytes(kLeastBenchBytes)));
    }
  }
  const std::uint64_t longest = storage.longest_file_bytes();
  if (bytes > longest) {
    return make_error(Errc::kNoSpace,
                      fmt::format("a file of {} is longer than this process may write ({}); raise "
                                  "\"ulimit -f\", or set --size",
                                  format_bytes(bytes), format_bytes(longest)));
  }
  return bytes / kHugePageBytes * kHugePageBytes;
}

Result<BenchFile> make_bench_file(Storage& storage, const std::string& path, std::uint64_t bytes,
                                  bool for_others) {
  BenchFile made;
  const std::string name = fmt::format("{}/.penstock-bench-{}-{}", path, ::getpid(), now_ns());
  OpenOptions options;
  options.create = for_others;
  options.temporary = !for_others;
  PENSTOCK_TAKE(file, storage.open(for_others ? name : path, options));
  made.file = file;
  if (for_others) {
    made.descriptor = ::open(name.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    const int error = errno;
    PENSTOCK_CHECK_OK(storage.remove(name));
    if (made.descriptor < 0) {
      close_bench_file(storage, made);
      return make_error(Errc::kIo,
                        fmt::format("\"{}\": the file cannot be opened a second time: {}; check "
                                    "the filesystem",
                                    path, std::generic_category().message(error)),
                        error);
    }
  }
  if (auto status = storage.preallocate(file, bytes); !status) {
    close_bench_file(storage, made);
    return std::move(status).error();
  }
  const DriveIdentity identity = identify_drives(path);
  made.target = {path,
                 fmt::format("{}", fmt::join(identity.drives, " ")),
                 identity.filesystem,
                 identity.id,
                 bytes,
                 storage.is_direct(file)};
  return made;
}

void close_bench_file(Storage& storage, BenchFile& file) {
  if (file.descriptor >= 0) ::close(file.descriptor);
  file.descriptor = -1;
  (void)storage.close(file.file);  // what was measured is over, and the file goes
}

void fill_with_noise(std::span<std::byte> memory, std::uint64_t seed) {
  std::uint64_t index = 0;
  std::size_t at = 0;
  for (; at + sizeof(std::uint64_t) <= memory.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t word = mix64(seed, 0, index++);
    std::memcpy(memory.data() + at, &word, sizeof(word));
  }
}

}  // namespace penstock
