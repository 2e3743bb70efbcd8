// Single situations, step by step; what scheduler_model_test reaches at random, told in order.

#include "plan/scheduler.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

namespace penstock {
namespace {

/// Groups of one block, least memory: gradients are spilled, frames are few.
struct Fixture {
  explicit Fixture(std::uint32_t groups, std::uint32_t visited) {
    PlanRequest request;
    request.block_elements = static_cast<std::uint32_t>(kTileElements);
    request.groups.assign(groups, GroupShape{kTileElements, true, false});
    request.forward.resize(visited);
    std::iota(request.forward.begin(), request.forward.end(), 0U);
    request.backward.assign(request.forward.rbegin(), request.forward.rend());
    request.host_bytes = std::uint64_t{1} << 40;
    request.host_bytes = make_plan(request).value().minimum_bytes;
    plan = make_plan(request).value();
    std::vector<SlotEntry> entries(groups);
    for (std::uint32_t b = 0; b < groups; ++b) entries[b] = {b, 0, 15, {}};
    table = std::make_unique<SlotTable>(groups, groups * 2, kSectionCount, false);
    table->load_durable(entries);
    scheduler = std::make_unique<Scheduler>(plan, *table, std::vector<std::uint64_t>(groups, 0));
  }

  /// Takes out all commands there are now.
  void drain() {
    Command command;
    while (scheduler->next(command)) in_flight.push_back(command);
  }
  void finish_first() {
    const Command command = in_flight.front();
    in_flight.erase(in_flight.begin());
    scheduler->done(command, std::vector<std::uint64_t>(kSectionCount, 0));
    drain();
  }
  void finish_all() {
    drain();
    while (!in_flight.empty()) finish_first();
  }
  void give(std::uint32_t block) {
    while (scheduler->gradient_frame(block) == kNone) finish_first();
    scheduler->gradient_filled(block);
    drain();
  }

  Plan plan;
  std::unique_ptr<SlotTable> table;
  std::unique_ptr<Scheduler> scheduler;
  std::vector<Command> in_flight;
};

TEST(Scheduler, ForgetsTheGradientOfASkippedStepThatIsStillOnItsWayToTheDrive) {
  Fixture f(6, 6);
  f.finish_all();
  f.give(0);
  ASSERT_EQ(f.in_flight.size(), 1U);
  ASSERT_EQ(f.in_flight[0].kind, Command::Kind::kSpillGradient);
  f.scheduler->step_ended(false, 0);
  f.scheduler->step_ended(true, 1);  // a step in which the block gets no gradient
  EXPECT_EQ(f.scheduler->state(0), BlockState::kBase);
  f.finish_all();
  EXPECT_TRUE(f.scheduler->settled());
  EXPECT_EQ(f.scheduler->version(0), 0U);
  EXPECT_EQ(f.scheduler->broken(), nullptr);
}

TEST(Scheduler, SweepsGroupsThatNobodyVisitsAsSoonAsItIsToldTo) {
  Fixture f(2, 1);
  f.give(1);
  f.scheduler->step_ended(true, 1);
  f.finish_all();
  ASSERT_FALSE(f.scheduler->settled());
  f.scheduler->set_sweep(true);
  f.finish_all();
  EXPECT_TRUE(f.scheduler->settled());
  EXPECT_EQ(f.scheduler->version(1), 1U);
}

TEST(Scheduler, GivesAFrameToTheNextOneWhenAWaiterGivesUp) {
  Fixture f(4, 4);
  ASSERT_EQ(f.plan.groups[0].hi_frame, f.plan.groups[2].hi_frame);
  f.scheduler->want(0);
  f.finish_all();
  ASSERT_TRUE(f.scheduler->ready(0));
  f.scheduler->want(2);
  f.finish_all();
  ASSERT_FALSE(f.scheduler->ready(2));
  f.scheduler->unwant(0);
  f.finish_all();
  EXPECT_TRUE(f.scheduler->ready(2));
}

TEST(Scheduler, FinishesUpdatesThatHoldFramesWhenTheTrainerTurnsElsewhere) {
  Fixture f(10, 10);
  ASSERT_EQ(f.plan.stream_state_frames, 2U);
  for (std::uint32_t block = 0; block < 10; ++block) f.give(block);
  f.finish_all();
  f.scheduler->step_ended(true, 1);
  f.scheduler->want(6);
  f.drain();
  f.scheduler->unwant(6);
  f.scheduler->want(1);  // its update needs a frame that an update further on holds
  f.finish_all();
  EXPECT_TRUE(f.scheduler->ready(1));
  EXPECT_EQ(f.scheduler->version(1), 1U);
}

TEST(Scheduler, NamesTheLeaseThatIsInTheWay) {
  Fixture f(4, 4);
  f.scheduler->want(0);
  f.finish_all();
  f.scheduler->lease(0);
  f.scheduler->want(2);
  f.finish_all();
  ASSERT_FALSE(f.scheduler->ready(2));
  EXPECT_EQ(f.scheduler->blocking_group(2), 0U);
  EXPECT_EQ(f.scheduler->blocking_group(1), kNone);
  f.scheduler->release(0);
  f.finish_all();
  EXPECT_TRUE(f.scheduler->ready(2));
}

TEST(Scheduler, ReportsCallsThatBreakAnInvariant) {
  Fixture released(2, 2);
  released.scheduler->release(0);
  EXPECT_NE(released.scheduler->broken(), nullptr);
  Fixture leased(2, 2);
  leased.scheduler->want(0);
  leased.scheduler->lease(0);  // not ready
  EXPECT_NE(leased.scheduler->broken(), nullptr);
  Fixture ended(2, 1);
  ended.give(1);
  ended.scheduler->step_ended(true, 1);
  ended.scheduler->step_ended(true, 2);  // not settled
  EXPECT_NE(ended.scheduler->broken(), nullptr);
}

}  // namespace
}  // namespace penstock
