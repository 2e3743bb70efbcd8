#include "measure/bench_compare.hpp"

#include <gtest/gtest.h>

#include "measure/sample_report.hpp"

namespace penstock {
namespace {

using testing::around;
using testing::sample_report;
using Names = std::vector<std::string>;

BenchReport with_read(const Spread& rate) {
  BenchReport report = sample_report();
  report.rows[0].bytes_per_second = rate;
  return report;
}

Names regressed(const BenchReport& before, const BenchReport& now,
                double tolerance = kDefaultTolerance) {
  const auto comparison = compare_benches(before, now, tolerance);
  if (!comparison) return {comparison.error().message};
  Names names;
  for (const BenchChange* change : comparison.value().regressions()) {
    names.push_back(change->row + " " + change->figure);
  }
  return names;
}

std::string refused(const BenchReport& before, const BenchReport& now) {
  const auto comparison = compare_benches(before, now, kDefaultTolerance);
  if (comparison) return "not refused";
  EXPECT_EQ(comparison.error().code, Errc::kArgument) << "exit code 2";
  return comparison.error().message;
}

TEST(BenchCompareTest, TheSameReportHasNotRegressed) {
  EXPECT_EQ(regressed(sample_report(), sample_report()), Names());
}

TEST(BenchCompareTest, ADropBeyondToleranceAndNoiseIsNamed) {
  EXPECT_EQ(regressed(sample_report(), with_read(around(2.7e9))), Names{"read GB/s"});
}

TEST(BenchCompareTest, AGainIsNoRegression) {
  EXPECT_EQ(regressed(sample_report(), with_read(around(4e9))), Names());
}

TEST(BenchCompareTest, ADropWithinTheToleranceIsNone) {
  const BenchReport now = with_read(around(2.88e9, 0.001));
  EXPECT_EQ(regressed(sample_report(), now), Names()) << "4 %, though the spreads do not touch";
  EXPECT_EQ(regressed(sample_report(), now, 0.03), Names{"read GB/s"});
}

TEST(BenchCompareTest, ADropWithinTheNoiseOfEitherRunIsNone) {
  EXPECT_EQ(regressed(sample_report(), with_read(around(2.5e9, 0.25))), Names());
  EXPECT_EQ(regressed(with_read(around(3e9, 0.25)), with_read(around(2.5e9, 0.01))), Names());
}

TEST(BenchCompareTest, DemandReadsAreComparedByTheirTail) {
  BenchReport now = sample_report();
  now.rows[3].p99_ns = around(6e6);
  EXPECT_EQ(regressed(sample_report(), now), Names{"demand read, idle p99 us"});
  EXPECT_EQ(regressed(now, sample_report()), Names()) << "shorter is better";
  now = sample_report();
  now.rows[0].p99_ns = around(6e6);
  EXPECT_EQ(regressed(sample_report(), now), Names())
      << "at a fixed depth the latency says what the rate says";
}

TEST(BenchCompareTest, ChangesCarryBothSides) {
  const auto comparison = compare_benches(sample_report(), with_read(around(1.5e9)), 0.05);
  ASSERT_TRUE(comparison);
  const BenchChange& change = comparison.value().changes.front();
  EXPECT_DOUBLE_EQ(change.before.median, 3.0);
  EXPECT_DOUBLE_EQ(change.now.median, 1.5);
  EXPECT_DOUBLE_EQ(change.change, -0.5);
}

TEST(BenchCompareTest, AnotherDeviceOrFilesystemIsRefused) {
  BenchReport other = sample_report();
  other.targets[0].device_id = "nvme.2:1000";
  EXPECT_EQ(refused(other, sample_report()),
            "the reports cannot be compared: the device was nvme.2:1000 and is nvme.1:1000; "
            "compare with a report of the same");
  other = sample_report();
  other.targets[0].filesystem = "xfs";
  EXPECT_NE(refused(other, sample_report()).find("the filesystem was xfs"), std::string::npos);
  other = sample_report();
  other.targets[0].path = "/mnt/elsewhere";
  EXPECT_EQ(regressed(other, sample_report()), Names()) << "the same device at another place";
}

TEST(BenchCompareTest, AnotherShapeIsRefused) {
  BenchReport other = sample_report();
  other.rows[0].block_bytes = 4096;
  EXPECT_NE(refused(other, sample_report()).find("\"read\" the block was 4096"), std::string::npos);
  other = sample_report();
  other.rows[0].depth = 1;
  EXPECT_NE(refused(other, sample_report()).find("the depth was 1"), std::string::npos);
  other = sample_report();
  other.rows[0].threads = 3;
  EXPECT_NE(refused(other, sample_report()).find("number of threads was 3"), std::string::npos);
}

TEST(BenchCompareTest, AnotherProcessorIsRefusedWhereRowsAreOfIt) {
  BenchReport before = sample_report(), now = sample_report();
  now.processor = "Another";
  EXPECT_EQ(regressed(before, now), Names()) << "drives do not depend on it";
  before.rows[0].kind = now.rows[0].kind = "mem";
  EXPECT_NE(refused(before, now).find("the processor was A processor"), std::string::npos);
}

TEST(BenchCompareTest, WithoutKnownNoiseNothingIsCompared) {
  EXPECT_NE(refused(sample_report(), with_read(around(3e9, 0.0, 2))).find("2 rounds"),
            std::string::npos);
}

TEST(BenchCompareTest, RowsOfOneSideOnlyAreNamedAndNoCommonRowIsRefused) {
  BenchReport now = sample_report();
  now.rows.resize(1);
  const auto comparison = compare_benches(sample_report(), now, 0.05);
  ASSERT_TRUE(comparison);
  EXPECT_EQ(comparison.value().only_before, (Names{kRowWrite, kRowMix, kRowDemandIdle}));
  now.rows[0].name = "something else";
  EXPECT_NE(refused(sample_report(), now).find("no row in common"), std::string::npos);
}

}  // namespace
}  // namespace penstock
