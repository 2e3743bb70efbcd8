#include "mem/arena.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <vector>

#include "base/memory_facts.hpp"
#include "base/units.hpp"

namespace penstock {
namespace {

using testing::is_mapped;
using testing::vm_flags;

class ArenaTest : public ::testing::Test {
 protected:
  ByteBudget budget_{"host", 64 * kMiB};

  Arena make(std::uint64_t bytes, ArenaOptions options = {}) {
    Result<Arena> arena = Arena::create(budget_, "test", bytes, options);
    EXPECT_TRUE(arena.ok()) << arena.error().message;
    return std::move(arena).value();
  }
};

bool all_zero(const std::byte* data, std::uint64_t bytes) {
  return std::all_of(data, data + bytes, [](std::byte b) { return b == std::byte{0}; });
}

TEST_F(ArenaTest, IsAlignedZeroResidentAndExactlyAccounted) {
  for (const ArenaOptions options : {ArenaOptions{}, ArenaOptions{.huge_pages = false},
                                     ArenaOptions{.populate_syscall = false}}) {
    const Arena arena = make(3 * kMiB, options);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena.data()) % kHugePageBytes, 0U);
    EXPECT_EQ(arena.bytes(), 4 * kMiB);
    EXPECT_EQ(budget_.used_bytes(), 4 * kMiB);
    std::vector<unsigned char> resident(arena.bytes() / 4096);
    ASSERT_EQ(mincore(arena.data(), arena.bytes(), resident.data()), 0);
    EXPECT_EQ(std::count_if(resident.begin(), resident.end(), [](auto r) { return (r & 1) != 0; }),
              static_cast<std::ptrdiff_t>(resident.size()));
    EXPECT_TRUE(all_zero(arena.data(), arena.bytes()));
    std::memset(arena.data(), 0xAB, arena.bytes());
  }
  EXPECT_EQ(budget_.used_bytes(), 0U);
}

TEST_F(ArenaTest, TakesMemoryOfANodeOrSaysWhyNot) {
  const Arena near = make(2 * kMiB, {.node = 0});
  EXPECT_EQ(near.note().find("far"), std::string::npos) << near.note();
  std::ifstream maps("/proc/self/numa_maps");
  std::stringstream address;
  address << std::hex << reinterpret_cast<std::uintptr_t>(near.data()) << ' ';
  std::string line;
  bool found = !maps.is_open();  // a kernel without NUMA has no such file
  while (std::getline(maps, line)) {
    if (line.rfind(address.str(), 0) != 0) continue;
    found = true;
    const bool bound =
        line.find(" prefer") != std::string::npos || line.find(" bind:0") != std::string::npos;
    EXPECT_TRUE(bound) << line;
  }
  EXPECT_TRUE(found);
  const Arena far = make(2 * kMiB, {.node = 4000});
  EXPECT_NE(far.note().find("NUMA node 4000"), std::string::npos) << far.note();
  EXPECT_TRUE(all_zero(far.data(), far.bytes()));
}

TEST_F(ArenaTest, SaysWhenPagesAreNotHuge) {
  const Arena huge = make(4 * kMiB);
  // Whether this machine gives huge pages is not ours to demand; that the note is true is.
  EXPECT_EQ(huge.note().empty(), huge.huge_bytes() == huge.bytes()) << huge.note();
  EXPECT_LE(huge.huge_bytes(), huge.bytes());
  const Arena plain = make(4 * kMiB, ArenaOptions{.huge_pages = false});
  EXPECT_EQ(plain.huge_bytes(), 0U);
  EXPECT_NE(plain.note().find("4 KiB pages were asked for"), std::string::npos) << plain.note();
}

TEST_F(ArenaTest, GetsHugePagesWhereTheSystemGivesThem) {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string setting;
  std::getline(file, setting);
  if (setting.find("[never]") != std::string::npos || setting.empty()) {
    GTEST_SKIP() << "transparent huge pages are off (\"" << setting
                 << "\"): write madvise to /sys/kernel/mm/transparent_hugepage/enabled";
  }
  const Arena arena = make(8 * kMiB);
  if (arena.huge_bytes() == 0) {
    GTEST_SKIP() << "the kernel has no free 2 MiB page now: " << arena.note();
  }
  EXPECT_EQ(arena.huge_bytes() % kHugePageBytes, 0U);
}

TEST_F(ArenaTest, FramesLieBackToBackOn4KiB) {
  Arena arena = make(2 * kMiB);
  const Frame first = arena.frame("hi.0", 1).value();
  const Frame empty = arena.frame("none", 0).value();
  const Frame second = arena.frame("lo.0", 4097).value();
  EXPECT_EQ(first.data, arena.data());
  EXPECT_EQ(first.bytes, 4096U);
  EXPECT_EQ(empty.bytes, 0U);
  EXPECT_EQ(second.data, arena.data() + 4096);
  EXPECT_EQ(second.bytes, 8192U);
  EXPECT_EQ(second.span().size(), 8192U);
  EXPECT_EQ(arena.used_bytes(), 12288U);
  ASSERT_EQ(arena.frames().size(), 3U);
  EXPECT_EQ(arena.frames()[2].name, "lo.0");
  EXPECT_EQ(arena.frames()[2].frame.data, second.data);
}

TEST_F(ArenaTest, RefusesAFrameThatDoesNotFitWithNumbers) {
  Arena arena = make(2 * kMiB);
  ASSERT_TRUE(arena.frame("most", 2 * kMiB - 4096).ok());
  for (const std::uint64_t bytes : {std::uint64_t{4097}, 4 * kMiB, ~std::uint64_t{0}}) {
    const Result<Frame> refused = arena.frame("late", bytes);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Errc::kNoMemory);
    for (const std::string& part : {std::string("late"), std::string("test"), std::to_string(bytes),
                                    std::to_string(2 * kMiB - 4096), std::to_string(2 * kMiB),
                                    std::string("4096 are free")}) {
      EXPECT_NE(refused.error().message.find(part), std::string::npos)
          << part << " is missing in: " << refused.error().message;
    }
  }
  EXPECT_TRUE(arena.frame("last", 4096).ok()) << "a refusal takes nothing";
  EXPECT_FALSE(arena.frame("over", 1).ok());
  EXPECT_EQ(arena.used_bytes(), arena.bytes());
}

TEST_F(ArenaTest, RespectsItsBudget) {
  const Arena held = make(60 * kMiB);
  const Result<Arena> refused = Arena::create(budget_, "second", 4 * kMiB + 1);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::kNoMemory);
  EXPECT_NE(refused.error().message.find("second"), std::string::npos) << refused.error().message;
  EXPECT_EQ(budget_.used_bytes(), 60 * kMiB);
  EXPECT_TRUE(Arena::create(budget_, "third", 4 * kMiB).ok());
}

TEST(ArenaLimitsTest, ReportsWhatTheSystemRefuses) {
  ByteBudget endless("host", ~std::uint64_t{0});
  // More than the 47 bits of address space of a process; then more than we round up safely.
  for (const std::uint64_t bytes : {std::uint64_t{1} << 52, ~std::uint64_t{0}}) {
    const Result<Arena> refused = Arena::create(endless, "impossible", bytes);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Errc::kNoMemory);
    EXPECT_NE(refused.error().message.find("impossible"), std::string::npos);
    EXPECT_EQ(endless.used_bytes(), 0U) << "a failed arena holds no budget";
  }
}

TEST_F(ArenaTest, MayBeEmpty) {
  Arena arena = make(0);
  EXPECT_EQ(arena.bytes(), 0U);
  EXPECT_TRUE(arena.note().empty());
  EXPECT_TRUE(arena.frame("none", 0).ok());
  EXPECT_FALSE(arena.frame("some", 1).ok());
}

TEST_F(ArenaTest, MovesWithItsFrames) {
  Arena first = make(2 * kMiB);
  const Frame frame = first.frame("a", 4096).value();
  Arena second = std::move(first);
  EXPECT_EQ(second.data(), frame.data);
  EXPECT_EQ(second.used_bytes(), 4096U);
  EXPECT_EQ(first.bytes(), 0U);  // NOLINT(bugprone-use-after-move): that it is empty is the claim
  EXPECT_FALSE(first.frame("b", 1).ok());
  EXPECT_EQ(budget_.used_bytes(), 2 * kMiB);
  std::memset(frame.data, 1, frame.bytes);
}

TEST_F(ArenaTest, EndsInUnmappedSpaceAndUnmapsItself) {
  const std::byte* begin = nullptr;
  {
    const Arena arena = make(2 * kMiB);
    begin = arena.data();
    EXPECT_TRUE(is_mapped(begin));
    EXPECT_TRUE(is_mapped(begin + arena.bytes() - 1));
    EXPECT_FALSE(is_mapped(begin - 1));
    EXPECT_FALSE(is_mapped(begin + arena.bytes()));
  }
  EXPECT_FALSE(is_mapped(begin));
}

TEST_F(ArenaTest, IsLeftOutOfChildrenAndCoreDumps) {
  const Arena arena = make(2 * kMiB);
  ASSERT_TRUE(is_mapped(arena.data()));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(is_mapped(arena.data()) ? 1 : 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "the child sees the arena";

  const std::string flags = vm_flags(arena.data());
  if (flags.empty()) {
    GTEST_SKIP() << "/proc/self/smaps has no VmFlags here (needs CONFIG_PROC_PAGE_MONITOR): core "
                    "dumps unchecked";
  }
  EXPECT_NE(flags.find(" dd "), std::string::npos) << "no MADV_DONTDUMP in:" << flags;
  EXPECT_NE(flags.find(" dc "), std::string::npos) << "no MADV_DONTFORK in:" << flags;
}

}  // namespace
}  // namespace penstock
