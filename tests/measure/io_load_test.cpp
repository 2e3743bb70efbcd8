// Method: what a log says is checked on made-up logs; running lanes on small files.

#include "measure/io_load.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "measure/no_stop.hpp"
#include "mem/arena.hpp"
#include "temporary_directory.hpp"

namespace penstock {
namespace {

using testing::kNoStop;

constexpr std::uint64_t kBlock = 64 << 10, kFileBytes = 4 << 20;

Lane pure_lane(LaneOps ops) {
  Lane lane;
  lane.ops = ops;
  lane.files = {1};
  lane.block_bytes = kBlock;
  return lane;
}

TEST(LoadSummaryTest, CountsWhatCompletesInTheWindowOnly) {
  const Lane lane = pure_lane(LaneOps::kRead);
  // From 0 to 1000 ns, of which 100 are ramp.
  const std::vector<LoadSample> log = {{50, 40, 10, 0, 0, true},
                                       {100, 90, 20, 0, 0, true},
                                       {600, 300, 30, 0, 0, false},
                                       {1000, 410, 40, 0, 0, true},
                                       {1001, 400, 80, 0, 0, true}};
  const LoadResult result = summarise_load({&lane, 1}, log, 0, 1000, 0.1);
  EXPECT_EQ(result.read_bytes, 60U);
  EXPECT_EQ(result.write_bytes, 30U);
  EXPECT_EQ(result.moved_bytes, 180U) << "what the processor's time is divided by";
  EXPECT_DOUBLE_EQ(result.window_seconds, 900e-9);
  EXPECT_DOUBLE_EQ(result.dropped_seconds, 100e-9);
  EXPECT_DOUBLE_EQ(result.bytes_per_second(), 90 / 900e-9);
  EXPECT_DOUBLE_EQ(result.mean_depth, (90 + 300 + 410) / 900.0) << "Little's law";
  EXPECT_EQ(result.latencies_ns, (std::vector<double>{90, 300, 410}));
}

TEST(LoadSummaryTest, SplitsByFileAndKeepsTheLatenciesOfProbesOnly) {
  Lane probe = pure_lane(LaneOps::kRead), background = pure_lane(LaneOps::kWrite);
  probe.files = background.files = {1, 2};
  background.is_probe = false;
  const std::vector<Lane> lanes = {probe, background};
  const std::vector<LoadSample> log = {{10, 5, 100, 0, 0, true}, {20, 6, 200, 1, 1, false}};
  const LoadResult result = summarise_load(lanes, log, 0, 100, 0.0);
  EXPECT_EQ(result.file_bytes, (std::vector<std::uint64_t>{100, 200}));
  EXPECT_EQ(result.latencies_ns, std::vector<double>{5});
}

class LoadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    OpenOptions options;
    options.temporary = true;
    for (int i = 0; i < 2; ++i) {
      auto file = storage_->open(directory_.path(), options);
      ASSERT_TRUE(file) << file.error().message;
      ASSERT_TRUE(storage_->preallocate(file.value(), kFileBytes));
      files_.push_back(file.value());
    }
    auto arena = Arena::create(budget_, "test", kFileBytes);
    ASSERT_TRUE(arena) << arena.error().message;
    arena_ = std::make_unique<Arena>(std::move(arena).value());
    log_.reserve(100'000);
  }

  Lane lane(LaneOps ops, LaneOrder order, std::uint32_t places) {
    Lane lane;
    lane.ops = ops;
    lane.order = order;
    lane.files = files_;
    lane.file_bytes = kFileBytes;
    lane.block_bytes = kBlock;
    lane.places = places;
    lane.memory = {arena_->data(), arena_->bytes()};
    return lane;
  }

  Result<LoadResult> run(const std::vector<Lane>& lanes, double seconds,
                         const std::atomic<bool>& stop = kNoStop) {
    LoadOptions options;
    options.seconds = seconds;
    return run_load(*storage_, {}, lanes, options, log_, stop);
  }

  testing::TemporaryDirectory directory_;
  std::unique_ptr<Storage> storage_ = make_posix_storage();
  ByteBudget budget_{"host", std::uint64_t{64} << 20};
  std::unique_ptr<Arena> arena_;
  std::vector<FileId> files_;
  std::vector<LoadSample> log_;
};

TEST_F(LoadTest, TurnsEndALaneEarlyAndTouchEveryBlockOnce) {
  std::fill(arena_->data(), arena_->data() + arena_->bytes(), std::byte{0x5A});
  Lane writing = lane(LaneOps::kWrite, LaneOrder::kSequential, 8);
  writing.turns = kFileBytes / kBlock;
  const auto result = run({writing}, 600.0);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result.value().moved_bytes, 2 * kFileBytes);
  EXPECT_EQ(result.value().turns_done, (std::vector<std::uint64_t>(2, kFileBytes / kBlock)));
  EXPECT_LT(result.value().window_seconds, 500.0) << "the window ends with the last request";
  for (const FileId file : files_) {
    std::vector<std::byte> content(kFileBytes);
    ASSERT_TRUE(storage_->read_at(file, 0, content));
    EXPECT_EQ(std::count(content.begin(), content.end(), std::byte{0x5A}),
              static_cast<std::ptrdiff_t>(kFileBytes));
  }
}

TEST_F(LoadTest, AlternatingLanesMoveAsMuchBothWays) {
  Lane both = lane(LaneOps::kAlternate, LaneOrder::kSequential, 8);
  both.turns = 100;
  const auto result = run({both}, 600.0);
  ASSERT_TRUE(result) << result.error().message;
  std::int64_t reads = 0, writes = 0;
  for (const LoadSample& sample : log_) (sample.is_read ? reads : writes) += 1;
  EXPECT_EQ(reads, 100);
  EXPECT_EQ(writes, 100);
}

// Between two requests of the only place nothing is in flight, which is not the end.
TEST_F(LoadTest, OnePlaceGoesOn) {
  Lane probe = lane(LaneOps::kRead, LaneOrder::kRandom, 1);
  probe.turns = 50;
  const auto result = run({probe}, 600.0);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(log_.size(), 50U);
  EXPECT_LE(result.value().mean_depth, 1.5);
}

TEST_F(LoadTest, ExtentsAreVisitedInTurn) {
  const std::vector<Extent> extents = {{0, 4096}, {4096, 8192}, {65536, 4096}};
  Lane some = lane(LaneOps::kRead, LaneOrder::kExtents, 2);
  some.extents = extents;
  some.turns = 6;
  const auto result = run({some}, 600.0);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result.value().moved_bytes, 2U * 2 * (4096 + 8192 + 4096));
}

TEST_F(LoadTest, AFullLogEndsTheRunInsteadOfGrowing) {
  log_ = {};
  log_.reserve(20);
  const std::size_t capacity = log_.capacity();
  const auto result = run({lane(LaneOps::kRead, LaneOrder::kSequential, 4)}, 600.0);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(log_.capacity(), capacity);
}

TEST_F(LoadTest, StopsWhenAskedTo) {
  const std::atomic<bool> stop{true};
  const auto result = run({lane(LaneOps::kRead, LaneOrder::kSequential, 4)}, 600.0, stop);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Errc::kCancelled);
}

TEST_F(LoadTest, AFailedTransferIsTheResult) {
  Lane beyond = lane(LaneOps::kRead, LaneOrder::kSequential, 2);
  beyond.file_bytes = 2 * kFileBytes;
  beyond.first_offset = kFileBytes;  // past the end
  const auto result = run({beyond}, 600.0);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Errc::kIo);
  EXPECT_NE(result.error().message.find("ended early"), std::string::npos)
      << result.error().message;
}

TEST_F(LoadTest, AQueueThatRefusesIsTheResult) {
  Lane closed = lane(LaneOps::kRead, LaneOrder::kSequential, 4);
  closed.files = {12345};
  const auto result = run({closed}, 600.0);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Errc::kArgument);
}

TEST_F(LoadTest, ALaneWithoutMemoryForItsPlacesIsRefused) {
  Lane large = lane(LaneOps::kRead, LaneOrder::kSequential, 4);
  large.memory = large.memory.first(3 * kBlock);
  EXPECT_FALSE(run({large}, 1.0));
}

}  // namespace
}  // namespace penstock
