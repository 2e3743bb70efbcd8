#pragma once

/// Keeps a stream of bytes at or below a rate, measured from its start.
///
/// Threads: one. Units: bytes per second; 0: no limit.

#include <atomic>
#include <cstdint>
#include <functional>

namespace penstock {

/// Time as the caller sees it; both are the system's where empty.
struct ThrottleClock {
  std::function<std::uint64_t()> now_ns{};
  std::function<void(std::uint64_t)> sleep_ns{};
};

class Throttle {
 public:
  explicit Throttle(std::uint64_t bytes_per_second, ThrottleClock clock = {});

  /// Counts bytes that were moved and sleeps while the rate is above the limit; returns early when
  /// `stop` is set.
  void moved(std::uint64_t bytes, const std::atomic<bool>& stop);

  /// Of everything so far; 0 before any time has passed.
  [[nodiscard]] double bytes_per_second() const;

 private:
  std::uint64_t limit_;
  ThrottleClock clock_;
  std::uint64_t start_ns_;
  std::uint64_t bytes_ = 0;
};

}  // namespace penstock
