#include "base/timeline.hpp"

namespace penstock {

void Timeline::after(std::uint64_t delay_ns, Task task) {
  events_.push(Event{now_ns_ + delay_ns, next_order_++, task});
}

bool Timeline::run_one() {
  if (events_.empty()) return false;
  // Copied before the pop: the task may queue further events.
  const Event event = events_.top();
  events_.pop();
  now_ns_ = event.when_ns;
  ++events_run_;
  event.task.run(event.task.context, event.task.argument);
  return true;
}

// SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014;
// the finaliser is variant 13 of Stafford, "Better bit mixing".
std::uint64_t Timeline::random() noexcept {
  random_state_ += 0x9E3779B97F4A7C15U;
  std::uint64_t z = random_state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

}  // namespace penstock
