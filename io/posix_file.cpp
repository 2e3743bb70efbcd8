#include "io/posix_file.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <system_error>

#include <fmt/format.h>

namespace penstock {

namespace {

constexpr std::uint32_t kAlignmentBytes = 4096;

std::string_view advice(int error) {
  switch (error) {
    case ENOENT:
      return "check the path";
    case EEXIST:
      return "open it, or choose another name";
    case EACCES:
    case EPERM:
      return "check owner and mode, or whether the filesystem is read-only";
    case ELOOP:
      return "links among the directories before it lead in a circle; mend them";
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return "free space, or raise the quota or file size limit";
    case EIO:
      return "the drive reports an error; check the kernel log";
    case EOPNOTSUPP:
      return "the filesystem lacks this; use ext4 or xfs";
    case EMFILE:
      return "this process has no file descriptors left, so raise their limit (ulimit -n)";
    case ENFILE:
      return "the system has no file descriptors left, so end other programs";
    default:
      return "check the filesystem";
  }
}

Errc code_of(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return Errc::kNoSpace;
    case EEXIST:
    case EWOULDBLOCK:
      return Errc::kState;
    case EOPNOTSUPP:
    case ENOSYS:
      return Errc::kUnsupported;
    default:
      return Errc::kIo;
  }
}

// Alignment for transfers that bypass the page cache: what the kernel reports, at least 4096.
std::uint32_t direct_alignment(int descriptor) {
#ifdef STATX_DIOALIGN
  struct statx facts {};
  if (::statx(descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &facts) == 0 &&
      (facts.stx_mask & STATX_DIOALIGN) != 0) {
    return std::max({kAlignmentBytes, facts.stx_dio_offset_align, facts.stx_dio_mem_align});
  }
#else
  static_cast<void>(descriptor);
#endif
  return kAlignmentBytes;
}

int open_retrying(const std::string& path, int flags) {
  for (;;) {
    const int descriptor = ::open(path.c_str(), flags, 0600);
    if (descriptor >= 0 || errno != EINTR) return descriptor;
  }
}

// A name nobody else uses, removed at once: for filesystems without O_TMPFILE.
int open_unlinked(const std::string& directory, int flags) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    const std::string path =
        fmt::format("{}/.penstock-{}-{}-{}", directory, ::getpid(), now.tv_nsec, attempt);
    const int descriptor = open_retrying(path, flags | O_CREAT | O_EXCL);
    if (descriptor >= 0) {
      ::unlink(path.c_str());
      return descriptor;
    }
    if (errno != EEXIST) return -1;
  }
  return -1;
}

/// btrfs writes every change of a file elsewhere, which takes space, unless it is told not to while
/// the file is empty. Elsewhere, and where it refuses, files stay as they are.
void write_in_place(int descriptor) {
  struct statfs filesystem {};
  int flags = 0;
  if (::fstatfs(descriptor, &filesystem) != 0 || filesystem.f_type != BTRFS_SUPER_MAGIC ||
      ::ioctl(descriptor, FS_IOC_GETFLAGS, &flags) != 0) {
    return;
  }
  flags |= FS_NOCOW_FL;
  (void)::ioctl(descriptor, FS_IOC_SETFLAGS, &flags);
}

int open_with(const std::string& path, const OpenOptions& options, int direct_flag) {
  const int access = options.write || options.create || options.temporary ? O_RDWR : O_RDONLY;
  const int flags = access | O_CLOEXEC | direct_flag;
  if (!options.temporary) {
    // O_NONBLOCK: a pipe must not wait for its other end before it can be refused.
    constexpr int kNeverWait = O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    return open_retrying(path, flags | kNeverWait | (options.create ? O_CREAT | O_EXCL : 0));
  }
  const int descriptor = open_retrying(path, flags | O_TMPFILE);
  if (descriptor >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return descriptor;
  return open_unlinked(path, flags | O_NOFOLLOW);
}

Error not_regular(std::string_view what, const std::string& path, mode_t mode) {
  const char* const kind = S_ISDIR(mode)    ? "directory"
                           : S_ISFIFO(mode) ? "pipe"
                           : S_ISSOCK(mode) ? "socket"
                                            : "device";
  return make_error(Errc::kIo, fmt::format("{} \"{}\": it is not a regular file but a {}; move it "
                                           "away",
                                           what, path, kind));
}

/// What is known before anything is opened: opening a device may already do something to it.
Status check_named(std::string_view what, const std::string& path) {
  struct stat facts {};
  if (::lstat(path.c_str(), &facts) != 0) return ok();  // open() says why
  if (S_ISREG(facts.st_mode) || S_ISLNK(facts.st_mode)) return ok();
  return not_regular(what, path, facts.st_mode);
}

/// Files have the names that a store gives them, so nobody can name what a link leads to instead.
Error opening_error(std::string_view what, const std::string& path, int error) {
  struct stat facts {};
  if (error != ELOOP || ::lstat(path.c_str(), &facts) != 0) return posix_error(what, path, error);
  return make_error(Errc::kIo,
                    fmt::format("{} \"{}\": it is a symbolic link, which may lead elsewhere "
                                "tomorrow; move the link away",
                                what, path),
                    error);
}

/// What was only for the opening: io_uring would hand EAGAIN back instead of waiting.
bool clear_nonblock(int descriptor) {
  const int flags = ::fcntl(descriptor, F_GETFL);
  return flags >= 0 && ::fcntl(descriptor, F_SETFL, flags & ~O_NONBLOCK) == 0;
}

}  // namespace

Error posix_error(std::string_view what, std::string_view path, int error) {
  return make_error(code_of(error),
                    fmt::format("{} \"{}\": {} ({}); {}", what, path,
                                std::generic_category().message(error), error, advice(error)),
                    error);
}

PosixFile::PosixFile(int descriptor, std::string path, bool writable, bool direct,
                     std::uint64_t drive)
    : descriptor_(descriptor),
      path_(std::move(path)),
      writable_(writable),
      direct_(direct),
      drive_(drive),
      alignment_bytes_(direct ? direct_alignment(descriptor) : kAlignmentBytes) {}

PosixFile::~PosixFile() {
  ::close(descriptor_);
}

bool PosixFile::stop_direct() noexcept {
  const int flags = ::fcntl(descriptor_, F_GETFL);
  if (flags < 0 || ::fcntl(descriptor_, F_SETFL, flags & ~O_DIRECT) != 0) return false;
  direct_.store(false, std::memory_order_relaxed);
  return true;
}

Result<PosixFilePtr> PosixFile::open(const std::string& path, const OpenOptions& options,
                                     const DriveNamer& namer) {
  const char* what = options.temporary ? "open a temporary file in"
                     : options.create  ? "create"
                                       : "open";
  const bool created = options.create || options.temporary;
  if (!created) PENSTOCK_CHECK_OK(check_named(what, path));
  bool direct = options.direct;
  int descriptor = open_with(path, options, direct ? O_DIRECT : 0);
  if (descriptor < 0 && direct && errno == EINVAL) {
    // A filesystem may refuse O_DIRECT after it has made the name.
    if (options.create && ::unlink(path.c_str()) != 0 && errno != ENOENT) {
      return posix_error("undo the creation of", path, errno);
    }
    direct = false;
    descriptor = open_with(path, options, 0);
  }
  if (descriptor < 0) return opening_error(what, path, errno);
  struct stat facts {};
  if ((created && ::fchmod(descriptor, 0600) != 0) || ::fstat(descriptor, &facts) != 0 ||
      !clear_nonblock(descriptor)) {
    const int error = errno;
    ::close(descriptor);
    return posix_error(what, path, error);
  }
  if (!S_ISREG(facts.st_mode)) {
    ::close(descriptor);
    return not_regular(what, path, facts.st_mode);
  }
  if (created) write_in_place(descriptor);
  std::string name = options.temporary ? path + "/(temporary)" : path;
  const std::uint64_t drive = namer ? namer(major(facts.st_dev), minor(facts.st_dev))
                                    : static_cast<std::uint64_t>(facts.st_dev);
  return PosixFilePtr(
      new PosixFile(descriptor, std::move(name), created || options.write, direct, drive));
}

FileId PosixFileTable::add(PosixFilePtr file) {
  const std::lock_guard lock(mutex_);
  files_.emplace(next_, std::move(file));
  return next_++;
}

PosixFilePtr PosixFileTable::find(FileId id) const {
  const std::lock_guard lock(mutex_);
  const auto it = files_.find(id);
  return it == files_.end() ? nullptr : it->second;
}

PosixFilePtr PosixFileTable::remove(FileId id) {
  const std::lock_guard lock(mutex_);
  const auto it = files_.find(id);
  if (it == files_.end()) return nullptr;
  PosixFilePtr file = std::move(it->second);
  files_.erase(it);
  return file;
}

Verdict judge_on(PosixFile& file, Transfer& transfer, std::int64_t result,
                 std::uint64_t& refused) noexcept {
  if (result == -EINVAL && file.direct() && file.stop_direct()) {
    ++refused;
    ++transfer.retries;
    return {NextMove::kRetryNow};
  }
  return judge(transfer, result, file.step_bytes());
}

TransferEnd transfer_blocking(PosixFile& file, Transfer& transfer, std::uint64_t offset_bytes,
                              std::byte* memory) noexcept {
  TransferEnd end;
  for (;;) {
    std::byte* const at = memory + transfer.done;
    const std::uint64_t bytes = transfer.bytes - transfer.done;
    const auto offset = static_cast<off_t>(offset_bytes + transfer.done);
    const ssize_t result = transfer.op == IoOp::kRead
                               ? ::pread(file.descriptor(), at, bytes, offset)
                               : ::pwrite(file.descriptor(), at, bytes, offset);
    const Verdict verdict =
        judge_on(file, transfer, result < 0 ? -errno : result, end.direct_refused);
    switch (verdict.move) {
      case NextMove::kDone:
      case NextMove::kFail:
        end.code = verdict.code;
        end.sys_errno = verdict.sys_errno;
        return end;
      case NextMove::kRetryLater: {
        const timespec pause{0, static_cast<long>(retry_pause_ns(transfer.stalled))};
        ::nanosleep(&pause, nullptr);
        break;
      }
      case NextMove::kContinue:
      case NextMove::kRetryNow:
        break;
    }
  }
}

Status check_private_directory(const std::string& directory) {
  std::string path = directory;  // a slash behind a link's name would mean what it points to
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  struct stat facts {};
  if (::lstat(path.c_str(), &facts) != 0) return posix_error("look at", path, errno);
  const auto refuse = [&](std::string_view why) {
    return make_error(Errc::kState, fmt::format("\"{}\" {}", path, why));
  };
  if (S_ISLNK(facts.st_mode)) {
    return refuse("is a symbolic link, which may point elsewhere tomorrow; name its target");
  }
  if (!S_ISDIR(facts.st_mode)) return refuse("is not a directory; name one");
  if (facts.st_uid != ::geteuid()) {
    return refuse(
        fmt::format("belongs to user {}, not to user {}, who runs this; use a directory "
                    "of your own",
                    facts.st_uid, ::geteuid()));
  }
  if ((facts.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return refuse(
        fmt::format("may be written by others (mode {:04o}), who could exchange its "
                    "files; run \"chmod 0700\" on it or use another directory",
                    facts.st_mode & 07777));
  }
  return ok();
}

Status check_request(const IoRequest& request, const PosixFile* file, std::size_t position) {
  if (file == nullptr) {
    return make_error(Errc::kArgument, fmt::format("submit: request {} names file {}, which is not "
                                                   "open in this storage; open it first",
                                                   position, request.file));
  }
  if (request.op == IoOp::kWrite && !file->writable()) {
    return make_error(Errc::kArgument,
                      fmt::format("submit: request {} writes to \"{}\", which is open for reading "
                                  "only; open it for writing",
                                  position, file->path()));
  }
  const std::uint64_t address = reinterpret_cast<std::uintptr_t>(request.memory);
  const std::uint64_t end = request.offset_bytes + request.bytes;
  if (request.bytes == 0 || request.memory == nullptr ||
      (request.offset_bytes | request.bytes | address) % file->alignment_bytes() != 0 ||
      end < request.bytes || end > static_cast<std::uint64_t>(INT64_MAX)) {
    return make_error(
        Errc::kArgument,
        fmt::format("submit: request {} for \"{}\" (offset {}, {} bytes, address {:#x}) is empty, "
                    "too far or not a multiple of {} bytes; align it",
                    position, file->path(), request.offset_bytes, request.bytes, address,
                    file->alignment_bytes()));
  }
  return ok();
}

}  // namespace penstock
