#include "measure/bench_words.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "measure/mem_cases.hpp"
#include "measure/sample_report.hpp"

namespace penstock {
namespace {

using testing::around;
using testing::io_row;
using testing::sample_report;

bool says(const std::vector<std::string>& lines, const std::string& part) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return line.find(part) != std::string::npos; });
}

TEST(BenchWordsTest, SaysWhatTheDriveCanDoAndWhatAStepTakes) {
  const auto lines = bench_words(sample_report());
  EXPECT_TRUE(says(lines,
                   "The drive can read 3 GB/s and write 6 GB/s; doing both at once, 4 GB/s "
                   "in all"));
  // 12 GB / 3 GB/s + 12 GB / 6 GB/s
  EXPECT_TRUE(says(lines,
                   "A step that streams 1B parameters moves 12 GB each way: at least 6.0 s "
                   "by this drive"));
}

TEST(BenchWordsTest, SaysWhichOfDriveAndMemoryLimitsAStep) {
  BenchReport report = sample_report();
  BenchRow row = io_row(mem_row_name(kLoopUpdate, kLevelMemory, 2), 26.0, 0.0);
  row.kind = "mem";
  report.rows.push_back(row);
  EXPECT_TRUE(says(bench_words(report),
                   "1.0 s of memory traffic for the update (the drive limits "
                   "it)"));
  report.rows.back().bytes_per_second = around(2.6e9);
  EXPECT_TRUE(says(bench_words(report),
                   "10.0 s of memory traffic for the update (memory limits "
                   "it)"));
}

TEST(BenchWordsTest, SaysNothingOfWhatWasNotMeasured) {
  BenchReport report = sample_report();
  report.rows.clear();
  EXPECT_TRUE(bench_words(report).empty());
  report = sample_report();
  report.rows.erase(report.rows.begin() + 1);  // no writes
  EXPECT_FALSE(says(bench_words(report), "step"));
  EXPECT_FALSE(says(bench_words(report), "0.0 s"));
}

TEST(BenchWordsTest, NamesPlainPagesAndThreads) {
  BenchReport report = sample_report();
  EXPECT_FALSE(says(bench_words(report), "4 KiB pages"));
  report.buffer_bytes = 64 << 20;
  report.huge_buffer_bytes = 2 << 20;
  report.queue = "threads";
  report.queue_reason = "the kernel refuses io_uring";
  const auto lines = bench_words(report);
  EXPECT_TRUE(says(lines, "4 KiB pages instead of huge ones (2 MiB of 64 MiB are huge)"));
  EXPECT_TRUE(says(lines, "threads instead of io_uring: the kernel refuses io_uring"));
}

}  // namespace
}  // namespace penstock
