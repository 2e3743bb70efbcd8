// Method: each test writes the few files that a process sees of its cgroups into a directory.

#include "topo/cgroup.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <string>

namespace penstock {
namespace {

namespace fs = std::filesystem;

class CgroupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string path = ::testing::TempDir() + "penstock_cgroup_XXXXXX";
    ASSERT_NE(mkdtemp(path.data()), nullptr);
    root_ = path;
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& content) {
    const fs::path file = root_ / path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << content;
  }
  [[nodiscard]] std::optional<double> quota() const {
    return read_cpu_quota(root_ / "proc", root_);
  }

  static constexpr const char* kV2Mount =
      "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
  static constexpr const char* kV1Mount =
      "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw shared:5 - cgroup cgroup rw,cpu,cpuacct\n";

  fs::path root_;
};

TEST_F(CgroupTest, ReadsVersion2) {
  write("proc/mountinfo", kV2Mount);
  write("proc/cgroup", "0::/user.slice/job\n");
  write("sys/fs/cgroup/user.slice/job/cpu.max", "150000 100000\n");
  EXPECT_EQ(quota(), 1.5);
}

TEST_F(CgroupTest, ReadsVersion1) {
  write("proc/mountinfo", kV1Mount);
  write("proc/cgroup", "5:memory:/other\n4:cpu,cpuacct:/job\n0::/\n");
  write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "300000\n");
  write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "50000\n");
  EXPECT_EQ(quota(), 6.0);
}

TEST_F(CgroupTest, TakesTheSmallestOnTheWayToTheRoot) {
  write("proc/mountinfo", kV2Mount);
  write("proc/cgroup", "0::/a/b/c\n");
  write("sys/fs/cgroup/a/cpu.max", "400000 100000\n");
  write("sys/fs/cgroup/a/b/cpu.max", "250000 100000\n");
  write("sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/a/b/c/d/cpu.max", "100000 100000\n");  // not ours
  write("sys/fs/cgroup/a/x/cpu.max", "100000 100000\n");      // not ours
  EXPECT_EQ(quota(), 2.5);
}

TEST_F(CgroupTest, TakesTheSmallestOfBothVersions) {
  write("proc/mountinfo", std::string("31 23 0:28 / /sys rw - tmpfs tmpfs rw\n") + kV1Mount +
                              "40 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  write("proc/cgroup", "1:cpu,cpuacct:/one\n0::/two\n");
  write("sys/fs/cgroup/cpu,cpuacct/one/cpu.cfs_quota_us", "800000\n");
  write("sys/fs/cgroup/cpu,cpuacct/one/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/unified/two/cpu.max", "700000 100000\n");
  EXPECT_EQ(quota(), 7.0);
}

// A container without a cgroup namespace: /proc names the whole path, the mount shows only its end.
TEST_F(CgroupTest, FollowsAMountThatShowsAPartOfTheTree) {
  write("proc/mountinfo", "30 23 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
  write("proc/cgroup", "0::/docker/abc/inner\n");
  write("sys/fs/cgroup/cpu.max", "300000 100000\n");
  write("sys/fs/cgroup/inner/cpu.max", "200000 100000\n");
  EXPECT_EQ(quota(), 2.0);
  write("proc/cgroup", "0::/docker/abc\n");
  EXPECT_EQ(quota(), 3.0);
  write("proc/cgroup", "0::/../elsewhere\n");
  write("sys/fs/elsewhere/cpu.max", "100000 100000\n");
  EXPECT_EQ(quota(), 3.0) << "a path out of the mount is not followed";
}

TEST_F(CgroupTest, NoQuotaIsNone) {
  EXPECT_EQ(quota(), std::nullopt) << "no files at all";
  write("proc/mountinfo", std::string(kV1Mount) + kV2Mount);
  write("proc/cgroup", "4:cpu,cpuacct:/job\n0::/job\n");
  EXPECT_EQ(quota(), std::nullopt) << "no limit files";
  write("sys/fs/cgroup/job/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), std::nullopt);
}

TEST_F(CgroupTest, FindsTheMemoryLimitThatLeavesLeast) {
  const auto limit = [this] { return read_memory_limit(root_ / "proc", root_); };
  EXPECT_FALSE(limit()) << "no files at all";
  write("proc/mountinfo",
        std::string("33 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n") +
            "40 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  write("proc/cgroup", "3:memory:/job/one\n0::/two\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/unified/two/memory.max", "max\n");
  EXPECT_FALSE(limit()) << "both say that there is none";
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1000000\n");
  write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "300000\n");
  ASSERT_TRUE(limit());
  EXPECT_EQ(limit()->limit_bytes, 1'000'000U);
  EXPECT_EQ(limit()->left_bytes(), 700'000U);
  write("sys/fs/cgroup/unified/two/memory.max", "2000000\n");
  write("sys/fs/cgroup/unified/two/memory.current", "1900000\n");
  EXPECT_EQ(limit()->left_bytes(), 100'000U) << "the larger limit, but nearly used up";
  write("sys/fs/cgroup/unified/two/memory.current", "2100000\n");
  EXPECT_EQ(limit()->left_bytes(), 0U);
  write("sys/fs/cgroup/unified/two/memory.current", "no number");
  EXPECT_EQ(limit()->left_bytes(), 700'000U);
}

TEST_F(CgroupTest, GarbageIsNone) {
  write("proc/mountinfo",
        std::string("\n - \nx y z - cgroup2\n30 23 0:26 / /c rw - cgroup cgroup rw,cpuset\n") +
            kV2Mount);
  write("proc/cgroup", "\n:\nnonsense\n0::/job\n");
  for (const char* content : {"", "abc", "100000", "100000 0", "-5 100000", "0 100000", "\n\n"}) {
    write("sys/fs/cgroup/job/cpu.max", content);
    EXPECT_EQ(quota(), std::nullopt) << '"' << content << '"';
  }
}

}  // namespace
}  // namespace penstock
