// How blocks are dealt to unequal drives, and how a drive that changes is noticed.

#include "engine/drive_set.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "base/units.hpp"
#include "engine/drive_watch.hpp"
#include "temporary_directory.hpp"

namespace penstock::testing {
namespace {

constexpr std::uint64_t kPlenty = std::uint64_t{1} << 50;

DriveOffer offer(std::uint64_t drive, double read, double write, std::uint64_t free = kPlenty) {
  return {drive, read * 1e6, write * 1e6, free};
}

std::vector<std::uint32_t> deal(const std::vector<DriveOffer>& offers, double read_share = 0.5,
                                std::uint64_t needed = 1 << 30) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < offers.size(); ++i) names.push_back("/d" + std::to_string(i));
  return deal_shares(offers, names, read_share, needed).shares;
}

/// What is reached of the drives' sum when a step ends with the last of them.
double reached(const std::vector<DriveOffer>& offers, const std::vector<std::uint32_t>& shares,
               double read_share) {
  const double dealt = std::accumulate(shares.begin(), shares.end(), 0.0);
  double last = 0.0, sum = 0.0;
  for (std::size_t i = 0; i < offers.size(); ++i) {
    const double rate = 1.0 / (read_share / offers[i].read_bytes_per_second +
                               (1.0 - read_share) / offers[i].write_bytes_per_second);
    last = std::max(last, shares[i] / rate);
    sum += rate;
  }
  return dealt / last / sum;
}

TEST(DealSharesTest, FollowsTheRates) {
  EXPECT_EQ(deal({offer(1, 400, 400), offer(2, 100, 100)}), (std::vector<std::uint32_t>{4, 1}));
  EXPECT_EQ(deal({offer(1, 100, 100), offer(2, 100, 100), offer(3, 100, 100)}),
            (std::vector<std::uint32_t>{1, 1, 1}));
  EXPECT_EQ(deal({offer(1, 300, 300), offer(2, 200, 200), offer(3, 100, 100)}),
            (std::vector<std::uint32_t>{3, 2, 1}));
}

TEST(DealSharesTest, CountsReadsAndWritesByTheirShare) {
  // 1/(1/900 + 1/300) = 225 against 1/(1/150 + 1/300) = 100 at one half.
  const std::vector<DriveOffer> offers{offer(1, 900, 300), offer(2, 150, 300)};
  EXPECT_NEAR(reached(offers, deal(offers, 0.5), 0.5), 1.0, 0.02);
  EXPECT_EQ(deal(offers, 0.0), (std::vector<std::uint32_t>{1, 1})) << "writes alone are equal";
  EXPECT_EQ(deal(offers, 1.0), (std::vector<std::uint32_t>{6, 1}));
}

TEST(DealSharesTest, TwoDirectoriesOfOneDriveCountOnce) {
  EXPECT_EQ(deal({offer(1, 100, 100), offer(1, 100, 100), offer(2, 100, 100)}),
            (std::vector<std::uint32_t>{1, 1, 2}));
  const DriveShares dealt = deal_shares(
      std::vector<DriveOffer>{offer(1, 100, 100), offer(1, 100, 100)}, {"/a", "/b"}, 0.5, 1);
  EXPECT_NE(dealt.words.find("on one drive with /a"), std::string::npos) << dealt.words;
}

TEST(DealSharesTest, ADriveWithLittleRoomGetsWhatFits) {
  // 100 GiB are to be placed; the fast drive has room for ten.
  const std::vector<DriveOffer> offers{offer(1, 1000, 1000, 10 * kGiB), offer(2, 100, 100),
                                       offer(3, 100, 100)};
  const auto shares = deal(offers, 0.5, 100 * kGiB);
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  EXPECT_LE(shares[0] / all, 0.10);
  EXPECT_GE(shares[0] / all, 0.06);
  EXPECT_EQ(shares[1], shares[2]);
  const DriveShares dealt = deal_shares(offers, {"/a", "/b", "/c"}, 0.5, 100 * kGiB);
  EXPECT_NE(dealt.words.find("only 10 GiB free"), std::string::npos) << dealt.words;
  EXPECT_EQ(dealt.words.find("only", dealt.words.find("/b")), std::string::npos) << dealt.words;
}

TEST(DealSharesTest, SmallNumbersKeepAlmostAll) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    std::vector<DriveOffer> offers;
    const std::size_t count = 1 + random() % 8;
    for (std::size_t i = 0; i < count; ++i) {
      offers.push_back(offer(i, 500.0 + static_cast<double>(random() % 4000),
                             500.0 + static_cast<double>(random() % 4000)));
    }
    const double share = static_cast<double>(random() % 101) / 100.0;
    const auto shares = deal(offers, share);
    for (const std::uint32_t one : shares) EXPECT_GE(one, 1U);
    EXPECT_GE(reached(offers, shares, share), 0.93);
  }
}

TEST(MeasureOffersTest, DirectoriesOfOneFilesystemAreOneDriveAndNothingIsLeft) {
  const TemporaryDirectory directory;
  const auto storage = make_posix_storage();
  const std::vector<std::string> both{directory.path(), directory.path() + "/not/there"};
  const auto offers = measure_offers(*storage, both, 0.02, {});
  ASSERT_TRUE(offers.ok()) << offers.error().message;
  ASSERT_EQ(offers.value().size(), 2U);
  EXPECT_EQ(offers.value()[0].drive, offers.value()[1].drive);
  EXPECT_GT(offers.value()[0].read_bytes_per_second, 0.0);
  EXPECT_GT(offers.value()[0].write_bytes_per_second, 0.0);
  EXPECT_GT(offers.value()[0].free_bytes, 0U);
  EXPECT_TRUE(storage->list(directory.path()).value().empty());
}

class DriveWatchTest : public ::testing::Test {
 protected:
  /// A step of ten seconds in which the drive moved bytes at `rate`, busy all the time.
  DriveWatch::Event step(double rate) {
    now_ += 10'000'000'000;
    stats_.busy_ns += 9'000'000'000;
    stats_.read_bytes += static_cast<std::uint64_t>(9.0 * rate);
    return watch_.step_ended(0, stats_, now_);
  }
  DriveWatch::Event::Kind after_a_window(double rate) {
    for (int i = 0; i < 2; ++i) EXPECT_EQ(step(rate).kind, DriveWatch::Event::Kind::kNone);
    return step(rate).kind;
  }
  DriveWatch watch_{std::vector<DriveWatch::Drive>{{7, "/nvme0"}}};
  DriveStats stats_;
  std::uint64_t now_ = 0;
};

TEST_F(DriveWatchTest, ADriveThatSlowsDownIsOneEventAndItsReturnAnother) {
  using Kind = DriveWatch::Event::Kind;
  step(1e9);  // begins the first window
  EXPECT_EQ(after_a_window(1e9), Kind::kNone);
  EXPECT_EQ(after_a_window(0.9e9), Kind::kNone) << "noise";
  EXPECT_EQ(after_a_window(0.5e9), Kind::kSlow);
  EXPECT_EQ(after_a_window(0.5e9), Kind::kNone) << "said already, and not taken for usual";
  EXPECT_EQ(after_a_window(0.5e9), Kind::kNone);
  EXPECT_EQ(after_a_window(1e9), Kind::kUsual);
}

TEST_F(DriveWatchTest, AnIdleDriveIsNotASlowOne) {
  step(1e9);
  EXPECT_EQ(after_a_window(1e9), DriveWatch::Event::Kind::kNone);
  for (int i = 0; i < 20; ++i) {  // compute takes over: hardly any bytes, hardly any time
    now_ += 10'000'000'000;
    stats_.busy_ns += 1'000'000;
    stats_.read_bytes += 1'000'000;
    EXPECT_EQ(watch_.step_ended(0, stats_, now_).kind, DriveWatch::Event::Kind::kNone);
  }
}

TEST_F(DriveWatchTest, AStallIsNewsOnce) {
  EXPECT_FALSE(watch_.stalled(0, false));
  EXPECT_TRUE(watch_.stalled(0, true));
  EXPECT_FALSE(watch_.stalled(0, true));
  EXPECT_FALSE(watch_.stalled(0, false));
  EXPECT_TRUE(watch_.stalled(0, true));
  EXPECT_EQ(watch_.find(7), 0U);
  EXPECT_EQ(watch_.find(8), watch_.size());
}

}  // namespace
}  // namespace penstock::testing
