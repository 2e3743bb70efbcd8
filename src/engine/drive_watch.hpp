#pragma once

/// Notices drives that hang or have become slow.
///
/// A drive's rate is its bytes over the time in which it had something to do, taken over whole
/// steps (whose mix of reads and writes is the same) of at least half a minute. A window below four
/// fifths of what was usual is one event, and so is the return.
/// Threads: none; the owner locks. No allocation after construction.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/storage_queue.hpp"

namespace penstock {

class DriveWatch {
 public:
  static constexpr std::uint64_t kWindowNs = 30'000'000'000;
  static constexpr double kSlow = 0.8;

  struct Drive {
    std::uint64_t number = 0;  ///< as DriveStats has it
    std::string directory;     ///< how messages name it
  };
  struct Event {
    enum class Kind : std::uint8_t { kNone, kSlow, kUsual } kind = Kind::kNone;
    double rate = 0.0, usual = 0.0;  ///< bytes a second
  };

  explicit DriveWatch(std::vector<Drive> drives);

  [[nodiscard]] std::size_t size() const noexcept { return drives_.size(); }
  [[nodiscard]] const std::string& directory(std::size_t i) const { return drives_[i].directory; }
  /// Whether DriveStats are to be asked for again: not more often than twice a second.
  [[nodiscard]] bool due(std::uint64_t now_ns) noexcept;
  /// Index of a drive by its number; size() if it is none of ours.
  [[nodiscard]] std::size_t find(std::uint64_t number) const noexcept;

  /// At the end of a step, with what the drive has done so far.
  Event step_ended(std::size_t drive, const DriveStats& stats, std::uint64_t now_ns) noexcept;

  /// Whether a request as old as this is news: true once for each stall.
  bool stalled(std::size_t drive, bool is_stalled) noexcept;

 private:
  struct State {
    std::uint64_t window_start_ns = 0, start_bytes = 0, start_busy_ns = 0;
    double usual = 0.0;  // bytes a second; 0: not known yet
    bool started = false, slow = false, stalled = false;
  };
  std::vector<Drive> drives_;
  std::vector<State> states_;
  std::uint64_t last_look_ns_ = 0;
};

}  // namespace penstock
