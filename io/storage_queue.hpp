#pragma once

/// Asynchronous reads and writes of open files.
///
/// Ownership: memory belongs to the caller and must stay valid and unchanged (writes) or untouched
///            (reads) until the request's completion. A queue never frees or reuses it.
/// Alignment: offset, length and address are multiples of the file's alignment_bytes().
/// Threads:   submit() may be called from any thread, a completion callback included. It waits only
///            while 16384 requests are in flight (at most 150 s, then kTimeout), and never inside a
///            callback. Completions arrive on the queue's own thread(s), or, in the simulation, on
///            the thread that drives the timeline.
/// Errors:    every request gets exactly one completion with its own result. Short transfers are
///            continued, EINTR and EAGAIN retried (bounded) inside the queue; what cannot be
///            finished is reported with the errno. In-flight file I/O cannot be cancelled: only
///            what the kernel has not been given can be dropped.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.hpp"

namespace penstock {

enum class IoOp : std::uint8_t { kRead, kWrite };

/// What a request is for, in falling urgency.
enum class IoClass : std::uint8_t { kDemand, kPrefetch, kCheckpoint, kWriteBack };
inline constexpr std::size_t kIoClassCount = 4;

/// Names an open file of the Storage that made the queue.
using FileId = std::uint32_t;

struct IoRequest {
  IoOp op = IoOp::kRead;
  IoClass io_class = IoClass::kDemand;
  FileId file = 0;
  std::uint64_t offset_bytes = 0;
  std::byte* memory = nullptr;
  std::uint64_t bytes = 0;   ///< any multiple of the alignment but 0, more than 2 GiB included
  std::uint64_t cookie = 0;  ///< handed back in the completion
};

struct IoCompletion {
  std::uint64_t cookie = 0;
  Errc code = Errc::kOk;    ///< kOk, kIo, kNoSpace, kInternal (a bug of ours), kCancelled (dropped
                            ///< before the kernel had it)
  int sys_errno = 0;        ///< 0 with kIo: the file ended early
  std::uint64_t bytes = 0;  ///< transferred; equals the request's on kOk
  std::uint32_t retries = 0;
};

/// Receives completions; must return quickly and must not wait for other I/O.
class CompletionSink {
 public:
  virtual ~CompletionSink() = default;
  virtual void io_complete(const IoCompletion& completion) noexcept = 0;
};

struct IoStats {
  std::uint64_t reads = 0, writes = 0, read_bytes = 0, write_bytes = 0;
  std::uint64_t retries = 0, short_transfers = 0, errors = 0;
  std::uint64_t direct_refused = 0;       ///< files whose transfers go through the page cache since
  std::uint64_t in_flight_requests = 0;   ///< submitted, not yet completed
  std::uint64_t oldest_in_flight_ns = 0;  ///< age of the oldest request; 0 when there is none
};

/// What a drive has done for a queue.
struct DriveStats {
  std::uint64_t drive = 0;  ///< as Storage::drive() numbers it
  std::uint64_t read_bytes = 0, write_bytes = 0;
  std::uint64_t busy_ns = 0;              ///< with something in flight to it
  std::uint64_t oldest_in_flight_ns = 0;  ///< age of the oldest request for it; 0: none
};

class StorageQueue {
 public:
  /// Waits (bounded) for everything in flight; what outlives the wait is leaked on purpose, since
  /// the kernel still owns its memory.
  virtual ~StorageQueue() = default;

  /// Copies the requests in; all or nothing, unless it returns kTimeout or the queue has several
  /// I/O threads and fails: what was taken before completes all the same. Errors: kArgument
  /// (misaligned, unknown file, names the request), kState (the queue is shutting down, or a
  /// callback submits more than the 4096 places kept for callbacks), kInternal (the queue has
  /// failed for good).
  virtual Status submit(std::span<const IoRequest> requests) noexcept = 0;

  /// Completes with kCancelled every request the kernel has not been given; returns how many.
  virtual std::size_t drop_queued() noexcept = 0;

  /// Waits until nothing is in flight. kTimeout says how many requests remain and how old the
  /// oldest is.
  virtual Status drain(std::uint64_t timeout_ns) noexcept = 0;

  [[nodiscard]] virtual IoStats stats() const noexcept = 0;

  /// The same by drive: fills `into` as far as it goes, in order of first use, and returns how many
  /// drives there are. None in the simulation.
  virtual std::size_t drive_stats(std::span<DriveStats> into) const noexcept {
    static_cast<void>(into);
    return 0;
  }

  /// "io_uring", "threads", "simulated"; and why that one was chosen, in one sentence.
  [[nodiscard]] virtual std::string backend() const = 0;
  [[nodiscard]] virtual std::string backend_reason() const = 0;
  /// What it has to do without though nobody asked for that, what that costs and what helps, in one
  /// sentence; empty: nothing.
  [[nodiscard]] virtual std::string shortfall() const { return {}; }
};

}  // namespace penstock
