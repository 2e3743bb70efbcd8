#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/random.hpp"
#include "comm/communicator.hpp"

namespace penstock {
namespace {

/// Far enough for the slowest machine: reached only by a failing test.
std::uint64_t in_a_minute() {
  return now_ns() + 60'000'000'000U;
}
/// Near enough not to wait for.
std::uint64_t in_a_moment() {
  return now_ns() + 20'000'000U;
}

using Ranks = std::vector<std::unique_ptr<Communicator>>;

/// Runs body(communicator) on a thread for each rank; `group` stays alive until all are done.
void on_all(const Ranks& group, const std::function<void(Communicator&)>& body) {
  std::vector<std::thread> threads;
  for (const auto& rank : group) threads.emplace_back([&body, &rank] { body(*rank); });
  for (std::thread& thread : threads) thread.join();
}

std::span<std::byte> bytes_of(std::vector<std::uint64_t>& words) {
  return std::as_writable_bytes(std::span(words));
}

class InProcessTest : public ::testing::TestWithParam<int> {
 protected:
  const Ranks group_ = make_in_process_group(GetParam());
};

INSTANTIATE_TEST_SUITE_P(Sizes, InProcessTest, ::testing::Values(1, 2, 4),
                         ::testing::PrintToStringParamName());

TEST_P(InProcessTest, RanksKnowTheirPlaces) {
  ASSERT_EQ(group_.size(), static_cast<std::size_t>(GetParam()));
  for (int rank = 0; rank < GetParam(); ++rank) {
    EXPECT_EQ(group_[static_cast<std::size_t>(rank)]->rank(), rank);
    EXPECT_EQ(group_[static_cast<std::size_t>(rank)]->size(), GetParam());
  }
}

// 1e16 + 1 = 1e16 in double: every other order than rank 0, 1, 2, 3 gives another sum somewhere in
// the columns. Repeated, since ranks arrive in a different order each time.
TEST_P(InProcessTest, SumsInRankOrder) {
  constexpr double kColumns[4][4] = {{1e16, 1.0, 1.0, 1.0},
                                     {1.0, 1e16, -1e16, 0.1},
                                     {-1e16, -1e16, 1e16, 0.2},
                                     {1.0, 3.0, 1.0, 0.3}};
  double expected[4] = {};
  for (int column = 0; column < 4; ++column) {
    expected[column] = kColumns[0][column];
    for (int rank = 1; rank < GetParam(); ++rank) expected[column] += kColumns[rank][column];
  }
  on_all(group_, [&](Communicator& comm) {
    for (int round = 0; round < 300; ++round) {
      if ((round + comm.rank()) % 3 == 0) std::this_thread::yield();
      double values[4];
      std::memcpy(values, kColumns[comm.rank()], sizeof(values));
      const Status status = comm.all_reduce_sum_fp64(values, in_a_minute());
      ASSERT_TRUE(status.ok()) << status.error().message;
      ASSERT_EQ(std::memcmp(values, expected, sizeof(values)), 0) << "round " << round;
    }
  });
}

TEST_P(InProcessTest, OrsAllBits) {
  on_all(group_, [&](Communicator& comm) {
    std::uint64_t words[2] = {std::uint64_t{1} << comm.rank(), comm.rank() == 0 ? 5U : 0U};
    ASSERT_TRUE(comm.all_reduce_or(words, in_a_minute()).ok());
    EXPECT_EQ(words[0], (std::uint64_t{1} << comm.size()) - 1);
    EXPECT_EQ(words[1], 5U);
  });
}

TEST_P(InProcessTest, BroadcastsFromEveryRoot) {
  on_all(group_, [&](Communicator& comm) {
    for (int root = 0; root < comm.size(); ++root) {
      std::vector<std::uint64_t> words(1000);
      for (std::size_t i = 0; i < words.size(); ++i) {
        words[i] = mix64(1, static_cast<std::uint64_t>(comm.rank()), i);
      }
      ASSERT_TRUE(comm.broadcast(bytes_of(words), root, in_a_minute()).ok());
      for (std::size_t i = 0; i < words.size(); ++i) {
        ASSERT_EQ(words[i], mix64(1, static_cast<std::uint64_t>(root), i));
      }
    }
    ASSERT_TRUE(comm.broadcast({}, 0, in_a_minute()).ok());
  });
}

// Method: each rank counts itself in before the barrier; after it, all must be counted.
TEST_P(InProcessTest, BarrierWaitsForAll) {
  std::atomic<int> here = 0;
  on_all(group_, [&](Communicator& comm) {
    for (int round = 1; round <= 200; ++round) {
      ++here;
      ASSERT_TRUE(comm.barrier(in_a_minute()).ok());
      ASSERT_GE(here, round * comm.size());
      ASSERT_TRUE(comm.barrier(in_a_minute()).ok());
    }
  });
  EXPECT_EQ(here, 200 * GetParam());
}

// Method: a random sequence of all operations, the same on each rank, against plain arithmetic.
TEST_P(InProcessTest, ManyMixedCallsAgreeWithArithmetic) {
  on_all(group_, [&](Communicator& comm) {
    for (std::uint64_t call = 0; call < 500; ++call) {
      const auto value = [call](int rank) {
        return mix64(9, static_cast<std::uint64_t>(rank), call) >> 20;
      };
      std::uint64_t word = value(comm.rank());
      std::uint64_t expected = value(0);
      const std::uint64_t choice = mix64(8, 0, call) % 3;
      if (choice == 0) {
        double sum = static_cast<double>(word);
        ASSERT_TRUE(comm.all_reduce_sum_fp64({&sum, 1}, in_a_minute()).ok());
        word = static_cast<std::uint64_t>(sum);
        for (int rank = 1; rank < comm.size(); ++rank) expected += value(rank);
      } else if (choice == 1) {
        ASSERT_TRUE(comm.all_reduce_or({&word, 1}, in_a_minute()).ok());
        for (int rank = 1; rank < comm.size(); ++rank) expected |= value(rank);
      } else {
        const int root = static_cast<int>(call % static_cast<std::uint64_t>(comm.size()));
        ASSERT_TRUE(
            comm.broadcast(std::as_writable_bytes(std::span(&word, 1)), root, in_a_minute()).ok());
        expected = value(root);
      }
      ASSERT_EQ(word, expected) << "call " << call;
    }
  });
}

TEST_P(InProcessTest, RefusesARootThatIsNoRankAndStaysWhole) {
  std::byte byte{};
  for (const int root : {-1, GetParam()}) {
    const Status status = group_[0]->broadcast({&byte, 1}, root, in_a_minute());
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, Errc::kArgument);
  }
  on_all(group_, [](Communicator& comm) { EXPECT_TRUE(comm.barrier(in_a_minute()).ok()); });
}

TEST(InProcessGroupTest, OneRankIsTheIdentityAndNeverWaits) {
  const Ranks group = make_in_process_group(1);
  double value = 0.1;
  std::uint64_t word = 6;
  std::byte byte{3};
  constexpr std::uint64_t kPast = 0;
  EXPECT_TRUE(group[0]->all_reduce_sum_fp64({&value, 1}, kPast).ok());
  EXPECT_TRUE(group[0]->all_reduce_or({&word, 1}, kPast).ok());
  EXPECT_TRUE(group[0]->broadcast({&byte, 1}, 0, kPast).ok());
  EXPECT_TRUE(group[0]->barrier(kPast).ok());
  EXPECT_EQ(value, 0.1);
  EXPECT_EQ(word, 6U);
  EXPECT_EQ(byte, std::byte{3});
}

// Ranks 0, 1 and 3 come, rank 2 does not: all get kTimeout, rank 2 as well when it comes too late.
TEST(InProcessGroupTest, ALateRankIsATimeoutForAll) {
  const Ranks group = make_in_process_group(4);
  on_all(group, [](Communicator& comm) {
    if (comm.rank() == 2) return;
    double value = comm.rank();
    // Only rank 0 is impatient; the others would wait for a minute.
    const std::uint64_t deadline = comm.rank() == 0 ? in_a_moment() : in_a_minute();
    const Status status = comm.all_reduce_sum_fp64({&value, 1}, deadline);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, Errc::kTimeout);
    EXPECT_EQ(value, comm.rank()) << "a failed call leaves the data alone";
    EXPECT_NE(status.error().message.find("all_reduce_sum_fp64"), std::string::npos);
  });
  double value = 2;
  const Status late = group[2]->all_reduce_sum_fp64({&value, 1}, in_a_minute());
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, Errc::kTimeout);
  EXPECT_NE(late.error().message.find("2 has not come"), std::string::npos) << late.error().message;
  on_all(group, [](Communicator& comm) {
    const Status status = comm.barrier(in_a_minute());
    ASSERT_FALSE(status.ok()) << "a broken group stays broken";
    EXPECT_EQ(status.error().code, Errc::kTimeout);
  });
}

TEST(InProcessGroupTest, ADeadlineInThePastIsATimeoutAtOnce) {
  const Ranks group = make_in_process_group(2);
  const Status status = group[0]->barrier(0);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Errc::kTimeout);
}

TEST(InProcessGroupTest, ALeavingRankEndsTheWaitOfOthers) {
  Ranks group = make_in_process_group(3);
  std::thread first([&] {
    const Status status = group[0]->barrier(in_a_minute());
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, Errc::kCancelled);
    EXPECT_NE(status.error().message.find("rank 2"), std::string::npos) << status.error().message;
  });
  // Before or after rank 0 waits: both must end in the same way.
  group[2].reset();
  first.join();
  const Status status = group[1]->barrier(in_a_minute());
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Errc::kCancelled);
}

TEST(InProcessGroupTest, LeavingAfterTheLastCallHarmsNobody) {
  for (int round = 0; round < 100; ++round) {
    Ranks group = make_in_process_group(2);
    std::vector<std::thread> threads;
    for (auto& rank : group) {
      threads.emplace_back([&rank] {
        EXPECT_TRUE(rank->barrier(in_a_minute()).ok());
        rank.reset();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(InProcessGroupTest, DifferentCallsAreAMistakeThatIsNamed) {
  const auto clash = [](const std::function<Status(Communicator&)>& zero,
                        const std::function<Status(Communicator&)>& one) {
    const Ranks group = make_in_process_group(2);
    on_all(group, [&](Communicator& comm) {
      const Status status = comm.rank() == 0 ? zero(comm) : one(comm);
      ASSERT_FALSE(status.ok());
      EXPECT_EQ(status.error().code, Errc::kState) << status.error().message;
      EXPECT_NE(status.error().message.find("barrier"), std::string::npos)
          << status.error().message;
    });
  };
  const auto barrier = [](Communicator& comm) { return comm.barrier(in_a_minute()); };
  clash(barrier, [](Communicator& comm) {
    std::uint64_t word = 1;
    return comm.all_reduce_or({&word, 1}, in_a_minute());
  });
  clash(
      [](Communicator& comm) {
        std::byte byte{};
        return comm.broadcast({&byte, 1}, 1, in_a_minute());
      },
      barrier);

  const Ranks group = make_in_process_group(2);
  on_all(group, [](Communicator& comm) {
    std::vector<double> values(static_cast<std::size_t>(comm.rank()) + 1);
    const Status status = comm.all_reduce_sum_fp64(values, in_a_minute());
    ASSERT_FALSE(status.ok()) << "the sizes differ";
    EXPECT_EQ(status.error().code, Errc::kState);
  });
}

}  // namespace
}  // namespace penstock
