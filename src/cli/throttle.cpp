#include "cli/throttle.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/clock.hpp"

namespace penstock {
namespace {

constexpr std::uint64_t kLongestNapNs = 100'000'000;  // so that Ctrl-C is seen soon

}  // namespace

Throttle::Throttle(std::uint64_t bytes_per_second, ThrottleClock clock)
    : limit_(bytes_per_second), clock_(std::move(clock)) {
  if (!clock_.now_ns) clock_.now_ns = [] { return now_ns(); };
  if (!clock_.sleep_ns) {
    clock_.sleep_ns = [](std::uint64_t ns) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(ns));
    };
  }
  start_ns_ = clock_.now_ns();
}

void Throttle::moved(std::uint64_t bytes, const std::atomic<bool>& stop) {
  bytes_ += bytes;
  if (limit_ == 0) return;
  const double seconds = static_cast<double>(bytes_) / static_cast<double>(limit_);
  const std::uint64_t due_ns = start_ns_ + static_cast<std::uint64_t>(seconds * 1e9);
  for (std::uint64_t now = clock_.now_ns(); now < due_ns && !stop.load(std::memory_order_relaxed);
       now = clock_.now_ns()) {
    clock_.sleep_ns(std::min(due_ns - now, kLongestNapNs));
  }
}

double Throttle::bytes_per_second() const {
  const std::uint64_t ns = clock_.now_ns() - start_ns_;
  return ns == 0 ? 0.0 : static_cast<double>(bytes_) * 1e9 / static_cast<double>(ns);
}

}  // namespace penstock
