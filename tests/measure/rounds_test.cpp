#include "measure/rounds.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "base/clock.hpp"
#include "measure/no_stop.hpp"

namespace penstock {
namespace {

using testing::kNoStop;

constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

class NoObserver final : public BenchObserver {
 public:
  void on_note(std::string_view) override {}
  void on_progress(std::string_view text) override { texts.emplace_back(text); }
  std::vector<std::string> texts;
};

BenchCase counting_case(const std::string& name, std::vector<std::string>& log) {
  BenchCase made;
  made.row.name = name;
  made.run = [name, &log](double seconds) -> Result<RoundFigures> {
    log.push_back(name);
    RoundFigures figures;
    figures.bytes_per_second = static_cast<double>(log.size());
    figures.window_seconds = seconds;
    return figures;
  };
  return made;
}

TEST(RoundPlanTest, FitsTheWantedRoundsIntoTheTime) {
  const RoundPlan plan = plan_rounds(30.0, 10, 0.0);
  EXPECT_EQ(plan.rounds, kWantedRounds);
  EXPECT_NEAR(plan.slice_seconds, 30.0 / 90, 1e-9);
}

TEST(RoundPlanTest, WithLittleTimeRoundsBecomeFewer) {
  const RoundPlan plan = plan_rounds(2.0, 10, 0.0);
  EXPECT_DOUBLE_EQ(plan.slice_seconds, kShortestSlice);
  EXPECT_EQ(plan.rounds, 4U);
  EXPECT_EQ(plan_rounds(0.1, 10, 0.0).rounds, 0U) << "not one fits";
}

TEST(RoundPlanTest, WithMuchTimeRoundsBecomeMore) {
  const RoundPlan plan = plan_rounds(300.0, 10, 0.0);
  EXPECT_DOUBLE_EQ(plan.slice_seconds, kLongestSlice);
  EXPECT_EQ(plan.rounds, 30U);
}

TEST(RoundPlanTest, CountsWhatCasesTakeBesideTheirSlices) {
  const RoundPlan plan = plan_rounds(90.0, 10, 5.0);
  EXPECT_EQ(plan.rounds, kWantedRounds);
  EXPECT_NEAR(plan.slice_seconds, 0.5, 1e-9);
}

TEST(RoundsTest, EachCaseIsRunOnceARound) {
  std::vector<std::string> log;
  const std::vector<BenchCase> cases = {counting_case("a", log), counting_case("b", log),
                                        counting_case("c", log)};
  NoObserver observer;
  const auto results = run_rounds(cases, {now_ns() + 60'000'000'000, 0, 5}, observer, kNoStop);
  ASSERT_TRUE(results) << results.error().message;
  const std::size_t rounds = results.value().plan.rounds;
  EXPECT_GE(rounds, kWantedRounds);
  ASSERT_EQ(log.size(), 3 * rounds);
  for (std::size_t round = 0; round < rounds; ++round) {
    std::map<std::string, int> seen;
    for (std::size_t i = 0; i < 3; ++i) ++seen[log[3 * round + i]];
    EXPECT_EQ(seen.size(), 3U) << "round " << round;
    const std::vector<std::size_t> order = shuffled_order(3, 5, round);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(log[3 * round + i], cases[order[i]].row.name);
      // The figure is the case's place in the log: it belongs to this case and round.
      EXPECT_EQ(results.value().figures[order[i]][round].bytes_per_second,
                static_cast<double>(3 * round + i + 1));
    }
  }
  EXPECT_EQ(observer.texts.size(), log.size());
}

TEST(RoundsTest, TheFirstFailureEndsTheRun) {
  std::vector<std::string> log;
  BenchCase failing;
  failing.row.name = "broken";
  failing.run = [](double) -> Result<RoundFigures> {
    return make_error(Errc::kIo, "the drive is gone");
  };
  const std::vector<BenchCase> cases = {counting_case("a", log), failing};
  NoObserver observer;
  const auto results = run_rounds(cases, {kNever, 0, 1}, observer, kNoStop);
  ASSERT_FALSE(results);
  EXPECT_EQ(results.error().code, Errc::kIo);
  EXPECT_EQ(results.error().message, "measuring \"broken\": the drive is gone");
  EXPECT_LE(log.size(), 1U);
}

TEST(RoundsTest, StopsWhenAskedTo) {
  std::vector<std::string> log;
  NoObserver observer;
  const std::atomic<bool> stop{true};
  const auto results = run_rounds({counting_case("a", log)}, {kNever, 0, 1}, observer, stop);
  ASSERT_FALSE(results);
  EXPECT_EQ(results.error().code, Errc::kCancelled);
  EXPECT_TRUE(log.empty());
}

TEST(RoundsTest, TooLittleTimeIsRefusedWithWhatWouldDo) {
  std::vector<std::string> log;
  NoObserver observer;
  const auto results = run_rounds({counting_case("a", log)}, {now_ns(), 0, 1}, observer, kNoStop);
  ASSERT_FALSE(results);
  EXPECT_EQ(results.error().code, Errc::kArgument);
  EXPECT_NE(results.error().message.find("--time"), std::string::npos);
  EXPECT_TRUE(log.empty());
}

TEST(RoundsTest, ARoundThatPassesTheDeadlineIsGivenUpAndDoesNotCount) {
  std::vector<std::string> log;
  const std::uint64_t deadline_ns = now_ns() + 200'000'000;
  // The first round is on time; a case of the second sleeps past the deadline.
  std::vector<BenchCase> cases;
  for (const char* name : {"a", "b"}) {
    BenchCase made = counting_case(name, log);
    made.run = [&log, deadline_ns, count = made.run](double seconds) -> Result<RoundFigures> {
      while (log.size() == 2 && now_ns() <= deadline_ns) {
      }
      return count(seconds);
    };
    cases.push_back(std::move(made));
  }
  NoObserver observer;
  const auto results = run_rounds(cases, {deadline_ns, 0, 1}, observer, kNoStop);
  if (!results) GTEST_SKIP() << "the machine was too busy for the first round; run it again";
  EXPECT_EQ(results.value().plan.rounds, 1U);
  EXPECT_EQ(log.size(), 3U) << "the rest of the second round is left out";
}

TEST(RoundsTest, TheFirstRoundHasAGrace) {
  std::vector<std::string> log;
  const std::uint64_t deadline_ns = now_ns() + 200'000'000;
  BenchCase slow = counting_case("slow", log);
  slow.run = [deadline_ns, count = slow.run](double seconds) {
    while (now_ns() <= deadline_ns) {
    }
    return count(seconds);
  };
  const std::vector<BenchCase> cases = {slow, slow};
  NoObserver observer;
  const auto results = run_rounds(cases, {deadline_ns, 600'000'000'000, 1}, observer, kNoStop);
  ASSERT_TRUE(results) << results.error().message;
  EXPECT_EQ(results.value().plan.rounds, 1U);
}

TEST(RowTest, HoldsMediansOfTheRoundsAndTheWorstOfAll) {
  BenchCase of;
  of.row.name = "read";
  std::vector<RoundFigures> rounds;
  for (int i = 1; i <= 3; ++i) {
    RoundFigures figures;
    figures.bytes_per_second = 100.0 * i;
    figures.read_share = 1.0;
    figures.latency = latency_of({10.0 * i, 20.0 * i, 30.0 * i});
    figures.drive_bytes_per_second = {30.0 * i, 70.0 * i};
    rounds.push_back(figures);
  }
  const BenchRow row = row_of(of, rounds);
  EXPECT_DOUBLE_EQ(row.bytes_per_second.median, 200);
  EXPECT_DOUBLE_EQ(row.p50_ns.median, 40);
  EXPECT_DOUBLE_EQ(row.max_ns, 90);
  EXPECT_EQ(row.drive_bytes_per_second, (std::vector<double>{60, 140}));
  EXPECT_EQ(row.cpu_seconds_per_gb.count, 0U) << "zeros mean that it was not measured";
}

}  // namespace
}  // namespace penstock
