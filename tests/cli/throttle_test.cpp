#include "cli/throttle.hpp"

#include <gtest/gtest.h>

namespace penstock {
namespace {

/// Time that passes only in sleeps.
struct FakeClock {
  std::uint64_t now = 1'000'000'000;
  std::uint64_t longest_nap = 0;
  [[nodiscard]] ThrottleClock clock() {
    return {[this] { return now; },
            [this](std::uint64_t ns) {
              now += ns;
              longest_nap = std::max(longest_nap, ns);
            }};
  }
};

const std::atomic<bool> kGo{false};

TEST(ThrottleTest, KeepsTheRateFromTheStart) {
  FakeClock time;
  const std::uint64_t start = time.now;
  Throttle throttle(1'000'000, time.clock());
  throttle.moved(250'000, kGo);
  EXPECT_EQ(time.now - start, 250'000'000U);
  throttle.moved(2'000'000, kGo);
  EXPECT_EQ(time.now - start, 2'250'000'000U);
  EXPECT_EQ(throttle.bytes_per_second(), 1e6);
  time.now += 10'000'000'000;  // somebody else was slow: no need to sleep
  const std::uint64_t before = time.now;
  throttle.moved(1'000'000, kGo);
  EXPECT_EQ(time.now, before);
}

TEST(ThrottleTest, SleepsInNapsAndStopsWhenAsked) {
  FakeClock time;
  Throttle throttle(1, time.clock());
  std::atomic<bool> stop = false;
  ThrottleClock counting = time.clock();
  int naps = 0;
  counting.sleep_ns = [&](std::uint64_t ns) {
    time.now += ns;
    if (++naps == 3) stop = true;
  };
  Throttle slow(1, counting);
  slow.moved(1'000'000, stop);
  EXPECT_EQ(naps, 3);
  throttle.moved(2, kGo);
  EXPECT_LE(time.longest_nap, 100'000'000U);
}

TEST(ThrottleTest, ZeroIsNoLimit) {
  FakeClock time;
  const std::uint64_t start = time.now;
  Throttle throttle(0, time.clock());
  throttle.moved(std::uint64_t{1} << 60, kGo);
  EXPECT_EQ(time.now, start);
  EXPECT_EQ(throttle.bytes_per_second(), 0.0);
}

}  // namespace
}  // namespace penstock
