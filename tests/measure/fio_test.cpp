#include "measure/fio.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "measure/no_stop.hpp"
#include "temporary_directory.hpp"

namespace penstock {
namespace {

using testing::kNoStop;

FioJob sample_job(FioPattern pattern) {
  FioJob job;
  job.pattern = pattern;
  job.descriptors = {7, 9};
  job.first_offset = 1 << 20;
  job.region_bytes = 8 << 20;
  job.block_bytes = 1 << 20;
  job.seconds = 0.5;
  job.ramp_seconds = 0.1;
  return job;
}

bool has(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// The part of fio 3.33's output that is read, of a job that reads.
constexpr const char* kOutput = R"(fio: a warning comes first
{"fio version": "fio-3.33", "jobs": [{"jobname": "read0", "error": 0,
  "read": {"io_bytes": 400000000, "bw_bytes": 2000000000, "runtime": 200,
    "lat_ns": {"min": 1, "max": 9000000, "mean": 4000000.0, "stddev": 1.0, "N": 381,
      "percentile": {"50.000000": 3900000, "99.000000": 7000000, "99.900000": 8000000}}},
  "write": {"io_bytes": 0, "bw_bytes": 0, "runtime": 0, "lat_ns": {"max": 0, "mean": 0.0, "N": 0}},
  "job_runtime": 200, "usr_cpu": 0.5, "sys_cpu": 1.5}]})";

TEST(FioTest, DoesTheSameRequestsOnInheritedFiles) {
  const auto words = fio_arguments(sample_job(FioPattern::kRead));
  for (const char* word :
       {"--ioengine=io_uring", "--direct=1", "--thread", "--fixedbufs=1", "--registerfiles=1",
        "--scramble_buffers=0", "--mem=mmap", "--runtime=400ms", "--ramp_time=100ms",
        "--filename=/proc/self/fd/7", "--filename=/proc/self/fd/9", "--rw=read", "--bs=1048576",
        "--iodepth=8", "--offset=1048576", "--size=8388608"}) {
    EXPECT_TRUE(has(words, word)) << word;
  }
  FioJob job = sample_job(FioPattern::kRead);
  job.hugetlb = true;
  EXPECT_TRUE(has(fio_arguments(job), "--mem=mmaphuge"));
}

TEST(FioTest, MixesWithTwoJobsOfHalfTheDepthInTwoPlaces) {
  const auto words = fio_arguments(sample_job(FioPattern::kReadWrite));
  EXPECT_TRUE(has(words, "--rw=read"));
  EXPECT_TRUE(has(words, "--rw=write"));
  EXPECT_TRUE(has(words, "--iodepth=4"));
  EXPECT_TRUE(has(words, "--offset=1048576"));
  EXPECT_TRUE(has(words, "--offset=5242880"));
}

TEST(FioTest, ReadsItsReport) {
  const auto figures = parse_fio(kOutput, sample_job(FioPattern::kRead));
  ASSERT_TRUE(figures) << figures.error().message;
  EXPECT_DOUBLE_EQ(figures.value().bytes_per_second, 2e9);
  EXPECT_DOUBLE_EQ(figures.value().read_share, 1.0);
  EXPECT_DOUBLE_EQ(figures.value().window_seconds, 0.2);
  EXPECT_DOUBLE_EQ(figures.value().latency.p99_ns, 7e6);
  EXPECT_NEAR(figures.value().cpu_seconds_per_gb, 0.02 * 0.2 / 0.4, 1e-12);
}

TEST(FioTest, RefusesAReportThatSaysNothing) {
  const std::string whole = kOutput;
  const std::size_t rate = whole.find("2000000000");
  const std::string idle = whole.substr(0, rate) + whole.substr(rate + 9);  // a rate of 0
  for (const std::string& output : {std::string(), std::string("no JSON"), std::string("{}"),
                                    std::string("{\"jobs\": [{}]}"), idle}) {
    const auto figures = parse_fio(output, sample_job(FioPattern::kRead));
    ASSERT_FALSE(figures) << output;
    EXPECT_EQ(figures.error().code, Errc::kCorrupt);
  }
}

/// A program in place of fio.
class FakeFioTest : public ::testing::Test {
 protected:
  std::string program(const std::string& script) {
    const std::string path = directory_.path() + "/fio";
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    EXPECT_EQ(::chmod(path.c_str(), 0700), 0);
    return path;
  }
  FioJob job() {
    FioJob job = sample_job(FioPattern::kRead);
    job.descriptors.clear();
    return job;
  }
  testing::TemporaryDirectory directory_;
};

TEST_F(FakeFioTest, WhatItSaysWhenItFailsIsShown) {
  const auto figures =
      run_fio(program("echo 'fio: engine io_uring not loadable'; exit 1"), job(), kNoStop);
  ASSERT_FALSE(figures);
  EXPECT_NE(figures.error().message.find("engine io_uring not loadable"), std::string::npos)
      << figures.error().message;
}

TEST_F(FakeFioTest, IsEndedWhenTheUserStops) {
  const std::atomic<bool> stop{true};
  const auto figures = run_fio(program("exec sleep 600"), job(), stop);
  ASSERT_FALSE(figures);
  EXPECT_EQ(figures.error().code, Errc::kCancelled);
}

TEST_F(FakeFioTest, InheritsFilesThatHaveNoNameAnyMore) {
  const std::string file = directory_.path() + "/data";
  std::ofstream(file) << "hello";
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(descriptor, 0);
  ASSERT_EQ(::unlink(file.c_str()), 0);
  FioJob one = job();
  one.descriptors = {descriptor};
  const auto figures = run_fio(
      program("for word; do case $word in --filename=*) cat \"${word#*=}\";; esac; done; exit 1"),
      one, kNoStop);
  ::close(descriptor);
  ASSERT_FALSE(figures);
  EXPECT_NE(figures.error().message.find("hello"), std::string::npos) << figures.error().message;
}

TEST_F(FakeFioTest, WhereItIsNotInstalledTheRemedyIsNamed) {
  const char* path = std::getenv("PATH");
  const std::string before = path == nullptr ? "" : path;
  ASSERT_EQ(::setenv("PATH", directory_.path().c_str(), 1), 0);
  const auto missing = find_fio();
  program("true");
  const auto found = find_fio();
  ASSERT_EQ(::setenv("PATH", before.c_str(), 1), 0);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Errc::kUnsupported) << "exit code 3";
  EXPECT_NE(missing.error().message.find("apt-get install fio"), std::string::npos);
  ASSERT_TRUE(found);
  EXPECT_EQ(found.value(), directory_.path() + "/fio");
}

}  // namespace
}  // namespace penstock
