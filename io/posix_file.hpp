#pragma once

/// Open descriptors of the real storage, and blocking transfers on them.
///
/// A file stays open, and locked, until close() and the end of its last request: whoever works on a
/// descriptor holds a PosixFilePtr, so its number is never reused under a request in flight.
/// Threads: the table may be used from any.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "base/result.hpp"
#include "io/storage.hpp"
#include "io/transfer_rules.hpp"

namespace penstock {

class PosixFile {
 public:
  static Result<std::shared_ptr<PosixFile>> open(const std::string& path,
                                                 const OpenOptions& options,
                                                 const DriveNamer& namer = {});
  ~PosixFile();
  PosixFile(const PosixFile&) = delete;  // one descriptor, one owner
  PosixFile& operator=(const PosixFile&) = delete;

  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] bool writable() const noexcept { return writable_; }
  [[nodiscard]] std::uint64_t drive() const noexcept { return drive_; }
  [[nodiscard]] bool direct() const noexcept { return direct_.load(std::memory_order_relaxed); }
  /// Lets later transfers pass through the page cache, for a filesystem that took the opening but
  /// refuses the transfers. The descriptor and its lock stay. False if that is refused, too.
  bool stop_direct() noexcept;
  [[nodiscard]] std::uint32_t alignment_bytes() const noexcept { return alignment_bytes_; }
  /// What a short transfer must be a multiple of to be continued.
  [[nodiscard]] std::uint32_t step_bytes() const noexcept {
    return direct() ? alignment_bytes_ : 1;
  }

 private:
  PosixFile(int descriptor, std::string path, bool writable, bool direct, std::uint64_t drive);

  int descriptor_;
  std::string path_;
  bool writable_;
  std::atomic<bool> direct_;
  std::uint64_t drive_;
  std::uint32_t alignment_bytes_;
};

using PosixFilePtr = std::shared_ptr<PosixFile>;  // shared with requests in flight

class PosixFileTable {
 public:
  FileId add(PosixFilePtr file);
  [[nodiscard]] PosixFilePtr find(FileId id) const;  ///< null when it is not open
  PosixFilePtr remove(FileId id);

 private:
  mutable std::mutex mutex_;
  std::unordered_map<FileId, PosixFilePtr> files_;
  FileId next_ = 1;  // never reused
};

/// How a transfer ended; with kOk it is complete.
struct TransferEnd {
  Errc code = Errc::kOk;
  int sys_errno = 0;
  std::uint64_t direct_refused = 0;  ///< files that stopped direct transfers meanwhile
};

/// judge() for a transfer of `file`; a filesystem that refuses direct transfers gets them through
/// the page cache from then on, `refused` counts such files.
Verdict judge_on(PosixFile& file, Transfer& transfer, std::int64_t result,
                 std::uint64_t& refused) noexcept;

/// Finishes `transfer` with pread/pwrite under the rules of transfer_rules.hpp. `memory` and
/// `offset_bytes` are those of the transfer's first byte.
TransferEnd transfer_blocking(PosixFile& file, Transfer& transfer, std::uint64_t offset_bytes,
                              std::byte* memory) noexcept;

/// An Error for a failed system call on a path: "<what> \"<path>\": <errno text> (<n>); <advice>".
Error posix_error(std::string_view what, std::string_view path, int error);

/// See Storage::check_private().
Status check_private_directory(const std::string& directory);

/// Checks one request as the contract of StorageQueue::submit() asks.
Status check_request(const IoRequest& request, const PosixFile* file, std::size_t position);

}  // namespace penstock
