#include "train/schedule.hpp"

#include <gtest/gtest.h>

namespace penstock {
namespace {

TEST(ScheduleTest, WarmsUpThenFallsToTheFloor) {
  const Schedule schedule{.peak = 2.0, .warmup = 100, .steps = 1100, .floor = 0.1};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 0), 0.02);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 49), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 99), 2.0);
  EXPECT_LT(learning_rate(schedule, 100), 2.0);
  EXPECT_NEAR(learning_rate(schedule, 599), 0.2 + 0.5 * 1.8, 1e-12);  // half way down
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 1099), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 5000), 0.2);
  for (std::uint64_t step = 100; step < 1100; ++step) {
    EXPECT_LE(learning_rate(schedule, step), learning_rate(schedule, step - 1));
    EXPECT_GE(learning_rate(schedule, step), 0.2);
  }
}

TEST(ScheduleTest, HandlesRunsShorterThanTheWarmUp) {
  const Schedule schedule{.peak = 1.0, .warmup = 100, .steps = 10};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 9), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 100), 0.1);
  const Schedule none{.peak = 1.0, .warmup = 0, .steps = 1};
  EXPECT_DOUBLE_EQ(learning_rate(none, 0), 0.1);
  const Schedule empty{.peak = 1.0, .warmup = 0, .steps = 0};
  EXPECT_DOUBLE_EQ(learning_rate(empty, 0), 0.1);
}

}  // namespace
}  // namespace penstock
