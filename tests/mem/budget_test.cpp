#include "mem/budget.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <thread>
#include <vector>

namespace penstock {
namespace {

using Takes = std::vector<std::pair<std::string, std::uint64_t>>;

TEST(ByteBudgetTest, GrantsUpToTheLimitAndNotOneByteMore) {
  ByteBudget budget("host", 1000);
  Result<Reservation> first = budget.take("states", 600);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(budget.free_bytes(), 400U);
  EXPECT_FALSE(budget.take("gradients", 401).ok());
  EXPECT_EQ(budget.used_bytes(), 600U) << "a refused take takes nothing";
  Result<Reservation> second = budget.take("gradients", 400);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(budget.free_bytes(), 0U);
  EXPECT_FALSE(budget.take("one more", 1).ok());
  EXPECT_TRUE(budget.take("nothing", 0).ok());
  EXPECT_EQ(budget.used_by(), (Takes{{"states", 600}, {"gradients", 400}}));
}

TEST(ByteBudgetTest, RefusalNamesTierPurposeAndAllNumbers) {
  ByteBudget budget("device", 5000);
  const Result<Reservation> held = budget.take("weights", 4321);
  ASSERT_TRUE(held.ok());
  const Result<Reservation> refused = budget.take("activations", 2000);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::kNoMemory);
  for (const char* part : {"device", "activations", "2000", "4321", "5000", "1321"}) {
    EXPECT_NE(refused.error().message.find(part), std::string::npos)
        << part << " is missing in: " << refused.error().message;
  }
}

TEST(ByteBudgetTest, DoesNotOverflow) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  ByteBudget budget("host", kMax);
  const Result<Reservation> most = budget.take("most", kMax - 10);
  ASSERT_TRUE(most.ok());
  EXPECT_FALSE(budget.take("wraps", kMax).ok());
  EXPECT_FALSE(budget.take("wraps", 11).ok());
  EXPECT_TRUE(budget.take("fits", 10).ok());
}

TEST(ReservationTest, GivesBackOnce) {
  ByteBudget budget("host", 100);
  {
    Reservation held = std::move(budget.take("a", 30)).value();
    EXPECT_EQ(held.bytes(), 30U);
    Reservation moved = std::move(held);
    EXPECT_EQ(budget.used_bytes(), 30U);
    EXPECT_EQ(moved.bytes(), 30U);
    moved = std::move(budget.take("b", 50)).value();
    EXPECT_EQ(budget.used_by(), (Takes{{"b", 50}})) << "assignment gives the old bytes back";
    moved.release();
    EXPECT_EQ(budget.used_bytes(), 0U);
    moved.release();
    EXPECT_FALSE(moved);
    EXPECT_EQ(moved.bytes(), 0U);
  }
  EXPECT_EQ(budget.used_bytes(), 0U);
  EXPECT_EQ(budget.peak_bytes(), 80U);
}

TEST(ByteBudgetTest, HoldsItsLimitAgainstManyThreads) {
  ByteBudget budget("host", 10);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&budget] {
      for (int k = 0; k < 5000; ++k) {
        const Result<Reservation> a = budget.take("a", 3);
        const Result<Reservation> b = budget.take("b", 4);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(budget.used_bytes(), 0U);
  EXPECT_LE(budget.peak_bytes(), 10U);
  EXPECT_GE(budget.peak_bytes(), 7U);
  EXPECT_TRUE(budget.used_by().empty());
}

}  // namespace
}  // namespace penstock
