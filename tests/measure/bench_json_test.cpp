#include "measure/bench_json.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>

#include "measure/bench_compare.hpp"
#include "measure/sample_report.hpp"
#include "temporary_directory.hpp"

namespace penstock {
namespace {

using nlohmann::json;
using testing::sample_report;

TEST(BenchJsonTest, GoesThereAndBack) {
  BenchReport report = sample_report();
  set_device_limits(report);
  const auto read = parse_bench_report(to_json(report).dump(), "old.json");
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read.value().rows.size(), report.rows.size());
  for (std::size_t i = 0; i < report.rows.size(); ++i) {
    const BenchRow &was = report.rows[i], &is = read.value().rows[i];
    EXPECT_EQ(is.name, was.name);
    EXPECT_NEAR(is.bytes_per_second.median, was.bytes_per_second.median, 1.0);
    EXPECT_NEAR(is.p99_ns.p90, was.p99_ns.p90, 1.0);
    EXPECT_EQ(is.ratios.size(), was.ratios.size());
  }
  const auto comparison = compare_benches(read.value(), report, 0.01);
  ASSERT_TRUE(comparison) << comparison.error().message;
  EXPECT_TRUE(comparison.value().regressions().empty());
}

TEST(BenchJsonTest, WhatWasNotMeasuredIsNull) {
  BenchReport report = sample_report();
  BenchRow& row = report.rows[0];
  row.cpu_seconds_per_gb = row.p50_ns = row.p99_ns = row.p999_ns = {};
  row.mean_depth = 0.0;
  const json value = to_json(report);
  const json& read = value.at("rows").at(0);
  for (const char* key : {"cpu_seconds_per_gb", "latency_us", "mean_depth", "limit"}) {
    EXPECT_TRUE(read.at(key).is_null()) << key;
  }
  EXPECT_TRUE(value.at("first_write_gb_per_second").is_null());
}

TEST(BenchJsonTest, NamesTheLimitAndWhoReachedIt) {
  BenchReport report = sample_report();
  report.rows.push_back(testing::io_row("fio read", 3.2, 1.0));
  report.rows.back().kind = "fio";
  report.rows.back().is_limit = true;
  set_device_limits(report);
  const json rows = to_json(report).at("rows");
  EXPECT_EQ(rows.at(0).at("limit").at("of"), "fio read") << "the best of the run";
  EXPECT_NEAR(rows.at(0).at("limit").at("share").get<double>(), 3.0 / 3.2, 1e-9);
  EXPECT_EQ(rows.at(2).at("limit").at("of"), "fio read and write in turn");
  EXPECT_NEAR(rows.at(2).at("limit").at("gb_per_second").get<double>(),
              1.0 / (0.5 / 3.2 + 0.5 / 6.0), 1e-9);
}

TEST(BenchJsonTest, RefusesWhatIsNoReport) {
  const auto message = [](const std::string& text) {
    const auto report = parse_bench_report(text, "old.json");
    if (report) return std::string("taken");
    EXPECT_EQ(report.error().code, Errc::kArgument) << "exit code 2";
    EXPECT_NE(report.error().message.find("\"old.json\""), std::string::npos);
    return report.error().message;
  };
  EXPECT_NE(message("").find("not one JSON object"), std::string::npos);
  EXPECT_NE(message("[]").find("not one JSON object"), std::string::npos);
  EXPECT_NE(message("{}").find("its schema is null"), std::string::npos);
  EXPECT_NE(message(R"({"schema":"penstock.bench/2"})").find("penstock.bench/2"),
            std::string::npos);
  EXPECT_NE(message(R"({"schema":"penstock.bench/1"})").find("not whole"), std::string::npos);
  json damaged = to_json(sample_report());
  damaged["rows"][0]["gb_per_second"] = "fast";
  EXPECT_NE(message(damaged.dump()).find("not whole"), std::string::npos);
}

TEST(BenchJsonTest, ReadsAFileAndSaysWhyNot) {
  const testing::TemporaryDirectory directory;
  const std::string path = directory.path() + "/old.json";
  EXPECT_NE(read_bench_report(path).error().message.find("No such file"), std::string::npos);
  std::ofstream(path) << to_json(sample_report());
  EXPECT_TRUE(read_bench_report(path));
  EXPECT_FALSE(read_bench_report(directory.path()));
}

}  // namespace
}  // namespace penstock
