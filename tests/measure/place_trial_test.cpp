// Method: real directories; what a child process meets is also tried without one.

#include "measure/place_trial.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "base/units.hpp"
#include "measure/child.hpp"
#include "temporary_directory.hpp"

namespace penstock {
namespace {

namespace fs = std::filesystem;

TEST(ChildProcess, EndsWhenItsWorkDoes) {
  void* shared = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  const ChildEnd end = run_in_child(
      30'000'000'000, [](void* context) { *static_cast<pid_t*>(context) = ::getpid(); }, shared);
  EXPECT_EQ(end, ChildEnd::kDone);
  const pid_t child = *static_cast<pid_t*>(shared);
  EXPECT_NE(child, 0);
  EXPECT_NE(child, ::getpid()) << "it must be another process";
  EXPECT_EQ(::kill(child, 0), -1) << "nothing of it may be left";
  ::munmap(shared, 4096);
}

TEST(ChildProcess, IsLeftWhenItHangs) {
  const auto hang = [](void*) {
    for (;;) ::pause();
  };
  EXPECT_EQ(run_in_child(20'000'000, hang, nullptr), ChildEnd::kLate);
}

TEST(ChildProcess, MayDie) {
  const auto die = [](void*) { (void)::kill(::getpid(), SIGKILL); };
  EXPECT_EQ(run_in_child(30'000'000'000, die, nullptr), ChildEnd::kDied);
}

TEST(PlaceTrialTest, WritesAndReadsAndLeavesNothing) {
  const testing::TemporaryDirectory directory;
  const PlaceTrial trial = try_place(directory.path());
  ASSERT_EQ(trial.stage, TrialStage::kDone);
  EXPECT_TRUE(trial.is_directory);
  EXPECT_TRUE(trial.is_same);
  EXPECT_FALSE(trial.is_link);
  EXPECT_FALSE(trial.is_late);
  EXPECT_FALSE(trial.is_read_only);
  EXPECT_EQ(trial.mode, 0700U);
  EXPECT_EQ(trial.owner, ::geteuid());
  EXPECT_GT(trial.total_bytes, trial.free_bytes);
  struct stat facts {};
  ASSERT_EQ(::stat(directory.path().c_str(), &facts), 0);
  EXPECT_EQ(trial.inode, facts.st_ino);
  EXPECT_TRUE(fs::is_empty(directory.path()));
}

TEST(PlaceTrialTest, SaysWhatIsInTheWay) {
  const testing::TemporaryDirectory directory;
  const std::string path = directory.path();
  EXPECT_EQ(try_place(path + "/none").look_errno, ENOENT);
  std::ofstream(path + "/file") << "no directory";
  const PlaceTrial file = try_place(path + "/file");
  EXPECT_EQ(file.look_errno, 0);
  EXPECT_FALSE(file.is_directory);
  EXPECT_EQ(file.stage, TrialStage::kLook) << "nothing more is tried with it";
  EXPECT_EQ(try_place(path + "/file/below").look_errno, ENOTDIR);
  fs::create_directory_symlink(path, path + "/link");
  EXPECT_TRUE(try_place(path + "/link").is_link);
  EXPECT_TRUE(try_place(path + "/link").is_directory);
  const PlaceTrial proc = try_place("/proc/self");
  EXPECT_NE(proc.create_errno, 0);
  EXPECT_EQ(proc.stage, TrialStage::kCreate);
}

TEST(PlaceTrialTest, ALimitOfFileSizeIsAnErrorAndNotASignal) {
  const testing::TemporaryDirectory directory;
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit small = before;
  small.rlim_cur = 4096;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const PlaceTrial trial = try_place(directory.path());
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(trial.write_errno, EFBIG);
  EXPECT_EQ(trial.stage, TrialStage::kWrite);
  EXPECT_TRUE(fs::is_empty(directory.path()));
}

}  // namespace
}  // namespace penstock
