// The operating system's files behind the Storage seam.
// lint: long because it is one class: a method for each call of the seam, most of them system calls

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <thread>

#include <fmt/format.h>

#include "base/home_process.hpp"
#include "io/page_buffer.hpp"
#include "io/posix_file.hpp"
#include "io/queue_backends.hpp"
#include "io/section.hpp"

namespace penstock {

namespace {

constexpr std::uint64_t kBounceBytes = 1U << 20;

/// A zeroed buffer for transfers to and from memory that is not aligned.
class BounceBuffer {
 public:
  static Result<BounceBuffer> make(std::uint64_t bytes, std::uint32_t alignment) {
    const std::uint64_t slack = alignment > kPageBytes ? alignment : 0;
    BounceBuffer buffer{PageBuffer(round_up(bytes, kPageBytes) + slack)};
    if (buffer.pages_.empty()) {
      return make_error(Errc::kNoMemory, fmt::format("no {} bytes for a transfer buffer", bytes));
    }
    const auto address = reinterpret_cast<std::uintptr_t>(buffer.pages_.span().data());
    buffer.skipped_ = round_up(address, std::max<std::uint64_t>(alignment, 1)) - address;
    return buffer;
  }
  std::byte* data() { return pages_.span().data() + skipped_; }

 private:
  explicit BounceBuffer(PageBuffer pages) : pages_(std::move(pages)) {}
  PageBuffer pages_;
  std::uint64_t skipped_ = 0;
};

Error transfer_error(const PosixFile& file, IoOp op, std::uint64_t offset, TransferEnd end) {
  const char* what = op == IoOp::kRead ? "read" : "write";
  if (end.code == Errc::kIo && end.sys_errno == 0) {
    return make_error(Errc::kIo, fmt::format("read \"{}\": the file ends at {}, before what was "
                                             "asked for; it was cut short",
                                             file.path(), offset));
  }
  Error error = posix_error(what, file.path(), end.sys_errno);
  error.code = end.code;
  error.message += fmt::format(" (at offset {})", offset);
  return error;
}

// Writes or reads all of it; `memory` is aligned where the file needs that.
Status transfer_all(PosixFile& file, IoOp op, std::uint64_t offset, std::byte* memory,
                    std::uint64_t bytes) {
  if (bytes == 0) return ok();
  Transfer transfer{op, bytes};
  const TransferEnd end = transfer_blocking(file, transfer, offset, memory);
  if (end.code == Errc::kOk) return ok();
  return transfer_error(file, op, offset + transfer.done, end);
}

class PosixStorage final : public Storage {
 public:
  explicit PosixStorage(DriveNamer namer) : namer_(std::move(namer)) {}

  Result<FileId> open(const std::string& path, const OpenOptions& options) override {
    auto file = PosixFile::open(path, options, namer_);
    if (!file) return std::move(file).error();
    return files_->add(std::move(file).value());
  }
  Status close(FileId file) override {
    if (!files_->remove(file)) return not_open("close", file);
    return ok();
  }
  Result<std::uint64_t> size_bytes(FileId file) override;
  std::uint32_t alignment_bytes(FileId file) const override {
    const PosixFilePtr found = files_->find(file);
    return found ? found->alignment_bytes() : static_cast<std::uint32_t>(kPageBytes);
  }
  std::uint64_t drive(FileId file) const override {
    const PosixFilePtr found = files_->find(file);
    return found ? found->drive() : 0;
  }
  bool is_direct(FileId file) const override {
    const PosixFilePtr found = files_->find(file);
    return found && found->direct();
  }
  Status preallocate(FileId file, std::uint64_t bytes) override;
  Status extend(FileId file, std::uint64_t bytes) override;
  Status sync_data(FileId file) override;
  Status sync_all(std::span<const FileId> files) override;
  Status lock(FileId file) override;
  Status read_at(FileId file, std::uint64_t offset_bytes, std::span<std::byte> into) override;
  Status write_at(FileId file, std::uint64_t offset_bytes,
                  std::span<const std::byte> from) override;
  Result<std::vector<std::byte>> read_file(const std::string& path,
                                           std::uint64_t max_bytes) override;
  Status write_file(const std::string& path, std::span<const std::byte> bytes) override;
  Status overwrite_file(const std::string& path, std::span<const std::byte> bytes) override;
  void begin_writeback(const std::string& path) override;
  Status sync_file(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status remove(const std::string& path) override;
  Status sync_directory(const std::string& path) override;
  Status make_directory(const std::string& path) override;
  Status check_private(const std::string& directory) override {
    return check_private_directory(directory);
  }
  Result<bool> exists(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& directory) override;
  Result<bool> is_named(FileId file, const std::string& path) override;
  Result<std::uint64_t> free_bytes(const std::string& directory) override;
  std::uint64_t names_room_bytes(const std::string& directory) const override;
  std::uint64_t longest_file_bytes() const override;
  std::uint64_t unix_seconds() const override {
    return static_cast<std::uint64_t>(std::max<std::time_t>(::time(nullptr), 0));
  }
  Result<std::unique_ptr<StorageQueue>> make_queue(CompletionSink& sink,
                                                   const QueueOptions& options) override {
    return make_posix_queue(files_, sink, options);
  }

 private:
  const DriveNamer namer_;

  static Error not_open(std::string_view what, FileId file) {
    return make_error(
        Errc::kArgument,
        fmt::format("{}: file {} is not open in this storage; open it first", what, file));
  }
  Result<PosixFilePtr> opened(std::string_view what, FileId file) const {
    PENSTOCK_CHECK_OK(home_.check("the storage"));
    if (PosixFilePtr found = files_->find(file)) return found;
    return not_open(what, file);
  }
  static Status check_aligned(const PosixFile& file, std::string_view what, std::uint64_t offset,
                              std::uint64_t bytes);

  HomeProcess home_;  // a child shares descriptors, and could write where its parent does
  std::shared_ptr<PosixFileTable> files_ = std::make_shared<PosixFileTable>();  // with its queues
};

Result<std::uint64_t> PosixStorage::size_bytes(FileId file) {
  auto found = opened("size", file);
  if (!found) return std::move(found).error();
  struct stat facts {};
  if (::fstat(found.value()->descriptor(), &facts) != 0) {
    return posix_error("size of", found.value()->path(), errno);
  }
  return static_cast<std::uint64_t>(facts.st_size);
}

// For filesystems without fallocate: zeros take the space as well, only slower.
Status reserve_with_zeros(PosixFile& file, std::uint64_t from, std::uint64_t bytes) {
  const std::uint64_t align = file.alignment_bytes();
  auto buffer = BounceBuffer::make(kBounceBytes, file.alignment_bytes());
  if (!buffer) return std::move(buffer).error();
  for (std::uint64_t at = round_up(from, align); at < bytes; at += kBounceBytes) {
    const std::uint64_t part = round_up(std::min(kBounceBytes, bytes - at), align);
    PENSTOCK_CHECK_OK(transfer_all(file, IoOp::kWrite, at, buffer.value().data(), part));
  }
  if (::ftruncate(file.descriptor(), static_cast<off_t>(bytes)) != 0) {
    return posix_error("set the length of", file.path(), errno);
  }
  return ok();
}

Status PosixStorage::preallocate(FileId file, std::uint64_t bytes) {
  auto found = opened("preallocate", file);
  if (!found) return std::move(found).error();
  PosixFile& target = *found.value();
  struct stat facts {};
  struct statvfs room {};
  if (::fstat(target.descriptor(), &facts) != 0 || ::fstatvfs(target.descriptor(), &room) != 0) {
    return posix_error("preallocate", target.path(), errno);
  }
  const auto length = static_cast<std::uint64_t>(facts.st_size);
  const auto held = static_cast<std::uint64_t>(facts.st_blocks) * 512;
  if (!target.writable() || bytes < length || bytes > static_cast<std::uint64_t>(INT64_MAX)) {
    return make_error(Errc::kArgument,
                      fmt::format("preallocate \"{}\": it is open for reading only, or {} bytes is "
                                  "less than its {} or too much; check the size",
                                  target.path(), bytes, length));
  }
  const std::uint64_t needed = bytes > held ? bytes - held : 0;
  const std::uint64_t free = std::uint64_t{room.f_bavail} * room.f_frsize;
  const auto no_space = [&](int error) {
    // A quota, or a filesystem that needs more for itself, refuses what seems to be free.
    const std::string remedy =
        needed > free ? fmt::format("free {} bytes", needed - free) : "look for a quota, free some";
    return make_error(Errc::kNoSpace,
                      fmt::format("preallocate \"{}\": needs {} more bytes and {} are free; {} or "
                                  "choose another drive",
                                  target.path(), needed, free, remedy),
                      error);
  };
  if (needed > free) return no_space(ENOSPC);
  int error = 0;
  do {
    error = ::fallocate(target.descriptor(), 0, 0, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  } while (error == EINTR);
  Status status = ok();
  if (error == EOPNOTSUPP || error == ENOSYS) {
    status = reserve_with_zeros(target, length, bytes);
  } else if (error == ENOSPC || error == EDQUOT) {
    status = no_space(error);
  } else if (error != 0) {
    status = posix_error("preallocate", target.path(), error);
  }
  // A failed fallocate may leave part of the growth behind.
  if (!status && ::ftruncate(target.descriptor(), facts.st_size) != 0) {
    status.error().message += "; its length could not be set back either";
  }
  return status;
}

Status PosixStorage::extend(FileId file, std::uint64_t bytes) {
  auto found = opened("extend", file);
  if (!found) return std::move(found).error();
  PosixFile& target = *found.value();
  struct stat facts {};
  if (::fstat(target.descriptor(), &facts) != 0) {
    return posix_error("extend", target.path(), errno);
  }
  if (bytes < static_cast<std::uint64_t>(facts.st_size)) {
    return make_error(Errc::kArgument, fmt::format("extend \"{}\": {} bytes are less than its {}",
                                                   target.path(), bytes, facts.st_size));
  }
  if (::ftruncate(target.descriptor(), static_cast<off_t>(bytes)) == 0) return ok();
  return posix_error("extend", target.path(), errno);
}

/// One thread for each further drive: a commit waits for the slowest, not for all in turn.
Status PosixStorage::sync_all(std::span<const FileId> files) {
  std::vector<Status> results(files.size(), ok());
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < files.size(); ++i) {
    try {
      others.emplace_back([this, &results, files, i] { results[i] = sync_data(files[i]); });
    } catch (const std::system_error&) {  // no more threads: in turn, then
      results[i] = sync_data(files[i]);
    }
  }
  if (!files.empty()) results[0] = sync_data(files[0]);
  for (std::thread& other : others) other.join();
  for (Status& result : results) PENSTOCK_CHECK_OK(std::move(result));
  return ok();
}

Status PosixStorage::sync_data(FileId file) {
  auto found = opened("sync", file);
  if (!found) return std::move(found).error();
  // Never repeated, EINTR included: a second call may claim success for pages the first one lost.
  if (::fdatasync(found.value()->descriptor()) == 0) return ok();
  return posix_error("sync", found.value()->path(), errno);
}

Status PosixStorage::lock(FileId file) {
  auto found = opened("lock", file);
  if (!found) return std::move(found).error();
  while (::flock(found.value()->descriptor(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK) {
      return make_error(Errc::kState,
                        fmt::format("lock \"{}\": another process or opening holds it; wait for it "
                                    "to end",
                                    found.value()->path()),
                        EWOULDBLOCK);
    }
    return posix_error("lock", found.value()->path(), errno);
  }
  return ok();
}

Status PosixStorage::check_aligned(const PosixFile& file, std::string_view what,
                                   std::uint64_t offset, std::uint64_t bytes) {
  if ((offset | bytes) % file.alignment_bytes() == 0) return ok();
  return make_error(Errc::kArgument,
                    fmt::format("{} \"{}\": offset {} and length {} must be multiples of {}", what,
                                file.path(), offset, bytes, file.alignment_bytes()));
}

Status PosixStorage::read_at(FileId file, std::uint64_t offset_bytes, std::span<std::byte> into) {
  auto found = opened("read", file);
  if (!found) return std::move(found).error();
  PosixFile& source = *found.value();
  PENSTOCK_CHECK_OK(check_aligned(source, "read", offset_bytes, into.size()));
  if (!source.direct() ||
      reinterpret_cast<std::uintptr_t>(into.data()) % source.alignment_bytes() == 0) {
    return transfer_all(source, IoOp::kRead, offset_bytes, into.data(), into.size());
  }
  auto bounce = BounceBuffer::make(std::min<std::uint64_t>(into.size(), kBounceBytes),
                                   source.alignment_bytes());
  if (!bounce) return std::move(bounce).error();
  for (std::uint64_t at = 0; at < into.size(); at += kBounceBytes) {
    const std::uint64_t part = std::min<std::uint64_t>(kBounceBytes, into.size() - at);
    PENSTOCK_CHECK_OK(
        transfer_all(source, IoOp::kRead, offset_bytes + at, bounce.value().data(), part));
    std::memcpy(into.data() + at, bounce.value().data(), part);
  }
  return ok();
}

Status PosixStorage::write_at(FileId file, std::uint64_t offset_bytes,
                              std::span<const std::byte> from) {
  auto found = opened("write", file);
  if (!found) return std::move(found).error();
  PosixFile& target = *found.value();
  PENSTOCK_CHECK_OK(check_aligned(target, "write", offset_bytes, from.size()));
  if (!target.direct() ||
      reinterpret_cast<std::uintptr_t>(from.data()) % target.alignment_bytes() == 0) {
    // The transfer only reads from it: a write's Transfer has no other use of the memory.
    return transfer_all(target, IoOp::kWrite, offset_bytes, const_cast<std::byte*>(from.data()),
                        from.size());
  }
  auto bounce = BounceBuffer::make(std::min<std::uint64_t>(from.size(), kBounceBytes),
                                   target.alignment_bytes());
  if (!bounce) return std::move(bounce).error();
  for (std::uint64_t at = 0; at < from.size(); at += kBounceBytes) {
    const std::uint64_t part = std::min<std::uint64_t>(kBounceBytes, from.size() - at);
    std::memcpy(bounce.value().data(), from.data() + at, part);
    PENSTOCK_CHECK_OK(
        transfer_all(target, IoOp::kWrite, offset_bytes + at, bounce.value().data(), part));
  }
  return ok();
}

Result<std::vector<std::byte>> PosixStorage::read_file(const std::string& path,
                                                       std::uint64_t max_bytes) {
  auto opened = PosixFile::open(path, {.write = false, .direct = false});
  if (!opened) return std::move(opened).error();
  PosixFile& file = *opened.value();
  struct stat facts {};
  if (::fstat(file.descriptor(), &facts) != 0) return posix_error("read", path, errno);
  const auto length = static_cast<std::uint64_t>(facts.st_size);
  if (length > max_bytes) {
    return make_error(
        Errc::kIo,
        fmt::format("read \"{}\": it has {} bytes, at most {} were expected; it is not "
                    "what it should be",
                    path, length, max_bytes),
        EFBIG);
  }
  std::vector<std::byte> bytes(length);
  PENSTOCK_CHECK_OK(transfer_all(file, IoOp::kRead, 0, bytes.data(), length));
  return bytes;
}

Status PosixStorage::write_file(const std::string& path, std::span<const std::byte> bytes) {
  auto opened = PosixFile::open(path, {.create = true, .direct = false});
  if (!opened) return std::move(opened).error();
  return transfer_all(*opened.value(), IoOp::kWrite, 0, const_cast<std::byte*>(bytes.data()),
                      bytes.size());
}

Status PosixStorage::overwrite_file(const std::string& path, std::span<const std::byte> bytes) {
  auto opened = PosixFile::open(path, {.direct = false});
  if (!opened) return std::move(opened).error();
  return transfer_all(*opened.value(), IoOp::kWrite, 0, const_cast<std::byte*>(bytes.data()),
                      bytes.size());
}

void PosixStorage::begin_writeback(const std::string& path) {
  const auto opened = PosixFile::open(path, {.write = false, .direct = false});
  // What fails is found by sync_file(): without a wait this call takes no error of a page away.
  if (opened) (void)::sync_file_range(opened.value()->descriptor(), 0, 0, SYNC_FILE_RANGE_WRITE);
}

Status PosixStorage::sync_file(const std::string& path) {
  auto opened = PosixFile::open(path, {.write = false, .direct = false});
  if (!opened) return std::move(opened).error();
  // The length is made durable with the data; times are not, which would cost a journal's commit.
  if (::fdatasync(opened.value()->descriptor()) == 0) return ok();
  return posix_error("sync", path, errno);
}

Status PosixStorage::sync_directory(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY);
  if (descriptor < 0) return posix_error("sync", path, errno);
  const int error = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  if (error != 0) return posix_error("sync", path, error);
  return ok();
}

Status PosixStorage::rename(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return ok();
  return posix_error(fmt::format("rename to \"{}\" from", to), from, errno);
}

Status PosixStorage::remove(const std::string& path) {
  if (::unlink(path.c_str()) == 0) return ok();
  if (errno == EISDIR && ::rmdir(path.c_str()) == 0) return ok();
  return posix_error("remove", path, errno);
}

Status PosixStorage::make_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) == 0) {
    // The umask may have taken the owner's rights as well.
    if (::chmod(path.c_str(), 0700) == 0) return ok();
    return posix_error("set the mode of directory", path, errno);
  }
  const int error = errno;
  struct stat facts {};
  if (error == EEXIST && ::stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode)) return ok();
  return posix_error("make directory", path, error);
}

/// xfs keeps a short directory in its inode, which has 512 bytes or up to 1 KiB as it is usually
/// made, and takes a block when another name does not fit; a directory with a block has room in it.
std::uint64_t PosixStorage::names_room_bytes(const std::string& directory) const {
  struct statfs filesystem {};
  const bool is_xfs =
      ::statfs(directory.c_str(), &filesystem) == 0 && filesystem.f_type == XFS_SUPER_MAGIC;
  return is_xfs ? 1024 : 0;
}

Result<bool> PosixStorage::exists(const std::string& path) {
  struct stat facts {};
  if (::lstat(path.c_str(), &facts) == 0) return true;
  if (errno == ENOENT || errno == ENOTDIR) return false;
  return posix_error("look for", path, errno);
}

Result<bool> PosixStorage::is_named(FileId file, const std::string& path) {
  auto found = opened("look for", file);
  if (!found) return std::move(found).error();
  struct stat open_file {
  }, named{};
  if (::fstat(found.value()->descriptor(), &open_file) != 0) {
    return posix_error("look at", found.value()->path(), errno);
  }
  if (::lstat(path.c_str(), &named) != 0) {
    if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP) return false;
    return posix_error("look for", path, errno);
  }
  return open_file.st_dev == named.st_dev && open_file.st_ino == named.st_ino;
}

Result<std::vector<std::string>> PosixStorage::list(const std::string& directory) {
  std::error_code error;
  std::vector<std::string> names;
  std::filesystem::directory_iterator it(directory, error);
  for (; !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error) return posix_error("list", directory, error.value());
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::uint64_t> PosixStorage::free_bytes(const std::string& directory) {
  struct statvfs room {};
  if (::statvfs(directory.c_str(), &room) != 0) {
    return posix_error("free space of", directory, errno);
  }
  return std::uint64_t{room.f_bavail} * room.f_frsize;
}

std::uint64_t PosixStorage::longest_file_bytes() const {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return Storage::longest_file_bytes();
  }
  return limit.rlim_cur;
}

}  // namespace

std::unique_ptr<Storage> make_posix_storage(DriveNamer namer) {
  return std::make_unique<PosixStorage>(std::move(namer));
}

}  // namespace penstock
