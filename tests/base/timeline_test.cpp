#include "base/timeline.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace penstock {
namespace {

struct Recorder {
  Timeline* timeline = nullptr;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> seen{};  // (argument, time)
  Task task(std::uint64_t argument) {
    return Task{[](void* context, std::uint64_t value) {
                  auto& self = *static_cast<Recorder*>(context);
                  self.seen.emplace_back(value, self.timeline->now_ns());
                },
                this, argument};
  }
};

TEST(TimelineTest, RunsInOrderOfTimeThenOfArrival) {
  Timeline timeline(1);
  Recorder recorder{&timeline};
  timeline.after(30, recorder.task(3));
  timeline.after(10, recorder.task(1));
  timeline.after(20, recorder.task(2));
  timeline.after(10, recorder.task(11));
  timeline.after(0, recorder.task(0));
  timeline.after(10, recorder.task(12));
  EXPECT_EQ(timeline.now_ns(), 0U);
  while (timeline.run_one()) {
  }
  const std::vector<std::pair<std::uint64_t, std::uint64_t>> expected = {
      {0, 0}, {1, 10}, {11, 10}, {12, 10}, {2, 20}, {3, 30}};
  EXPECT_EQ(recorder.seen, expected);
  EXPECT_EQ(timeline.now_ns(), 30U);
  EXPECT_EQ(timeline.events_run(), 6U);
  EXPECT_FALSE(timeline.run_one());
}

TEST(TimelineTest, DelaysCountFromTheEventThatQueues) {
  Timeline timeline(1);
  struct World {
    Timeline& timeline;
    std::vector<std::uint64_t> times{};
    static void step(void* context, std::uint64_t left) {
      auto& world = *static_cast<World*>(context);
      world.times.push_back(world.timeline.now_ns());
      if (left > 0) world.timeline.after(5, Task{step, context, left - 1});
    }
  } world{timeline};
  timeline.after(100, Task{World::step, &world, 3});
  while (timeline.run_one()) {
  }
  EXPECT_EQ(world.times, (std::vector<std::uint64_t>{100, 105, 110, 115}));
}

TEST(TimelineTest, ForgetsTheEventsOfACancelledContextOnly) {
  Timeline timeline(1);
  Recorder dying{&timeline};
  Recorder living{&timeline};
  for (std::uint64_t i = 0; i < 20; ++i) {
    timeline.after(100 - i, dying.task(i));
    timeline.after(100 - i, living.task(i));
  }
  timeline.cancel(&dying);
  while (timeline.run_one()) {
  }
  EXPECT_TRUE(dying.seen.empty());
  ASSERT_EQ(living.seen.size(), 20U);
  for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(living.seen[i].first, 19 - i);
}

TEST(TimelineTest, RandomIsSplitMix64) {
  Timeline timeline(1234567);  // the values most implementations are checked against
  EXPECT_EQ(timeline.random(), 6457827717110365317U);
  EXPECT_EQ(timeline.random(), 3203168211198807973U);
  EXPECT_EQ(timeline.random(), 9817491932198370423U);
}

TEST(TimelineTest, ReplaysFromItsSeed) {
  const auto play = [](std::uint64_t seed) {
    Timeline timeline(seed);
    Recorder recorder{&timeline};
    for (std::uint64_t i = 0; i < 100; ++i)
      timeline.after(timeline.random() % 50, recorder.task(i));
    while (timeline.run_one()) {
    }
    return recorder.seen;
  };
  EXPECT_EQ(play(7), play(7));
  EXPECT_NE(play(7), play(8));
}

}  // namespace
}  // namespace penstock
