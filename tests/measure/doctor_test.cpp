// Method: the whole examination, on this machine and directories of the test's own.

#include "measure/doctor.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "temporary_directory.hpp"

namespace penstock {
namespace {

const Check* find(const std::vector<Check>& checks, const std::string& name) {
  const auto it = std::find_if(checks.begin(), checks.end(),
                               [&](const Check& check) { return check.name == name; });
  return it == checks.end() ? nullptr : &*it;
}

DoctorOptions options(std::vector<std::string> paths) {
  DoctorOptions result;
  result.paths = std::move(paths);
  result.probe = false;
  // This machine's own libraries are not the test's to judge.
  result.libraries = {"libpenstock-none.so", "libpenstock-none.so", {"libpenstock-none.so"}};
  return result;
}

TEST(Doctor, ExaminesMachineAndDirectory) {
  const testing::TemporaryDirectory directory;
  std::vector<std::string> reported;
  DoctorOptions asked = options({directory.path()});
  asked.report = [&](const Check& check) { reported.push_back(check.name); };
  const auto checks = run_doctor(asked);
  ASSERT_TRUE(checks) << checks.error().message;
  std::vector<std::string> names;
  for (const Check& check : checks.value()) names.push_back(check.name);
  EXPECT_EQ(names, (std::vector<std::string>{"io_uring", "locked memory", "huge pages", "memory",
                                             "limits", "cores", "instructions", "CUDA", "NCCL",
                                             "MPI", "directory", "filesystem", "direct I/O",
                                             "space", "drive", "profile", "speed"}));
  EXPECT_EQ(reported, names) << "each is said as soon as it is known";
  EXPECT_EQ(find(checks.value(), "directory")->status, CheckStatus::kOk);
  EXPECT_EQ(find(checks.value(), "speed")->status, CheckStatus::kSkip);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(Doctor, RefusesWhatIsNoDirectory) {
  const testing::TemporaryDirectory directory;
  const std::string file = directory.path() + "/file";
  std::ofstream(file) << "text";
  for (const std::string& wrong : {directory.path() + "/none", file, file + "/below"}) {
    bool was_said = false;
    DoctorOptions asked = options({directory.path(), wrong});
    asked.report = [&](const Check&) { was_said = true; };
    const auto checks = run_doctor(asked);
    ASSERT_FALSE(checks) << wrong;
    EXPECT_EQ(checks.error().code, Errc::kArgument);
    EXPECT_NE(checks.error().message.find(wrong), std::string::npos) << checks.error().message;
    EXPECT_FALSE(was_said) << "nothing is said before it is known that all are there";
  }
}

TEST(Doctor, ADirectoryGivenTwiceIsExaminedOnce) {
  const testing::TemporaryDirectory directory;
  const auto checks = run_doctor(options({directory.path(), directory.path() + "/."}));
  ASSERT_TRUE(checks);
  const Check* repeated = find(checks.value(), "repeated");
  ASSERT_NE(repeated, nullptr);
  EXPECT_EQ(repeated->status, CheckStatus::kWarn);
  EXPECT_EQ(std::count_if(checks.value().begin(), checks.value().end(),
                          [](const Check& check) { return check.name == "directory"; }),
            1);
}

TEST(Doctor, TwoDirectoriesOnOneDriveCountOnce) {
  const testing::TemporaryDirectory a, b;
  const auto checks = run_doctor(options({a.path(), b.path()}));
  ASSERT_TRUE(checks);
  if (find(checks.value(), "drive")->status == CheckStatus::kSkip) {
    GTEST_SKIP() << "temporary files have no drive here; set TMPDIR to a directory on one";
  }
  ASSERT_NE(find(checks.value(), "shared drives"), nullptr);
  EXPECT_EQ(find(checks.value(), "shared drives")->status, CheckStatus::kWarn);
}

TEST(Doctor, StopsWhenAsked) {
  const testing::TemporaryDirectory directory;
  const std::atomic<bool> stop{true};
  DoctorOptions asked = options({directory.path()});
  asked.stop = &stop;
  const auto checks = run_doctor(asked);
  ASSERT_FALSE(checks);
  EXPECT_EQ(checks.error().code, Errc::kCancelled);
}

TEST(CheckSummaryTest, SaysWhetherATrainingCanRun) {
  std::vector<Check> checks(2);
  checks[0].name = "io_uring";
  checks[1].name = "space";
  checks[1].path = "/mnt/a";
  EXPECT_EQ(summarize_checks(checks).ok, 2U);
  EXPECT_NE(summarize_checks(checks).text.find("nothing that was checked"), std::string::npos);
  checks[0].status = CheckStatus::kWarn;
  EXPECT_EQ(summarize_checks(checks).text,
            "A training can run; it would run better without the warnings: io_uring.");
  checks[1].status = CheckStatus::kFail;
  const CheckSummary summary = summarize_checks(checks);
  EXPECT_EQ(summary.text, "A training cannot run like this: space (/mnt/a) failed.");
  EXPECT_EQ(summary.warnings, 1U);
  EXPECT_EQ(summary.failures, 1U);
}

}  // namespace
}  // namespace penstock
