// Checkpoints of a running engine: exactly the state of their step, whatever happens afterwards,
// and without a byte more on the drive.

#include "base/counters.hpp"
#include "engine/training.hpp"

namespace penstock::testing {
namespace {

using Names = std::vector<std::string>;

class CheckpointTest : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(CheckpointTest, HoldTheStateOfTheirStep) {
  Training training(simulated(GetParam(), 3));
  ASSERT_TRUE(training.open());
  training.run(script().steps.size(), [&](std::uint64_t step) {
    if (step == 2 || step == 4 || step == 7) {
      ASSERT_TRUE(training.engine().checkpoint({"at-" + std::to_string(step), 1}));
    }
  });
  training.close();
  for (const std::uint64_t step : {2U, 4U, 7U}) {
    training.expect_state(step, "at-" + std::to_string(step));
  }
  training.expect_state(script().steps.size());
}

TEST_P(CheckpointTest, WriteNothingButManifests) {
  std::uint64_t bytes[2] = {};
  for (const bool with : {false, true}) {
    Training training(simulated(1, 2));
    ASSERT_TRUE(training.open());
    training.run(script().steps.size(), [&](std::uint64_t step) {
      if (with && step % 3 == 0) {
        ASSERT_TRUE(training.engine().checkpoint({"", 2}));
      }
    });
    bytes[with ? 1 : 0] = training.engine().counters().total().of(Link::kDriveWrite).bytes;
    training.close();
  }
  EXPECT_EQ(bytes[0], bytes[1]);
}

TEST_P(CheckpointTest, RotateAndGoOnAfterARestart) {
  Training training(simulated(GetParam(), 2));
  ASSERT_TRUE(training.open());
  const auto rotate = [&](std::uint64_t) { ASSERT_TRUE(training.engine().checkpoint({"", 2})); };
  training.run(5, rotate);
  training.close();
  training.expect_state(4, "step-4");
  training.expect_state(5, "step-5");
  ASSERT_TRUE(training.open());
  EXPECT_EQ(training.names(), (Names{"step-4", "step-5"}));
  training.run(script().steps.size(), rotate);
  training.close();
  training.expect_state(8, "step-8");
  training.expect_state(9, "step-9");
  training.expect_state(9);
  EXPECT_EQ(list_pins(training.drive(), kSimStore).value().size(), 2U);
}

TEST_P(CheckpointTest, CanBeGoneBackTo) {
  Training training(simulated(GetParam(), 1));
  ASSERT_TRUE(training.open());
  training.run(3);
  ASSERT_TRUE(training.engine().checkpoint({"three", 1}));
  training.run(7);
  training.close();
  ASSERT_TRUE(restore_pin(training.drive(), kSimStore, "three"));
  training.expect_state(3);
  ASSERT_TRUE(training.open());
  EXPECT_EQ(training.engine().step(), 3U);
  EXPECT_EQ(training.engine().updates(), reference().updates_after[2]);
  training.run(script().steps.size());
  training.close();
  training.expect_state(script().steps.size());
  training.expect_state(3, "three");
}

TEST_P(CheckpointTest, OfACommittedStepAreMadeAtOnceAndDroppedOnesFreeTheirSlots) {
  Training training(simulated(GetParam(), 1));
  ASSERT_TRUE(training.open());
  training.run(2);
  ASSERT_TRUE(training.engine().flush());
  ASSERT_TRUE(training.engine().checkpoint({"two", 1}));
  EXPECT_EQ(training.names(), Names{"two"});
  training.expect_state(2, "two");
  training.run(4);
  ASSERT_TRUE(training.engine().drop_checkpoint("two"));
  EXPECT_TRUE(training.names().empty());
  EXPECT_EQ(training.engine().drop_checkpoint("two").error().code, Errc::kState);
  ASSERT_TRUE(training.engine().checkpoint({"four", 1}));
  training.run(script().steps.size());
  training.close();
  training.expect_state(4, "four");
  training.expect_state(script().steps.size());
}

INSTANTIATE_TEST_SUITE_P(CommitInterval, CheckpointTest, ::testing::Values(1, 3, 100));

TEST(CheckpointRefusalTest, LeavesTheRunAsItWas) {
  Training training(simulated(2, 1));
  ASSERT_TRUE(training.open());
  EXPECT_EQ(training.engine().checkpoint_room(), 1U);
  training.run(1);
  EXPECT_EQ(training.engine().checkpoint({"a/b", 1}).error().code, Errc::kArgument);
  ASSERT_TRUE(training.engine().checkpoint({"one", 1}));
  training.run(2);
  EXPECT_EQ(training.engine().checkpoint({"one", 1}).error().code, Errc::kState);
  EXPECT_EQ(training.engine().checkpoint({"two", 1}).error().code, Errc::kNoSpace);
  EXPECT_EQ(training.engine().checkpoint({"", 1}).error().code, Errc::kNoSpace)
      << "only \"one\" could make room, and it is not a rotation's";
  training.run(3);  // not committed by itself
  const Status refused = training.engine().checkpoint({"", 1});
  EXPECT_NE(refused.error().message.find("\"step-3\""), std::string::npos)
      << "the step it was asked for: " << refused.error().message;
  ASSERT_TRUE(training.engine().step_begin());
  EXPECT_EQ(training.engine().checkpoint({"three", 1}).error().code, Errc::kState);
  ASSERT_TRUE(training.engine().step_skip({}));
  EXPECT_TRUE(training.engine().error());
  RunSetup scratch = simulated(0, 1);
  scratch.scratch = true;
  Training without(scratch);
  ASSERT_TRUE(without.open());
  EXPECT_EQ(without.engine().checkpoint({"x", 1}).error().code, Errc::kState);
}

TEST(DrivesTest, SpreadTheSameBits) {
  for (const std::size_t drives : {2U, 3U}) {
    RunSetup setup = simulated(1, 0);
    setup.drives = drives;
    World world(setup);
    EXPECT_EQ(finish_script(*world.sim, world.timeline, setup, script(), reference()), "");
    for (std::size_t i = 0; i < drives; ++i) {
      std::string directory(kSimStore);
      if (i > 0) directory.append("-").append(std::to_string(i));
      EXPECT_TRUE(world.sim->exists(directory + "/data." + std::to_string(i)).value());
    }
  }
}

// A trainer that asks for more checkpoints than it can use in one step gets each of them.
TEST(CheckpointRefusalTest, SeveralOfOneStepAreOneState) {
  Training training(simulated(1, 3));
  ASSERT_TRUE(training.open());
  training.run(3);
  for (const char* name : {"x", "y", "z"}) {
    ASSERT_TRUE(training.engine().checkpoint({name, 1}));
  }
  training.run(script().steps.size());
  training.close();
  for (const char* name : {"x", "y", "z"}) training.expect_state(3, name);
}

}  // namespace
}  // namespace penstock::testing
