// Random small plans, trainers and orders of completion against an independent oracle.

#include <gtest/gtest.h>

#include <cstdlib>

#include "plan/scheduler_trainer.hpp"

namespace penstock::testing {
namespace {

constexpr std::uint64_t kRuns = 4000;

/// PENSTOCK_MODEL_SEED=N runs only that seed.
TEST(SchedulerModel, KeepsEveryRuleInAnyOrderOfCompletion) {
  const char* only = std::getenv("PENSTOCK_MODEL_SEED");
  const std::uint64_t first = only == nullptr ? 1 : std::strtoull(only, nullptr, 10);
  const std::uint64_t last = only == nullptr ? kRuns : first;
  std::uint64_t updates = 0, commits = 0, reopened = 0, spilling = 0, pinned = 0;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    World world(seed);
    const std::string why = world.run();
    ASSERT_EQ(why, "") << "PENSTOCK_MODEL_SEED=" << seed << "; " << describe(world.plan());
    updates += world.given();
    commits += world.commits();
    reopened += world.reopened();
    spilling += world.plan().spill_count > 0 ? 1 : 0;
    pinned += world.plan().pinned_state_frames > 0 ? 1 : 0;
  }
  if (only != nullptr) return;
  // The runs are worth something only if they reach what they are about.
  EXPECT_GT(updates, 10 * kRuns);
  EXPECT_GT(commits, kRuns);
  EXPECT_GT(reopened, kRuns / 10);
  EXPECT_GT(spilling, kRuns / 4);
  EXPECT_GT(pinned, kRuns / 20);
}

}  // namespace
}  // namespace penstock::testing
