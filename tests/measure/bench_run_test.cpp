// Method: short real runs in the temporary directory. What is there is checked, and that figures
// can be true of one run; never how fast anything is.

#include "measure/bench.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <set>

#include "measure/bench_json.hpp"
#include "measure/bench_words.hpp"
#include "measure/fio.hpp"
#include "measure/no_stop.hpp"
#include "temporary_directory.hpp"

namespace penstock {
namespace {

using testing::kNoStop;

class Quiet final : public BenchObserver {
 public:
  void on_note(std::string_view) override {}
  void on_progress(std::string_view) override {}
};

class BenchRunTest : public ::testing::Test {
 protected:
  BenchOptions options(BenchWhat what) const {
    BenchOptions options;
    options.what = what;
    if (what == BenchWhat::kIo || what == BenchWhat::kAll) options.paths = {directory_.path()};
    options.seconds = 4.0;
    options.grace_share = 50.0;  // a busy machine gets its one round done
    options.size_bytes = 64 << 20;
    return options;
  }
  static Result<BenchReport> run(const BenchOptions& options,
                                 const std::atomic<bool>& stop = kNoStop) {
    Quiet observer;
    return run_bench(options, observer, stop);
  }
  void TearDown() override {
    EXPECT_TRUE(std::filesystem::is_empty(directory_.path())) << "nothing stays behind";
  }
  testing::TemporaryDirectory directory_;
};

void expect_plausible(const BenchReport& report) {
  EXPECT_GE(report.rounds, 1U);
  std::set<std::string> names;
  for (const BenchRow& row : report.rows) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name << " is there twice";
    const Spread& rate = row.bytes_per_second;
    EXPECT_EQ(rate.count, report.rounds) << row.name;
    EXPECT_GT(rate.p10, 0.0) << row.name;
    EXPECT_LE(rate.p10, rate.median) << row.name;
    EXPECT_LE(rate.median, rate.p90) << row.name;
    EXPECT_LT(rate.median, 1e14) << row.name;
    EXPECT_GT(row.window_seconds, 0.0) << row.name;
    EXPECT_LE(row.p50_ns.median, row.p99_ns.median) << row.name;
    EXPECT_LE(row.p99_ns.median, row.p999_ns.median) << row.name;
    // fio's percentiles are ends of bins, which are up to 1.6 % wide.
    EXPECT_LE(row.p999_ns.median, 1.02 * static_cast<double>(row.max_ns)) << row.name;
    EXPECT_GE(row.read_share, 0.0) << row.name;
    EXPECT_LE(row.read_share, 1.0) << row.name;
  }
}

TEST_F(BenchRunTest, MeasuresDrivesWithEveryFigure) {
  const auto result = run(options(BenchWhat::kIo));
  ASSERT_TRUE(result) << result.error().message;
  const BenchReport& report = result.value();
  expect_plausible(report);
  for (const char* name :
       {kRowRead, kRowWrite, kRowMix, kRowReadBusy, kRowRandom4K, kRowRandom64K, kRowPipeline,
        kRowUpdate, kRowSmallWrite, kRowSmallRead, kRowSmallEach, kRowDemandIdle, kRowDemandLoad}) {
    ASSERT_NE(report.find(name), nullptr) << name;
  }
  const BenchRow& read = *report.find(kRowRead);
  EXPECT_EQ(read.read_share, 1.0);
  EXPECT_GT(read.cpu_seconds_per_gb.median, 0.0);
  EXPECT_GT(read.mean_depth, 0.0);
  EXPECT_LE(read.bytes_per_second.median, read.limit_bytes_per_second);
  EXPECT_EQ(report.find(kRowWrite)->read_share, 0.0);
  EXPECT_NEAR(report.find(kRowMix)->read_share, 0.5, 0.25);
  EXPECT_EQ(report.find(kRowMix)->ratios.size(), 1U);
  EXPECT_EQ(report.find(kRowPipeline)->ratios.size(), 1U);
  ASSERT_EQ(report.targets.size(), 1U);
  EXPECT_GE(report.targets[0].file_bytes, kLeastBenchBytes);
  EXPECT_LE(report.targets[0].file_bytes, std::uint64_t{64} << 20);
  EXPECT_FALSE(report.targets[0].device_id.empty());
  EXPECT_GT(report.first_write_bytes_per_second, 0.0);
  EXPECT_TRUE(parse_bench_report(to_json(report).dump(), "it"));
}

TEST_F(BenchRunTest, OneKindOfTransferAloneAndByThreads) {
  BenchOptions some = options(BenchWhat::kIo);
  some.rw = BenchRw::kWrite;
  some.backend = QueueBackend::kThreads;
  some.seconds = 2.0;
  some.block_bytes = 256 << 10;
  some.depth = 3;
  const auto result = run(some);
  ASSERT_TRUE(result) << result.error().message;
  expect_plausible(result.value());
  ASSERT_EQ(result.value().rows.size(), 1U);
  EXPECT_EQ(result.value().rows[0].name, kRowWrite);
  EXPECT_EQ(result.value().rows[0].block_bytes, 256U << 10);
  EXPECT_EQ(result.value().rows[0].depth, 3U);
  EXPECT_EQ(result.value().queue, "threads");
}

TEST_F(BenchRunTest, SeveralPathsHaveRatesOfTheirOwn) {
  BenchOptions two = options(BenchWhat::kIo);
  two.paths = {directory_.path(), directory_.path()};
  two.rw = BenchRw::kRead;
  two.seconds = 2.0;
  const auto result = run(two);
  ASSERT_TRUE(result) << result.error().message;
  ASSERT_EQ(result.value().rows.size(), 1U);
  const BenchRow& row = result.value().rows[0];
  ASSERT_EQ(row.drive_bytes_per_second.size(), 2U);
  EXPECT_GT(row.drive_bytes_per_second[0], 0.0);
  EXPECT_GT(row.drive_bytes_per_second[1], 0.0);
}

TEST_F(BenchRunTest, MeasuresMemoryAndSaysWhatIsNotThere) {
  BenchOptions all = options(BenchWhat::kAll);
  const auto result = run(all);
  ASSERT_TRUE(result) << result.error().message;
  const BenchReport& report = result.value();
  expect_plausible(report);
  EXPECT_NE(report.find("update traffic, memory, 1 thread"), nullptr);
  EXPECT_NE(report.find("read, L2, 1 thread"), nullptr);
  bool has_device_row = false, has_device_note = false, has_copy = false;
  for (const BenchRow& row : report.rows) {
    has_device_row |= row.name.find("device") != std::string::npos;
    has_copy |= row.name.starts_with("copy node");
  }
  for (const std::string& note : report.notes) {
    has_device_note |= note.find("CUDA") != std::string::npos;
  }
  EXPECT_TRUE(has_copy);
  EXPECT_NE(has_device_row, has_device_note) << "one or the other";
  EXPECT_FALSE(bench_words(report).empty());
}

TEST_F(BenchRunTest, FioWorksOnTheSameFileInTheSameRounds) {
  if (!find_fio()) GTEST_SKIP() << "fio is not installed; apt-get install fio";
  BenchOptions with_fio = options(BenchWhat::kIo);
  with_fio.rw = BenchRw::kMix;
  with_fio.with_fio = true;
  with_fio.seconds = 8.0;
  const auto result = run(with_fio);
  ASSERT_TRUE(result) << result.error().message;
  expect_plausible(result.value());
  for (const char* name : {kRowRead, kRowWrite, kRowMix}) {
    const BenchRow* const row = result.value().find(name);
    ASSERT_NE(row, nullptr);
    EXPECT_NE(result.value().find(std::string("fio ") + name), nullptr);
    ASSERT_FALSE(row->ratios.empty()) << name;
    EXPECT_EQ(row->ratios[0].to, "fio");
    EXPECT_EQ(row->ratios[0].ratio.count, result.value().rounds);
  }
}

TEST_F(BenchRunTest, BadPlacesAndShapesAreRefusedInOneSentence) {
  const testing::TemporaryDirectory other;
  const std::string file = other.path() + "/file";
  std::ofstream(file) << "x";
  const auto refused = [&](auto change, Errc code) {
    BenchOptions bad = options(BenchWhat::kIo);
    change(bad);
    const auto result = run(bad);
    if (result) return std::string("taken");
    EXPECT_EQ(result.error().code, code) << result.error().message;
    return result.error().message;
  };
  using O = BenchOptions;
  EXPECT_NE(refused([&](O& o) { o.paths = {other.path() + "/none"}; }, Errc::kArgument)
                .find("No such file"),
            std::string::npos);
  EXPECT_NE(refused([&](O& o) { o.paths = {file}; }, Errc::kArgument).find("not a file"),
            std::string::npos);
  EXPECT_NE(
      refused([](O& o) { o.size_bytes = std::uint64_t{1} << 60; }, Errc::kNoSpace).find("are free"),
      std::string::npos)
      << "exit code 3";
  EXPECT_NE(refused([](O& o) { o.size_bytes = 4096; }, Errc::kArgument).find("--depth 8"),
            std::string::npos);
  EXPECT_NE(refused([](O& o) { o.depth = 64; }, Errc::kArgument).find("--depth 64"),
            std::string::npos);
  EXPECT_NE(refused([](O& o) { o.block_bytes = 5000; }, Errc::kArgument).find("--block 5000"),
            std::string::npos);
}

TEST_F(BenchRunTest, StopsWhenAskedTo) {
  const std::atomic<bool> stop{true};
  const auto result = run(options(BenchWhat::kIo), stop);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Errc::kCancelled) << "exit code 130";
}

TEST_F(BenchRunTest, TooLittleTimeIsSaid) {
  BenchOptions hasty = options(BenchWhat::kIo);
  hasty.seconds = 0.3;
  hasty.grace_share = 0.0;
  const auto result = run(hasty);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("--time"), std::string::npos) << result.error().message;
}

}  // namespace
}  // namespace penstock
