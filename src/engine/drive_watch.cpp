#include "engine/drive_watch.hpp"

#include <algorithm>

namespace penstock {
namespace {

constexpr std::uint64_t kLookEveryNs = 500'000'000;
constexpr std::uint64_t kLeastBusyNs = 1'000'000'000;  // a window with less says nothing
constexpr double kMemory = 0.75;  // of the usual rate, how much a new window leaves

}  // namespace

DriveWatch::DriveWatch(std::vector<Drive> drives)
    : drives_(std::move(drives)), states_(drives_.size()) {}

bool DriveWatch::due(std::uint64_t now_ns) noexcept {
  if (now_ns - last_look_ns_ < kLookEveryNs) return false;
  last_look_ns_ = now_ns;
  return true;
}

std::size_t DriveWatch::find(std::uint64_t number) const noexcept {
  const auto found = std::find_if(drives_.begin(), drives_.end(),
                                  [&](const Drive& drive) { return drive.number == number; });
  return static_cast<std::size_t>(found - drives_.begin());
}

bool DriveWatch::stalled(std::size_t drive, bool is_stalled) noexcept {
  const bool news = is_stalled && !states_[drive].stalled;
  states_[drive].stalled = is_stalled;
  return news;
}

DriveWatch::Event DriveWatch::step_ended(std::size_t drive, const DriveStats& stats,
                                         std::uint64_t now_ns) noexcept {
  State& state = states_[drive];
  const std::uint64_t bytes = stats.read_bytes + stats.write_bytes;
  const auto begin = [&] {
    state.window_start_ns = now_ns;
    state.start_bytes = bytes;
    state.start_busy_ns = stats.busy_ns;
    state.started = true;
  };
  if (!state.started) {
    begin();
    return {};
  }
  const std::uint64_t busy = stats.busy_ns - state.start_busy_ns;
  if (now_ns - state.window_start_ns < kWindowNs || busy < kLeastBusyNs) return {};
  const double rate =
      static_cast<double>(bytes - state.start_bytes) / (static_cast<double>(busy) * 1e-9);
  begin();
  Event event{Event::Kind::kNone, rate, state.usual};
  if (state.usual <= 0.0) {
    state.usual = rate;
    return event;
  }
  const bool slow = rate < kSlow * state.usual;
  if (slow != state.slow) event.kind = slow ? Event::Kind::kSlow : Event::Kind::kUsual;
  state.slow = slow;
  // What is slow is not what is usual: otherwise a drive that degrades would only be named once
  // and then seem to have recovered.
  if (!slow) state.usual = kMemory * state.usual + (1.0 - kMemory) * rate;
  return event;
}

}  // namespace penstock
