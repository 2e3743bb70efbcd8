#pragma once

/// A short look at what a drive gives: rates and latencies through the queue that a training uses.
///
/// On a file without a name, which is gone when this returns or the process ends: it is filled,
/// overwritten (which is what a training does, and often faster than the first writing) and read.
/// Memory:  the caller's; page aligned, at least kProbeDepth MiB. After kTimeout it still belongs
/// to
///          the kernel and must never be freed.
/// Threads: blocks its caller. Errors: those of the storage; kTimeout when a transfer does not end,
///          kCancelled when `stop` was set.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.hpp"
#include "io/storage.hpp"

namespace penstock {

inline constexpr std::uint64_t kProbePieceBytes = 1U << 20;
inline constexpr std::size_t kProbeDepth = 8;  // more buys latency, not throughput

struct ProbeLimits {
  std::uint64_t most_bytes = 0;  ///< of the file
  double seconds = 0.7;          ///< of each of the three passes
  const std::atomic<bool>* stop = nullptr;
};

struct PassRates {
  std::uint64_t bytes = 0;
  double bytes_per_second = 0;
  double p99_seconds = 0;  ///< of pieces of 1 MiB, 8 at a time
};

struct ProbeResult {
  PassRates first_write{}, write{}, read{};
  std::uint64_t written_bytes = 0;  ///< what it cost the drive
  std::string queue{};              ///< "io_uring", "threads"
  bool is_direct = false;
};

[[nodiscard]] Result<ProbeResult> probe_drive(Storage& storage, const std::string& directory,
                                              std::span<std::byte> memory,
                                              const ProbeLimits& limits);

}  // namespace penstock
