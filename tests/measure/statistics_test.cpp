#include "measure/statistics.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace penstock {
namespace {

TEST(StatisticsTest, PercentilesLieBetweenTheTwoNearestValues) {
  const std::vector<double> values = {10, 20, 30, 40, 50};
  EXPECT_DOUBLE_EQ(percentile_of_sorted(values, 0.0), 10);
  EXPECT_DOUBLE_EQ(percentile_of_sorted(values, 0.5), 30);
  EXPECT_DOUBLE_EQ(percentile_of_sorted(values, 0.1), 14);
  EXPECT_DOUBLE_EQ(percentile_of_sorted(values, 1.0), 50);
  EXPECT_DOUBLE_EQ(percentile_of_sorted(values, 7.0), 50) << "a share beyond 1 is the largest";
}

TEST(StatisticsTest, NothingMeasuredIsZeroAndCountsNothing) {
  EXPECT_EQ(percentile_of_sorted({}, 0.5), 0.0);
  EXPECT_EQ(median({}), 0.0);
  EXPECT_EQ(spread_of({}).count, 0U);
  EXPECT_EQ(latency_of({}).count, 0U);
}

TEST(StatisticsTest, TheMedianNeedsNoOrder) {
  EXPECT_DOUBLE_EQ(median({9, 1, 5}), 5);
  EXPECT_DOUBLE_EQ(median({4, 1, 3, 2}), 2.5);
}

TEST(StatisticsTest, ASpreadHoldsTheMiddleAndBothEnds) {
  std::vector<double> values;
  for (int i = 100; i >= 0; --i) values.push_back(i);
  const Spread spread = spread_of(values);
  EXPECT_DOUBLE_EQ(spread.p10, 10);
  EXPECT_DOUBLE_EQ(spread.median, 50);
  EXPECT_DOUBLE_EQ(spread.p90, 90);
  EXPECT_EQ(spread.count, 101U);
}

// The machine is half as fast in rounds 2 and 3: both sides see it, and only the ratio stays.
TEST(StatisticsTest, RatiosAreTakenWithinARound) {
  const std::vector<double> a = {10, 5, 5.5}, b = {20, 10, 10};
  EXPECT_DOUBLE_EQ(spread_of_ratios(a, b).median, 0.5);
  EXPECT_DOUBLE_EQ(median(a) / median(b), 0.55) << "the ratio of medians is another number";
}

TEST(StatisticsTest, RoundsThatOneSideLacksHaveNoRatio) {
  const std::vector<double> a = {10, 0, 30}, b = {20, 10, 0};
  const Spread spread = spread_of_ratios(a, b);
  EXPECT_EQ(spread.count, 1U);
  EXPECT_DOUBLE_EQ(spread.median, 0.5);
}

TEST(StatisticsTest, LatenciesHaveTheirTail) {
  std::vector<double> samples;
  for (int i = 1; i <= 1001; ++i) samples.push_back(i);
  const Latency latency = latency_of(samples);
  EXPECT_DOUBLE_EQ(latency.p50_ns, 501);
  EXPECT_DOUBLE_EQ(latency.p99_ns, 991);
  EXPECT_DOUBLE_EQ(latency.p999_ns, 1000);
  EXPECT_DOUBLE_EQ(latency.max_ns, 1001);
  EXPECT_EQ(latency.count, 1001U);
}

TEST(StatisticsTest, AHalfDuplexDriveAddsTheTimesOfReadsAndWrites) {
  EXPECT_DOUBLE_EQ(harmonic_rate(0.5, 3.0, 6.0), 4.0);
  EXPECT_DOUBLE_EQ(harmonic_rate(1.0, 3.0, 0.0), 3.0) << "writes are not needed";
  EXPECT_DOUBLE_EQ(harmonic_rate(0.0, 0.0, 6.0), 6.0);
  EXPECT_EQ(harmonic_rate(0.5, 3.0, 0.0), 0.0) << "not known without the rate of writes";
}

TEST(StatisticsTest, AnOrderHasEachCaseOnceAndDiffersByRoundAndSeed) {
  std::set<std::vector<std::size_t>> orders;
  for (std::uint64_t round = 0; round < 20; ++round) {
    std::vector<std::size_t> order = shuffled_order(10, 1, round);
    EXPECT_EQ(order, shuffled_order(10, 1, round)) << "the seed decides";
    orders.insert(order);
    std::sort(order.begin(), order.end());
    for (std::size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], i);
  }
  EXPECT_GT(orders.size(), 15U);
  EXPECT_NE(shuffled_order(10, 1, 0), shuffled_order(10, 2, 0));
  EXPECT_TRUE(shuffled_order(0, 1, 0).empty());
}

}  // namespace
}  // namespace penstock
