// Shares, credits and leads of one drive, against a drive that ends pieces in any order.

#include "io/drive_lanes.hpp"

#include <gtest/gtest.h>

#include <random>

namespace penstock::testing {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

/// Requests of one piece each, as many as a test asks for.
class DriveLanesTest : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kIndices = 4096;

  void wait_with(IoOp op, IoClass io_class, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) lanes_->push(op, io_class, next_++ % kIndices);
  }
  std::optional<IoOp> send() {
    const std::optional<IoOp> op = lanes_->choose([](std::uint32_t) { return kMiB; });
    if (!op) return op;
    lanes_->sent(*op, kMiB, true);
    flying_.push_back(*op);
    ++(*op == IoOp::kRead ? reads_ : writes_);
    return op;
  }
  void land(std::size_t which) {
    lanes_->landed(flying_[which], kMiB);
    flying_.erase(flying_.begin() + static_cast<std::ptrdiff_t>(which));
  }
  void make(double share, std::uint32_t pieces = 0) {
    QueueOptions options;
    options.read_credit_bytes = options.write_credit_bytes = 4 * kMiB;
    options.read_share = share;
    lanes_ = std::make_unique<DriveLanes>(links_, options, pieces);
  }

  std::vector<std::uint32_t> links_ = std::vector<std::uint32_t>(kIndices);
  std::unique_ptr<DriveLanes> lanes_;
  std::vector<IoOp> flying_;
  std::uint32_t next_ = 0;
  std::uint64_t reads_ = 0, writes_ = 0;
};

TEST_F(DriveLanesTest, KeepsThePlannedShareOnADriveThatPrefersReads) {
  for (const double share : {0.5, 0.25, 0.8}) {
    make(share);
    reads_ = writes_ = 0;
    flying_.clear();
    std::mt19937 random(7);
    wait_with(IoOp::kRead, IoClass::kPrefetch, 1500);
    wait_with(IoOp::kWrite, IoClass::kWriteBack, 1500);
    for (int i = 0; i < 1000; ++i) {
      while (send()) {
      }
      ASSERT_FALSE(flying_.empty());
      // Nine times of ten a read ends first, as an elevator would have it.
      std::size_t which = 0;
      for (std::size_t k = 0; k < flying_.size() && random() % 10 != 0; ++k) {
        if (flying_[k] == IoOp::kRead) which = k;
      }
      land(which);
    }
    const double got = static_cast<double>(reads_) / static_cast<double>(reads_ + writes_);
    EXPECT_NEAR(got, share, 0.02);
  }
}

TEST_F(DriveLanesTest, WithoutAShareSuchADriveStarvesWrites) {
  make(0.0);
  wait_with(IoOp::kRead, IoClass::kPrefetch, 1500);
  wait_with(IoOp::kWrite, IoClass::kWriteBack, 1500);
  for (int i = 0; i < 1000; ++i) {
    while (send()) {
    }
    std::size_t which = 0;
    for (std::size_t k = 0; k < flying_.size(); ++k) {
      if (flying_[k] == IoOp::kRead) which = k;
    }
    land(which);
  }
  EXPECT_GT(reads_, 10 * writes_) << "then the test above proves nothing";
}

TEST_F(DriveLanesTest, ADemandPassesTheShareUpToALimit) {
  make(0.5);
  wait_with(IoOp::kWrite, IoClass::kWriteBack, 1000);
  wait_with(IoOp::kRead, IoClass::kDemand, 1000);
  // Writes never end, reads at once.
  for (int i = 0; i < 1000; ++i) {
    while (send()) {
    }
    for (std::size_t k = flying_.size(); k-- > 0;) {
      if (flying_[k] == IoOp::kRead) land(k);
    }
  }
  EXPECT_EQ(writes_, 4U) << "their credit";
  const std::uint64_t lead = 2 * DriveLanes::kUrgentLeadBytes / kMiB;
  EXPECT_GE(reads_, lead - 8);
  EXPECT_LE(reads_, lead + 16);
}

TEST_F(DriveLanesTest, ADemandDoesNotWaitForTheCreditOfOthers) {
  make(0.0);
  wait_with(IoOp::kRead, IoClass::kPrefetch, 10);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(send());
  EXPECT_FALSE(send()) << "the credit is used up";
  wait_with(IoOp::kRead, IoClass::kDemand, 10);
  EXPECT_TRUE(send());
  EXPECT_FALSE(send()) << "demands have a limit, too";
}

TEST_F(DriveLanesTest, NobodyWaitsForAShareThatNobodyElseWants) {
  make(0.5);
  wait_with(IoOp::kRead, IoClass::kPrefetch, 500);
  for (int i = 0; i < 500; ++i) {
    ASSERT_TRUE(send()) << i;
    land(0);
  }
  // And what reads had alone is not held against them later.
  wait_with(IoOp::kRead, IoClass::kPrefetch, 100);
  wait_with(IoOp::kWrite, IoClass::kWriteBack, 100);
  reads_ = writes_ = 0;
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(send());
    land(0);
  }
  EXPECT_GE(reads_, 16U);
}

TEST_F(DriveLanesTest, SomethingGoesWheneverNothingIsInFlight) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    make(round % 3 == 0 ? 0.0 : static_cast<double>(random() % 101) / 100.0,
         static_cast<std::uint32_t>(random() % 4));
    flying_.clear();
    std::uint64_t left = 0;
    for (int i = 0; i < 50; ++i) {
      const auto count = static_cast<std::uint32_t>(random() % 9);
      wait_with(random() % 2 == 0 ? IoOp::kRead : IoOp::kWrite,
                static_cast<IoClass>(random() % kIoClassCount), count);
      left += count;
      while (left > 0 && random() % 5 != 0) {
        if (send()) {
          --left;
        } else {
          ASSERT_FALSE(flying_.empty()) << "stuck with " << left << " waiting";
          land(random() % flying_.size());
        }
      }
    }
    while (left > 0) {
      if (send()) {
        --left;
      } else {
        ASSERT_FALSE(flying_.empty()) << "stuck with " << left << " waiting";
        land(random() % flying_.size());
      }
    }
  }
}

TEST_F(DriveLanesTest, PiecesAreLimitedWhereThreadsMoveThem) {
  make(0.0, 3);
  wait_with(IoOp::kRead, IoClass::kDemand, 10);
  wait_with(IoOp::kWrite, IoClass::kDemand, 10);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(send());
  EXPECT_FALSE(send());
  land(1);
  EXPECT_TRUE(send());
}

}  // namespace
}  // namespace penstock::testing
