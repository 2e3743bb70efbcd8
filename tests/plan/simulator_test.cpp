// The simulator against the closed forms of time and traffic.

#include "plan/simulator.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "plan/plan_requests.hpp"

namespace penstock {
namespace {

using testing::kPlenty;
using testing::kTile;

PlanRequest layers(std::uint32_t count, std::uint32_t tiles, Level level = Level::kWeights) {
  PlanRequest request = testing::layers(count, kTileElements * tiles, level);
  request.block_elements = kTile * 4;
  return request;
}

/// `percent` of the way from the least budget to everything in memory.
Plan plan_at(PlanRequest request, std::uint64_t percent) {
  request.host_bytes = kPlenty;
  const Plan everything = make_plan(request).value();
  const std::uint64_t least = everything.minimum_bytes;
  const std::uint64_t more = everything.host_bytes > least ? everything.host_bytes - least : 0;
  request.host_bytes = least + more * percent / 100;
  return make_plan(request).value();
}

constexpr double kRead = 5e9, kWrite = 2.5e9;

SimRates rates_of(double forward_visit, double backward_visit) {
  SimRates rates;
  rates.read_bytes_per_second = kRead;
  rates.write_bytes_per_second = kWrite;
  rates.forward_visit_seconds = forward_visit;
  rates.backward_visit_seconds = backward_visit;
  rates.update_seconds = 1e-6;
  rates.commit_seconds = 1e-4;
  return rates;
}

std::vector<SimStepReport> run(const Plan& plan, const SimRates& rates, std::size_t steps,
                               SimStep step = {}) {
  auto reports = simulate(plan, rates, std::vector<SimStep>(steps, step));
  EXPECT_TRUE(reports.ok()) << (reports.ok() ? "" : reports.error().message);
  return reports.ok() ? std::move(reports).value() : std::vector<SimStepReport>(steps);
}

/// Seconds of the drive's work in the forward and in the backward.
struct DriveTimes {
  double forward, backward;
};
DriveTimes drive_times(const Plan& plan) {
  const Plan::Traffic& t = plan.traffic;
  const auto seconds = [](std::uint64_t bytes, double rate) {
    return static_cast<double>(bytes) / rate;
  };
  const double hi_once = seconds(t.hi_read, kRead) / 2;
  return {hi_once + seconds(t.state_read + t.spill, kRead) +
              seconds(t.hi_write + t.state_write, kWrite),
          hi_once + seconds(t.spill, kWrite)};
}

TEST(Simulator, StepTakesTheLateUpdateTimeAndNeverLessThanThePhysicalBound) {
  struct Load {
    double forward, backward;  // the trainer's compute, as a multiple of the drive's work
  };
  const PlanRequest request = layers(48, 8);
  for (const std::uint64_t percent : {8U, 15U, 30U, 60U}) {
    const Plan plan = plan_at(request, percent);
    ASSERT_EQ(plan.stream_state_frames, 4U);
    const DriveTimes drive = drive_times(plan);
    for (const Load load : {Load{0.05, 0.05}, Load{0.5, 0.5}, Load{1, 1}, Load{2, 2}, Load{5, 5},
                            Load{0.2, 4}, Load{4, 0.2}}) {
      const double forward = load.forward * drive.forward;
      const double backward = load.backward * drive.backward;
      const double visits = static_cast<double>(plan.forward.size());
      const auto reports = run(plan, rates_of(forward / visits, backward / visits), 8);
      double seconds = 0.0;
      for (std::size_t i = 2; i < reports.size(); ++i) seconds += reports[i].seconds;
      seconds /= static_cast<double>(reports.size() - 2);
      const double late = std::max(forward, drive.forward) + std::max(backward, drive.backward);
      const double physical = std::max(forward + backward, drive.forward + drive.backward);
      EXPECT_LE(seconds, late * 1.05) << percent << " % " << load.forward << load.backward;
      EXPECT_GE(seconds, physical * 0.995) << percent << " % " << load.forward << load.backward;
    }
  }
}

TEST(Simulator, ComputeAloneTakesItsTimeWhereEverythingIsInMemory) {
  const Plan plan = plan_at(layers(10, 8), 100);
  SimRates rates = rates_of(1e-3, 2e-3);
  const auto reports = run(plan, rates, 4);
  for (std::size_t i = 2; i < reports.size(); ++i) {
    EXPECT_NEAR(reports[i].compute_seconds, 0.030, 1e-9);
    EXPECT_NEAR(reports[i].seconds, 0.030 + reports[i].waits.total(), 1e-9);
    EXPECT_LT(reports[i].waits.total(), 1e-4);  // the first updates, a microsecond each
    EXPECT_EQ(reports[i].bytes.read() + reports[i].bytes.written(), 0U);
    EXPECT_EQ(reports[i].updates, 20U);
  }
}

/// Bytes over some steps that begin and end at the same place of the pipeline.
SimBytes steady(const std::vector<SimStepReport>& reports, std::size_t first) {
  SimBytes sum;
  for (std::size_t i = first; i < reports.size(); ++i) {
    const SimBytes& b = reports[i].bytes;
    sum.hi_read += b.hi_read;
    sum.hi_write += b.hi_write;
    sum.state_read += b.state_read;
    sum.state_write += b.state_write;
    sum.spill_read += b.spill_read;
    sum.spill_write += b.spill_write;
    sum.ram_homed += b.ram_homed;
    EXPECT_EQ(b.spill_reopened, 0U);
  }
  return sum;
}

void expect_within(std::uint64_t bytes, std::uint64_t wanted, double share, const char* what) {
  EXPECT_LE(std::abs(static_cast<double>(bytes) - static_cast<double>(wanted)),
            share * static_cast<double>(wanted))
      << what << ": " << bytes << " instead of " << wanted;
}

/// The second step still reads what is at home in memory from then on: it does the first updates.
TEST(Simulator, MovesWhatThePlanSaysOncePinnedStatesAreThere) {
  std::mt19937 random(5);
  constexpr std::uint64_t kSteps = 40;
  for (int i = 0; i < 60; ++i) {
    const bool level1 = random() % 3 == 0;
    PlanRequest request = layers(2 + static_cast<std::uint32_t>(random() % 12), 8,
                                 level1 ? Level::kStates : Level::kWeights);
    for (GroupShape& group : request.groups) {
      if (random() % 4 == 0) group.elements = kTileElements * (1 + random() % 12);
      group.trainable = random() % 8 != 0;
      group.lent = level1 && random() % 2 == 0;
    }
    if (!level1 && random() % 3 == 0) {  // tied
      request.forward.push_back(0);
      request.backward.insert(request.backward.begin(), 0);
    }
    request.commit_every = static_cast<std::uint32_t>(random() % 3);
    const Plan plan = plan_at(request, random() % 101);
    const auto reports = run(plan, rates_of(1e-4, 2e-4), kSteps + 2);
    const SimBytes sum = steady(reports, 2);
    const Plan::Traffic& t = plan.traffic;
    expect_within(sum.hi_read, kSteps * t.hi_read, 0.03, "hi read");
    expect_within(sum.hi_write, kSteps * t.hi_write, 0.03, "hi written");
    expect_within(sum.state_read, kSteps * t.state_read, 0.03, "states read");
    expect_within(sum.state_write, kSteps * t.state_write, 0.03, "states written");
    expect_within(sum.spill_read, kSteps * t.spill, 0.03, "gradients read");
    expect_within(sum.spill_write, kSteps * t.spill, 0.03, "gradients spilled");
    if (plan.commit_every == 1) {
      expect_within(sum.ram_homed, kSteps * t.ram_homed, 0.03, "for commits");
    }
  }
}

TEST(Simulator, CommitsAtTheIntervalOfThePlanAndAtAFlush) {
  PlanRequest request = layers(6, 8);
  request.commit_every = 3;
  const Plan plan = plan_at(request, 20);
  std::vector<SimStep> script(10);
  script[9].flush = true;
  const auto reports = simulate(plan, rates_of(1e-4, 2e-4), script);
  ASSERT_TRUE(reports.ok());
  std::uint32_t commits = 0;
  for (const SimStepReport& report : reports.value()) commits += report.commits;
  EXPECT_EQ(commits, 4U);  // of the steps 3, 6, 9 and 10
  EXPECT_GE(reports.value()[9].commits, 1U);
  EXPECT_GT(reports.value()[9].waits.flush, 0.0);
}

TEST(Simulator, SkippedStepsAndSkippedGroupsAreNotUpdated) {
  PlanRequest request = layers(6, 8);
  const Plan plan = plan_at(request, 20);
  std::vector<SimStep> script(4);
  script[0].applied = false;
  script[1].skipped = {true, false, true};
  for (SimStep& step : script) step.flush = true;
  const auto made = simulate(plan, rates_of(1e-4, 2e-4), script);
  ASSERT_TRUE(made.ok());
  const auto& reports = made.value();
  EXPECT_EQ(reports[0].updates, 0U);
  EXPECT_EQ(reports[1].updates, 8U);
  EXPECT_EQ(reports[2].updates, 12U);
  EXPECT_EQ(reports[0].bytes.state_read + reports[0].bytes.state_write, 0U);
}

TEST(Simulator, AnEvaluationIsOneMoreForwardAndDoesTheUpdates) {
  const PlanRequest request = layers(12, 8);
  const Plan plan = plan_at(request, 10);
  const SimRates rates = rates_of(1e-4, 2e-4);
  SimStep evaluated;
  evaluated.evaluate = true;
  const auto without = run(plan, rates, 4), with = run(plan, rates, 4, evaluated);
  EXPECT_NEAR(with[3].compute_seconds, without[3].compute_seconds + 12e-4, 1e-9);
  EXPECT_GT(with[3].bytes.hi_read, without[3].bytes.hi_read);
  EXPECT_EQ(with[0].updates, 24U);  // all pending blocks, before the step is over
  EXPECT_LT(without[0].updates, 24U);
}

TEST(Simulator, LevelOneWaitsForUpdatesAndNeverForWeights) {
  PlanRequest request = layers(12, 8, Level::kStates);
  for (GroupShape& group : request.groups) group.lent = true;
  const Plan plan = plan_at(request, 10);
  const auto reports = run(plan, rates_of(1e-5, 1e-5), 4);
  EXPECT_EQ(reports[3].waits.weights, 0.0);
  EXPECT_GT(reports[3].waits.updates, 0.0);
  EXPECT_EQ(reports[3].updates, 24U);
}

TEST(Simulator, IsDeterministicAndAddsUp) {
  const Plan plan = plan_at(layers(12, 8), 15);
  const SimRates rates = rates_of(1e-4, 2e-4);
  const auto a = run(plan, rates, 5), b = run(plan, rates, 5);
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].seconds, b[i].seconds);
    EXPECT_EQ(a[i].bytes.read(), b[i].bytes.read());
    EXPECT_EQ(a[i].peak_in_flight, b[i].peak_in_flight);
    EXPECT_NEAR(a[i].seconds, a[i].compute_seconds + a[i].waits.total(), 1e-9);
    EXPECT_GT(a[i].peak_in_flight, 0U);
    EXPECT_LE(a[i].peak_in_flight, plan.blocks.size() * 8);
  }
}

TEST(Simulator, RefusesRatesThatMeanNothing) {
  const Plan plan = plan_at(layers(2, 4), 0);
  const auto message = [&](const SimRates& rates) {
    const auto made = simulate(plan, rates, std::vector<SimStep>(1));
    EXPECT_FALSE(made.ok());
    if (made.ok()) return std::string();
    EXPECT_EQ(made.error().code, Errc::kArgument);
    return made.error().message;
  };
  SimRates rates = rates_of(1, 1);
  rates.read_bytes_per_second = 0;
  EXPECT_NE(message(rates).find("read rate"), std::string::npos);
  rates = rates_of(1, 1);
  rates.write_bytes_per_second = std::nan("");
  EXPECT_NE(message(rates).find("write rate"), std::string::npos);
  EXPECT_NE(message(rates_of(-1, 1)).find("forward visit"), std::string::npos);
  EXPECT_NE(message(rates_of(1, HUGE_VAL)).find("backward visit"), std::string::npos);
}

}  // namespace
}  // namespace penstock
