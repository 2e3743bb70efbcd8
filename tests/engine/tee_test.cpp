// Copies of a commit in another store, made while the training goes on.

#include "base/counters.hpp"
#include "engine/training.hpp"

namespace penstock::testing {
namespace {

const char* const kCopy = "/sim/copy";

struct TeeCase {
  std::uint32_t commit_every = 1;
  int budget_percent = 0;
  Level level = Level::kWeights;
  bool lent = false;
};

class TeeTest : public ::testing::TestWithParam<TeeCase> {
 protected:
  static RunSetup setup() {
    const TeeCase& c = GetParam();
    RunSetup setup = simulated(c.commit_every, 1);
    setup.budget_percent = c.budget_percent;
    setup.level = c.level;
    setup.lent = c.lent;
    if (c.level == Level::kStates) setup.weights = c.lent ? WeightType::kBf16 : WeightType::kF32;
    return setup;
  }
};

TEST_P(TeeTest, IsAStoreOfItsOwnWithTheStateOfItsStep) {
  for (const std::uint64_t at : {1U, 2U, 4U, 6U, 7U, 9U}) {
    SCOPED_TRACE(at);
    Training training(setup());
    ASSERT_TRUE(training.open());
    training.run(script().steps.size(), [&](std::uint64_t step) {
      if (step == at) {
        const Status begun = training.engine().tee(kCopy);
        ASSERT_TRUE(begun) << begun.error().message;
      }
    });
    ASSERT_TRUE(training.engine().flush());
    const TeeReport report = training.engine().last_tee();
    EXPECT_EQ(report.state, TeeReport::State::kDone) << report.failure;
    EXPECT_EQ(report.step, at);
    training.close();
    training.expect_state(script().steps.size());
    training.expect_state(at, {}, kCopy);
    // It serves as a beginning, too.
    ASSERT_TRUE(training.open(kCopy));
    EXPECT_EQ(training.engine().step(), at);
    training.run(script().steps.size());
    training.close();
    training.expect_state(script().steps.size(), {}, kCopy);
    training.expect_state(script().steps.size());
  }
}

TEST_P(TeeTest, ReadsNothingThatTheNextSweepBringsBy) {
  std::uint64_t reads[2] = {};
  for (const bool with : {false, true}) {
    Training training(setup());
    ASSERT_TRUE(training.open());
    training.run(6, [&](std::uint64_t step) {
      if (with && step == 2) {
        ASSERT_TRUE(training.engine().tee(kCopy));
      }
    });
    const TrafficTable total = training.engine().counters().total();
    reads[with ? 1 : 0] = total.of(Link::kDriveRead).bytes;
    const std::uint64_t copied = total.of(Link::kDriveWrite, TrafficKind::kTee).bytes;
    if (with) {
      EXPECT_EQ(training.engine().last_tee().state, TeeReport::State::kDone);
      EXPECT_EQ(training.engine().last_tee().read_bytes, 0U);
      std::uint64_t elements = 0;
      for (const BlockPlan& block : training.engine().plan().blocks) elements += block.elements;
      EXPECT_EQ(copied, elements * (kHiBytes + kStateBytes)) << "each byte once";
    } else {
      EXPECT_EQ(copied, 0U);
    }
  }
  EXPECT_EQ(reads[0], reads[1]);
}

TEST_P(TeeTest, ThatFailsLeavesTheTrainingAlone) {
  Training training(setup());
  ASSERT_TRUE(training.open());
  training.run(2);
  SimFaults faults;
  faults.write_error = 65536;
  faults.only_in = std::string(kCopy) + "/data";
  ASSERT_TRUE(training.engine().tee(kCopy).ok());
  training.drive().set_faults(faults);
  training.run(script().steps.size());
  const TeeReport report = training.engine().last_tee();
  EXPECT_EQ(report.state, TeeReport::State::kFailed);
  EXPECT_NE(report.failure.find(kCopy), std::string::npos) << report.failure;
  training.close();
  training.drive().set_faults({});
  training.expect_state(script().steps.size());
  const auto copy = content_of(training.drive(), kCopy);
  ASSERT_FALSE(copy);
  EXPECT_NE(copy.error().message.find("did not finish"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Each, TeeTest,
                         ::testing::Values(TeeCase{1, 0}, TeeCase{1, 60}, TeeCase{3, 25},
                                           TeeCase{100, 100}, TeeCase{1, 0, Level::kStates},
                                           TeeCase{2, 50, Level::kStates, true}));

TEST(TeeRefusalTest, LeavesTheRunAsItWas) {
  Training training(simulated(1, 0));
  ASSERT_TRUE(training.open());
  training.run(1);
  EXPECT_EQ(training.engine().tee(kSimStore).error().code, Errc::kState) << "that is the store";
  EXPECT_FALSE(training.engine().tee("/nowhere/copy").ok());
  EXPECT_EQ(training.engine().last_tee().state, TeeReport::State::kNone);
  ASSERT_TRUE(training.engine().tee(kCopy).ok());
  training.run(3);
  EXPECT_EQ(training.engine().tee(kCopy).error().code, Errc::kState) << "it holds a store by now";
  training.run(script().steps.size());
  training.close();
  training.expect_state(1, {}, kCopy);
}

}  // namespace
}  // namespace penstock::testing
