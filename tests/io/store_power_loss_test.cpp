// Method: a small training-like workload runs on a simulated drive, or on several, with writes in
// flight while a commit is made and checkpoints come and go. After every operation of the drives
// several power losses are taken; what is left is opened and read in full. It must be a step that
// was committed, at least the newest acknowledged one, with its blob and every byte of every
// section, and with exactly the checkpoints that were made and not dropped; a sample goes back to
// one, and goes on. Likewise for a process that is killed while its writes are in flight, and for a
// drive that loses and misdirects writes, where a block may be refused but never be wrong. Then the
// same harness runs with each rule of the protocol broken on purpose, and must notice.
//
// PENSTOCK_POWER_LOSS_IMAGES sets how many images are opened (default 20,000; half of them
// under a sanitizer), PENSTOCK_POWER_LOSS_SEED where the seeds begin.

#include <gtest/gtest.h>

#include <cstdlib>

#include "io/power_loss_world.hpp"
#include "sanitizers.hpp"

namespace penstock::test {
namespace {

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  const std::uint64_t value = text != nullptr ? std::strtoull(text, nullptr, 10) : 0;
  return value != 0 ? value : otherwise;
}

std::uint64_t wanted_images() {
  return from_environment("PENSTOCK_POWER_LOSS_IMAGES", testing::fewer_if_sanitized(20000, 2));
}

/// Runs worlds until so many images were opened, or, with `stop_at_bad`, one was bad.
Verdict run_worlds(WorldSetup setup, std::uint64_t images, bool stop_at_bad) {
  Verdict verdict;
  const std::uint64_t first = from_environment("PENSTOCK_POWER_LOSS_SEED", 1);
  for (std::uint64_t seed = first; verdict.images < images; ++seed) {
    setup.seed = seed * 2 + setup.interval;
    World(setup, images, verdict).run();
    if (::testing::Test::HasFatalFailure() || (stop_at_bad && verdict.bad != 0)) break;
  }
  return verdict;
}

class StorePowerLossTest : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(StorePowerLossTest, LeavesTheNewestAcknowledgedStepOrALaterOneExactly) {
  const std::uint64_t images = std::max<std::uint64_t>(wanted_images() / 2, 1);
  WorldSetup setup;
  setup.interval = GetParam();
  const Verdict verdict = run_worlds(setup, images, false);
  EXPECT_EQ(verdict.bad, 0U) << verdict.first;
  EXPECT_EQ(verdict.images, images);
  EXPECT_GT(verdict.committed, verdict.images / 2) << "most images must be of a store in use";
  EXPECT_GT(verdict.with_pins, verdict.images / 8);
  RecordProperty("images", static_cast<int>(verdict.images));
}

TEST_P(StorePowerLossTest, ADeadProcessesWritesAreWaitedFor) {
  WorldSetup setup;
  setup.end = WorldSetup::End::kKill;
  setup.interval = GetParam();
  setup.images_per_operation = 1;
  const Verdict verdict =
      run_worlds(setup, std::max<std::uint64_t>(wanted_images() / 20, 1), false);
  EXPECT_EQ(verdict.bad, 0U) << verdict.first;
  EXPECT_GT(verdict.busy, verdict.images / 4) << "writes must have been in flight";
}

TEST_P(StorePowerLossTest, LostAndMisdirectedWritesAreNeverTakenForData) {
  WorldSetup setup;
  setup.cheating_drive = true;
  setup.interval = GetParam();
  setup.images_per_operation = 1;
  const Verdict verdict =
      run_worlds(setup, std::max<std::uint64_t>(wanted_images() / 10, 1), false);
  EXPECT_EQ(verdict.bad, 0U) << verdict.first;
  EXPECT_GT(verdict.detected, verdict.images / 8) << "the drive must have cheated";
}

INSTANTIATE_TEST_SUITE_P(CommitInterval, StorePowerLossTest, ::testing::Values(1, 2));

// Few images of each of many worlds: what matters is that a world does what the rule is about.
constexpr std::uint64_t kImagesToFindAFault = 20000;

struct FaultCase {
  const char* name;
  bool ProtocolFaults::*fault;
  WorldSetup::End end = WorldSetup::End::kPowerLoss;
  bool cheating_drive = false;
};

class StoreProtocolFaultTest : public ::testing::TestWithParam<FaultCase> {};

TEST_P(StoreProtocolFaultTest, IsFound) {
  const FaultCase& c = GetParam();
  for (const std::uint64_t interval : {std::uint64_t{1}, std::uint64_t{2}}) {
    WorldSetup setup;
    setup.end = c.end;
    setup.cheating_drive = c.cheating_drive;
    setup.interval = interval;
    setup.images_per_operation = 1;
    setup.faults.*c.fault = true;
    const Verdict verdict = run_worlds(setup, kImagesToFindAFault, true);
    EXPECT_GT(verdict.bad, 0U) << "K = " << interval << ", " << verdict.images << " images";
    RecordProperty("found", verdict.first);
    if (std::getenv("PENSTOCK_VERBOSE") != nullptr) {
      std::printf("K = %d, image %d: %s\n", static_cast<int>(interval),
                  static_cast<int>(verdict.images), verdict.first.c_str());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    EachRule, StoreProtocolFaultTest,
    ::testing::Values(
        FaultCase{"skip_data_flush", &ProtocolFaults::skip_data_flush},
        FaultCase{"reuse_slot_early", &ProtocolFaults::reuse_slot_early},
        FaultCase{"overwrite_base", &ProtocolFaults::overwrite_base},
        FaultCase{"skip_directory_sync", &ProtocolFaults::skip_directory_sync},
        FaultCase{"reuse_pinned_slot", &ProtocolFaults::reuse_pinned_slot},
        FaultCase{"drop_early", &ProtocolFaults::drop_early},
        FaultCase{"prefer_stale_manifest", &ProtocolFaults::prefer_stale_manifest},
        FaultCase{"sums_inside", &ProtocolFaults::sums_inside, WorldSetup::End::kPowerLoss, true},
        FaultCase{"lock_wrong_file", &ProtocolFaults::lock_wrong_file, WorldSetup::End::kKill}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace penstock::test
