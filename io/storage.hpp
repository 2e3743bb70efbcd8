#pragma once

/// The filesystem as far as a store needs it, real or simulated.
///
/// Every effect of the store goes through this seam (files, names, durability, locks) or through
/// the StorageQueue made here, so that a power loss at any moment can be simulated.
/// Threads: members may be called concurrently for different files; they block on the system.
/// Errors:  kIo, kNoSpace, kState (locked by another), kUnsupported; messages name the path. What
///          is not a regular file (a pipe, socket, device, link) is refused without waiting for it.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "io/storage_queue.hpp"

namespace penstock {

class Timeline;

struct OpenOptions {
  bool create = false;     ///< the file must not exist yet (O_EXCL); mode 0600 whatever the umask
  bool write = true;       ///< read and write, else read only
  bool direct = true;      ///< O_DIRECT where the filesystem takes it; buffered otherwise
  bool temporary = false;  ///< `path` is a directory; the file has no name and dies with us
};

enum class QueueBackend : std::uint8_t { kAuto, kUring, kThreads };

/// The drives of one NUMA node, as far as a queue needs to know them.
struct IoNode {
  int index = -1;                     ///< as the system numbers it
  std::vector<int> cpus;              ///< where their I/O thread runs; empty: anywhere
  std::vector<std::uint64_t> drives;  ///< as Storage::drive() numbers them
};

struct QueueOptions {
  QueueBackend backend = QueueBackend::kAuto;  ///< auto: io_uring, or threads with the reason
  std::uint32_t piece_bytes = 1U << 20;        ///< requests are cut into pieces of this size
  std::uint32_t read_credit_bytes = 2U << 20;  ///< in flight to each drive
  std::uint32_t write_credit_bytes = 2U << 20;
  /// Planned share of reads in the bytes of a step: while both wait for a drive, reads and writes
  /// go in this proportion. 0: they take turns.
  double read_share = 0.0;
  /// Tells the kernel's elevator, too, what is urgent. Without it a lone read behind a stream of
  /// others takes up to half a second where the elevator sorts by place (mq-deadline).
  bool priorities = true;
  /// Memory that transfers will use, lent for the queue's life: io_uring keeps its pages pinned,
  /// which spares CPU time. What the kernel does not take (limits) is transferred all the same.
  std::vector<std::span<std::byte>> memory{};
  bool register_memory = true;  ///< false: nothing of it is pinned
  std::uint32_t threads = 4;    ///< of the thread backend, for each drive
  std::uint32_t drives = 1;     ///< how many are expected: the thread backend's number of threads
  /// One I/O thread for each; drives that no node names belong to the first. Empty: one thread.
  std::vector<IoNode> nodes{};
};

class Storage {
 public:
  virtual ~Storage() = default;

  virtual Result<FileId> open(const std::string& path, const OpenOptions& options) = 0;
  virtual Status close(FileId file) = 0;
  [[nodiscard]] virtual Result<std::uint64_t> size_bytes(FileId file) = 0;
  /// Alignment of offset, length and address for this file; 4096 where the system does not say.
  [[nodiscard]] virtual std::uint32_t alignment_bytes(FileId file) const = 0;
  /// A number for the drive that the file is on: files with the same number share its credit.
  [[nodiscard]] virtual std::uint64_t drive(FileId file) const {
    static_cast<void>(file);
    return 0;
  }
  /// Whether transfers bypass the page cache.
  [[nodiscard]] virtual bool is_direct(FileId file) const = 0;

  /// Reserves and sets the file's length; kNoSpace says how much is missing.
  virtual Status preallocate(FileId file, std::uint64_t bytes) = 0;
  /// Makes the file longer; what is added is not reserved.
  virtual Status extend(FileId file, std::uint64_t bytes) = 0;
  /// Makes all completed writes of the file durable. A failure is final: never retry.
  virtual Status sync_data(FileId file) = 0;
  /// The same for several files, at once where they are on different drives. The first error.
  virtual Status sync_all(std::span<const FileId> files) {
    for (const FileId file : files) PENSTOCK_CHECK_OK(sync_data(file));
    return ok();
  }
  /// Exclusive advisory lock on the file's own descriptor. kState with EWOULDBLOCK when another
  /// process or another opening of the file holds it. Held until close().
  virtual Status lock(FileId file) = 0;

  /// Blocking transfers for headers and tools; same alignment rules as the queue's.
  virtual Status read_at(FileId file, std::uint64_t offset_bytes, std::span<std::byte> into) = 0;
  virtual Status write_at(FileId file, std::uint64_t offset_bytes,
                          std::span<const std::byte> from) = 0;

  /// Whole small files (manifests), buffered. write_file makes a file (mode 0600), which must not
  /// exist yet (kState with EEXIST), and does not sync.
  virtual Result<std::vector<std::byte>> read_file(const std::string& path,
                                                   std::uint64_t max_bytes) = 0;
  virtual Status write_file(const std::string& path, std::span<const std::byte> bytes) = 0;
  /// Over the first bytes of a file that exists; what follows them stays. Takes no space where the
  /// file is as long.
  virtual Status overwrite_file(const std::string& path, std::span<const std::byte> bytes) = 0;
  /// Lets the system begin to write out a file, so that the drive has something to do until
  /// sync_file(), which alone makes anything durable and reports what fails here.
  virtual void begin_writeback(const std::string& path) { static_cast<void>(path); }
  virtual Status sync_file(const std::string& path) = 0;
  virtual Status rename(const std::string& from, const std::string& to) = 0;
  virtual Status remove(const std::string& path) = 0;
  /// Makes creations, renames and removals in the directory durable.
  virtual Status sync_directory(const std::string& path) = 0;
  virtual Status make_directory(const std::string& path) = 0;  ///< mode 0700; fine if it exists
  /// Whether a directory is this user's alone to write in: kState when it is a symbolic link,
  /// another user's, or writable by group or others, which could exchange files under a run.
  virtual Status check_private(const std::string& directory) = 0;
  [[nodiscard]] virtual Result<bool> exists(const std::string& path) = 0;
  /// Whether `path` still leads to this open file: false once it, or a directory on the way, was
  /// removed, moved or exchanged.
  [[nodiscard]] virtual Result<bool> is_named(FileId file, const std::string& path) = 0;
  virtual Result<std::vector<std::string>> list(
      const std::string& directory) = 0;  ///< names, sorted
  virtual Result<std::uint64_t> free_bytes(const std::string& directory) = 0;
  /// How many bytes of names a directory must hold, so that a rename inside it never needs space.
  [[nodiscard]] virtual std::uint64_t names_room_bytes(const std::string&) const { return 0; }
  /// The longest file this process may write, as limits of its own say (ulimit -f).
  [[nodiscard]] virtual std::uint64_t longest_file_bytes() const { return ~std::uint64_t{0}; }
  /// How much was written so far to files in this directory, as it is spelled in their paths;
  /// nothing where nobody counts (io/counting_storage.hpp does).
  [[nodiscard]] virtual std::optional<std::uint64_t> counted_bytes(const std::string&) const {
    return std::nullopt;
  }
  /// Wall clock, for texts: seconds since 1970. Virtual in a simulation.
  [[nodiscard]] virtual std::uint64_t unix_seconds() const = 0;

  /// A queue over this storage's files. `sink` must outlive it.
  virtual Result<std::unique_ptr<StorageQueue>> make_queue(CompletionSink& sink,
                                                           const QueueOptions& options) = 0;
};

/// A number for the drive under a device of the system: files with the same number share the
/// drive's credit. Must not throw.
using DriveNamer = std::function<std::uint64_t(std::uint32_t major, std::uint32_t minor)>;

/// The operating system's files. Without a namer each filesystem counts as a drive of its own.
std::unique_ptr<Storage> make_posix_storage(DriveNamer namer = {});

}  // namespace penstock
