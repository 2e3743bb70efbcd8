#pragma once

/// Virtual time for one deterministic thread: events at times, run in order, ties by arrival.
///
/// A simulated drive and the deterministic executor share one Timeline, so that a whole training
/// step with a failing drive replays from one seed.
/// Threads: one only.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "base/executor.hpp"

namespace penstock {

class Timeline {
 public:
  explicit Timeline(std::uint64_t seed) : random_state_(seed) {}

  [[nodiscard]] std::uint64_t now_ns() const noexcept { return now_ns_; }

  /// Queues `task` for `delay_ns` from now.
  void after(std::uint64_t delay_ns, Task task);

  /// Forgets every queued event of `context`: whoever dies before its events calls this.
  void cancel(const void* context) { events_.cancel(context); }

  /// Moves time to the next event and runs it. False when there is none.
  bool run_one();

  /// Next 64 bits of the world's seeded random sequence.
  std::uint64_t random() noexcept;

  [[nodiscard]] std::uint64_t events_run() const noexcept { return events_run_; }

 private:
  struct Event {
    std::uint64_t when_ns;
    std::uint64_t order;
    Task task;
    bool operator>(const Event& other) const noexcept {
      return when_ns != other.when_ns ? when_ns > other.when_ns : order > other.order;
    }
  };
  struct EventQueue : std::priority_queue<Event, std::vector<Event>, std::greater<>> {
    void cancel(const void* context) {
      std::erase_if(c, [context](const Event& event) { return event.task.context == context; });
      std::make_heap(c.begin(), c.end(), comp);
    }
  };
  EventQueue events_;
  std::uint64_t now_ns_ = 0;
  std::uint64_t next_order_ = 0;
  std::uint64_t random_state_;
  std::uint64_t events_run_ = 0;
};

}  // namespace penstock
