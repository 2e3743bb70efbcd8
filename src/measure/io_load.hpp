#pragma once

/// A closed loop of requests on a storage queue, and what it reached.
///
/// A lane keeps `places` requests in flight: a place submits its next request from the completion
/// of the last one, until the time is over. Rates are those of a steady window, from the end of the
/// ramp until submission stops: what completes in it is what a full queue completes, and neither
/// filling nor draining counts.
///
/// Ownership: files, memory and the log outlive run_load(). Each place has a part of its lane's
///            memory of its own, which is only read where the lane writes.
/// Threads:   run_load() blocks its caller; completions arrive on the queue's threads.
/// Errors:    the first failed transfer; kTimeout when the queue does not answer; kCancelled when
///            `stop` was set. In each case nothing is in flight any more, but for kTimeout.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "io/storage.hpp"

namespace penstock {

enum class LaneOps : std::uint8_t { kRead, kWrite, kAlternate };
enum class LaneOrder : std::uint8_t { kSequential, kRandom, kExtents };

struct Extent {
  std::uint64_t offset_bytes = 0, bytes = 0;
};

struct Lane {
  LaneOps ops = LaneOps::kRead;
  LaneOrder order = LaneOrder::kSequential;
  IoClass io_class = IoClass::kDemand;
  std::vector<FileId> files{};        ///< place i works on file i % count
  std::uint64_t file_bytes = 0;       ///< length of each: offsets wrap there
  std::uint64_t first_offset = 0;     ///< where a sequential lane begins, a multiple of block_bytes
  std::uint64_t block_bytes = 0;      ///< of a request; of kExtents: the longest
  std::uint32_t places = 1;           ///< for all files together
  std::span<std::byte> memory{};      ///< places x block_bytes
  std::span<const Extent> extents{};  ///< of kExtents, visited in turn; longer ones than
                                      ///< block_bytes are not allowed
  std::uint64_t seed = 0;             ///< of kRandom
  std::uint64_t turns = 0;            ///< requests for each file, 0: until the time is over
  bool is_probe = true;               ///< its latencies are reported; others are background
};

/// One completion.
struct LoadSample {
  std::uint64_t end_ns = 0, latency_ns = 0;
  std::uint32_t bytes = 0;
  std::uint16_t lane = 0, file = 0;  ///< file: index into the lane's files
  bool is_read = true;
};

struct LoadOptions {
  double seconds = 0.25;             ///< of submission
  double ramp_share = 0.15;          ///< of `seconds`, dropped at the start
  std::uint64_t least_requests = 8;  ///< after the ramp: a slow drive gets the time for them
  std::uint64_t answer_ns = 10'000'000'000;  ///< after `seconds`, before the drive is given up
};

struct LoadResult {
  double window_seconds = 0.0;                    ///< of the steady window
  double dropped_seconds = 0.0;                   ///< ramp before it
  std::uint64_t read_bytes = 0, write_bytes = 0;  ///< within the window
  std::vector<std::uint64_t> file_bytes{};        ///< the same by file index
  double mean_depth = 0.0;             ///< requests in flight in the window, by Little's law
  double cpu_seconds = 0.0;            ///< user and system time of the process, of the whole run
  std::uint64_t moved_bytes = 0;       ///< of the whole run
  std::vector<double> latencies_ns{};  ///< of the probes in the window
  std::vector<std::uint64_t> next_offset{};  ///< of each lane: where a sequential one stopped
  std::vector<std::uint64_t> turns_done{};   ///< of the first lane, by file: requests begun

  [[nodiscard]] std::uint64_t bytes() const { return read_bytes + write_bytes; }
  [[nodiscard]] double bytes_per_second() const {
    return window_seconds > 0.0 ? static_cast<double>(bytes()) / window_seconds : 0.0;
  }
};

/// `log` is scratch, used up to its capacity: when it is full the run ends early.
Result<LoadResult> run_load(Storage& storage, const QueueOptions& queue,
                            std::span<const Lane> lanes, const LoadOptions& options,
                            std::vector<LoadSample>& log, const std::atomic<bool>& stop);

/// User and system time of this process so far, all threads.
[[nodiscard]] double process_cpu_seconds();

/// What a log says; `start_ns` and `stop_ns`: of submission. Pure.
[[nodiscard]] LoadResult summarise_load(std::span<const Lane> lanes,
                                        std::span<const LoadSample> log, std::uint64_t start_ns,
                                        std::uint64_t stop_ns, double ramp_share);

}  // namespace penstock
