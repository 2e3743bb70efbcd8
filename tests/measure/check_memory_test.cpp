// Method: a machine's /proc and /sys are files of the test's own; the arenas are real.

#include "measure/check_memory.hpp"

#include <gtest/gtest.h>
#include <sys/prctl.h>

#include "base/units.hpp"
#include "topo/fake_system.hpp"

namespace penstock {
namespace {

MemoryFacts plenty() {
  MemoryFacts facts;
  facts.total_bytes = 64 * kGiB;
  facts.available_bytes = 60 * kGiB;
  return facts;
}

TEST(MemoryCheck, ReadsMeminfoAndTheControlGroup) {
  const testing::FakeSystem system;
  system.write("proc/meminfo",
               "MemTotal:       65536 kB\nMemFree:  1 kB\nMemAvailable:   32768 kB\n"
               "SwapTotal:  1024 kB\nSwapFree:  1000 kB\nHugePages_Total:       0\n");
  system.write("proc/self/mountinfo", "30 23 0:26 / /groups rw - cgroup2 cgroup2 rw\n");
  system.write("proc/self/cgroup", "0::/job\n");
  system.write("groups/job/memory.max", "1048576\n");
  const MemoryFacts facts = read_memory_facts(system.files(), system.files().proc.parent_path());
  EXPECT_EQ(facts.total_bytes, 64 * kMiB);
  EXPECT_EQ(facts.available_bytes, 32 * kMiB);
  EXPECT_EQ(facts.swap_used_bytes, 24 * kKiB);
  ASSERT_TRUE(facts.group);
  EXPECT_EQ(facts.group->limit_bytes, kMiB);
}

TEST(MemoryCheck, EveryEnd) {
  EXPECT_EQ(check_memory(plenty()).status, CheckStatus::kOk);
  EXPECT_EQ(check_memory(MemoryFacts()).status, CheckStatus::kWarn) << "not readable";

  MemoryFacts facts = plenty();
  facts.available_bytes = kGiB / 2;
  EXPECT_EQ(check_memory(facts).status, CheckStatus::kWarn);
  facts.available_bytes = kMiB;
  EXPECT_EQ(check_memory(facts).status, CheckStatus::kFail);

  facts = plenty();
  facts.swap_used_bytes = kGiB;
  Check check = check_memory(facts);
  EXPECT_EQ(check.status, CheckStatus::kWarn);
  EXPECT_NE(check.why.find("1 GiB are swapped out"), std::string::npos) << check.why;

  facts = plenty();
  facts.group = MemoryLimit{256 * kMiB, 250 * kMiB};
  check = check_memory(facts);
  EXPECT_EQ(check.status, CheckStatus::kFail);
  EXPECT_NE(check.why.find("control group leaves 6 MiB (limit 256 MiB)"), std::string::npos);
  EXPECT_NE(check.fix.find("docker run --memory"), std::string::npos);
  facts.group = MemoryLimit{128 * kGiB, 0};
  EXPECT_EQ(check_memory(facts).status, CheckStatus::kOk) << "a limit above what there is";
}

TEST(HugePageCheck, EveryEnd) {
  HugePageFacts facts;
  facts.asked_bytes = facts.huge_bytes.value() = 64 * kMiB;
  EXPECT_EQ(check_huge_pages(facts).status, CheckStatus::kOk);

  facts.huge_bytes.value() = 2 * kMiB;
  const auto fix = [&] {
    const Check check = check_huge_pages(facts);
    EXPECT_EQ(check.status, CheckStatus::kWarn);
    EXPECT_NE(check.why.find("2 MiB of 64 MiB"), std::string::npos) << check.why;
    EXPECT_NE(check.cost.find("2 to 2.8 times"), std::string::npos);
    return check.fix;
  };
  EXPECT_NE(fix().find("CONFIG_TRANSPARENT_HUGEPAGE"), std::string::npos);
  facts.setting = "always madvise [never]";
  EXPECT_NE(fix().find("echo madvise"), std::string::npos);
  facts.setting = "always [madvise] never";
  EXPECT_NE(fix().find("compact_memory"), std::string::npos);
  facts.disabled_here = true;
  EXPECT_NE(fix().find("PR_SET_THP_DISABLE"), std::string::npos);

  facts.huge_bytes = make_error(Errc::kNoMemory, "arena \"doctor\": no memory");
  EXPECT_EQ(check_huge_pages(facts).status, CheckStatus::kFail);
}

TEST(HugePageCheck, SeesWhatThisProcessIsDenied) {
  const testing::FakeSystem system;
  system.write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  ByteBudget budget("host", 8 * kMiB);
  ASSERT_EQ(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
  const Result<Arena> arena = Arena::create(budget, "test", 4 * kMiB);
  const HugePageFacts facts = read_huge_page_facts(arena, 4 * kMiB, system.files());
  ASSERT_EQ(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0), 0);
  EXPECT_TRUE(facts.disabled_here);
  EXPECT_EQ(facts.setting, "always [madvise] never");
  ASSERT_TRUE(facts.huge_bytes);
  EXPECT_EQ(facts.huge_bytes.value(), 0U);
  EXPECT_NE(check_huge_pages(facts).why.find("switched off for this process"), std::string::npos);
}

TEST(LimitCheck, EveryEnd) {
  const auto status = [](const LimitFacts& facts) { return check_limits(facts).status; };
  EXPECT_EQ(status({}), CheckStatus::kOk);
  EXPECT_EQ(status({.open_files = 1024}), CheckStatus::kOk);
  EXPECT_EQ(status({.open_files = 32}), CheckStatus::kWarn);
  EXPECT_EQ(status({.open_files = 8}), CheckStatus::kFail);
  EXPECT_EQ(status({.file_bytes = 24'000'000'000}), CheckStatus::kWarn);
  EXPECT_EQ(status({.file_bytes = kMiB}), CheckStatus::kFail);
  EXPECT_EQ(status({.address_bytes = 8 * kGiB}), CheckStatus::kWarn);
  EXPECT_EQ(status({.address_bytes = 512 * kMiB}), CheckStatus::kFail);
  const Check check = check_limits({.file_bytes = 24'000'000'000});
  EXPECT_NE(check.cost.find("more than 1000 M parameters"), std::string::npos) << check.cost;
  EXPECT_EQ(check.fix, "ulimit -f unlimited");
}

}  // namespace
}  // namespace penstock
