// Faults of the simulated drive, each forced or drawn from a seed, and the determinism of it all.

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <map>

#include "io/sim_storage.hpp"
#include "io/storage_pages.hpp"

namespace penstock {
namespace {

using testing::fill_pattern;
using testing::has_pattern;
using testing::Pages;

constexpr std::uint32_t kAlways = 65536;
constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kBytes = 8 * kPageBytes;

struct Recorder final : CompletionSink {
  void io_complete(const IoCompletion& completion) noexcept override {
    order.push_back(completion.cookie);
    by_cookie[completion.cookie] = completion;
  }
  std::vector<std::uint64_t> order;
  std::map<std::uint64_t, IoCompletion> by_cookie;
};

class SimStorageTest : public ::testing::Test {
 protected:
  SimStorageTest() { build(1); }

  void build(std::uint64_t seed) {
    queue_.reset();
    world_.reset();
    recorder_ = Recorder{};
    timeline_ = std::make_unique<Timeline>(seed);
    world_ = make_sim_storage(*timeline_);
    file_ = world_->open("/f", {.create = true}).value();
    EXPECT_TRUE(world_->preallocate(file_, 64 * kBytes).ok());
    queue_ = world_->make_queue(recorder_, {}).value();
  }

  IoCompletion run(IoOp op, std::byte* memory, std::uint64_t bytes, std::uint64_t offset = 0) {
    const IoRequest request{op, IoClass::kDemand, file_, offset, memory, bytes, ++cookie_};
    EXPECT_TRUE(queue_->submit({&request, 1}).ok());
    EXPECT_TRUE(queue_->drain(60 * kSecond).ok());
    EXPECT_EQ(recorder_.by_cookie.count(cookie_), 1U);
    return recorder_.by_cookie[cookie_];
  }

  std::unique_ptr<Timeline> timeline_;
  Recorder recorder_;
  std::unique_ptr<SimStorage> world_;
  std::unique_ptr<StorageQueue> queue_;
  FileId file_ = 0;
  std::uint64_t cookie_ = 0;
};

TEST_F(SimStorageTest, ErrorsAreReportedWithTheirErrno) {
  Pages memory(kBytes);
  world_->set_faults({.read_error = kAlways});
  IoCompletion done = run(IoOp::kRead, memory.data(), kBytes);
  EXPECT_EQ(done.code, Errc::kIo);
  EXPECT_EQ(done.sys_errno, EIO);
  EXPECT_EQ(done.retries, 1U) << "a read is tried once more";
  world_->set_faults({.write_error = kAlways});
  done = run(IoOp::kWrite, memory.data(), kBytes);
  EXPECT_EQ(done.code, Errc::kIo);
  EXPECT_EQ(done.retries, 0U) << "a write is not";
  world_->set_faults({.no_space = kAlways});
  done = run(IoOp::kWrite, memory.data(), kBytes);
  EXPECT_EQ(done.code, Errc::kNoSpace);
  EXPECT_EQ(done.sys_errno, ENOSPC);
  EXPECT_EQ(queue_->stats().errors, 3U);
}

TEST_F(SimStorageTest, TransientFaultsAreRetriedWithinABound) {
  Pages memory(kBytes);
  fill_pattern(memory.span(), 4);
  world_->set_faults({.transient = kAlways / 2});
  EXPECT_EQ(run(IoOp::kWrite, memory.data(), kBytes).code, Errc::kOk);
  Pages back(kBytes);
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(run(IoOp::kRead, back.data(), kBytes).code, Errc::kOk);
    EXPECT_TRUE(has_pattern(back.span(), 4));
  }
  EXPECT_GT(queue_->stats().retries, 0U);
  world_->set_faults({.transient = kAlways});
  const IoCompletion done = run(IoOp::kRead, back.data(), kBytes);
  EXPECT_EQ(done.code, Errc::kIo);
  EXPECT_EQ(done.retries, 16U);
}

TEST_F(SimStorageTest, ShortTransfersAreFinished) {
  Pages memory(kBytes), back(kBytes);
  fill_pattern(memory.span(), 5);
  world_->set_faults({.short_transfer = kAlways});
  EXPECT_EQ(run(IoOp::kWrite, memory.data(), kBytes).code, Errc::kOk);
  const IoCompletion done = run(IoOp::kRead, back.data(), kBytes);
  EXPECT_EQ(done.code, Errc::kOk);
  EXPECT_EQ(done.bytes, kBytes);
  EXPECT_TRUE(has_pattern(back.span(), 5));
  EXPECT_GE(queue_->stats().short_transfers, 2U);
}

TEST_F(SimStorageTest, CorruptionLostAndMisdirectedWritesAreSilent) {
  Pages memory(kPageBytes), back(kPageBytes);
  fill_pattern(memory.span(), 6);
  ASSERT_EQ(run(IoOp::kWrite, memory.data(), kPageBytes).code, Errc::kOk);
  world_->set_faults({.corrupt_read = kAlways});
  ASSERT_EQ(run(IoOp::kRead, back.data(), kPageBytes).code, Errc::kOk);
  EXPECT_FALSE(has_pattern(back.span(), 6));
  world_->set_faults({});
  ASSERT_EQ(run(IoOp::kRead, back.data(), kPageBytes).code, Errc::kOk);
  EXPECT_TRUE(has_pattern(back.span(), 6)) << "heals on re-read";

  fill_pattern(memory.span(), 7);
  world_->set_faults({.lost_write = kAlways});
  ASSERT_EQ(run(IoOp::kWrite, memory.data(), kPageBytes).code, Errc::kOk);
  world_->set_faults({.misdirected_write = kAlways});
  ASSERT_EQ(run(IoOp::kWrite, memory.data(), kPageBytes, 4 * kPageBytes).code, Errc::kOk);
  world_->set_faults({});
  ASSERT_EQ(run(IoOp::kRead, back.data(), kPageBytes).code, Errc::kOk);
  EXPECT_TRUE(has_pattern(back.span(), 6)) << "the lost write never reached the drive";
  ASSERT_EQ(run(IoOp::kRead, back.data(), kPageBytes, 5 * kPageBytes).code, Errc::kOk);
  EXPECT_TRUE(has_pattern(back.span(), 7)) << "the misdirected one hit its neighbour";
}

TEST_F(SimStorageTest, ALostCompletionNeverComesAndDrainSaysSo) {
  Pages memory(kPageBytes);
  world_->set_faults({.lost_completion = kAlways});
  const IoRequest request{IoOp::kRead, IoClass::kDemand, file_, 0, memory.data(), kPageBytes, 77};
  ASSERT_TRUE(queue_->submit({&request, 1}).ok());
  const Status drained = queue_->drain(60 * kSecond);
  ASSERT_FALSE(drained.ok());
  EXPECT_EQ(drained.error().code, Errc::kTimeout);
  EXPECT_NE(drained.error().message.find("1 request"), std::string::npos);
  EXPECT_EQ(queue_->stats().in_flight_requests, 1U);
  queue_.reset();
  EXPECT_TRUE(recorder_.order.empty());
}

TEST_F(SimStorageTest, CompletionsComeOutOfOrderAndTheSameSeedRepeatsThem) {
  const auto world = [this](std::uint64_t seed) {
    build(seed);
    world_->set_faults({.short_transfer = 20000, .transient = 10000, .corrupt_read = 3000});
    Pages memory(64 * kPageBytes);
    fill_pattern(memory.span(), 8);
    std::vector<IoRequest> requests;
    for (std::uint64_t i = 0; i < 32; ++i) {
      requests.push_back({i % 3 == 0 ? IoOp::kRead : IoOp::kWrite, IoClass::kDemand, file_,
                          i * 2 * kPageBytes, memory.data() + i * 2 * kPageBytes, 2 * kPageBytes,
                          i});
    }
    EXPECT_TRUE(queue_->submit(requests).ok());
    EXPECT_TRUE(queue_->drain(60 * kSecond).ok());
    return std::make_tuple(recorder_.order, world_->digest(), timeline_->now_ns());
  };
  const auto first = world(3), again = world(3), other = world(4);
  EXPECT_EQ(first, again);
  EXPECT_NE(std::get<0>(first), std::get<0>(other));
  EXPECT_FALSE(std::is_sorted(std::get<0>(first).begin(), std::get<0>(first).end()));
}

TEST_F(SimStorageTest, FlippedBitsAreRealAndFlipBack) {
  Pages memory(kPageBytes);
  fill_pattern(memory.span(), 9);
  ASSERT_TRUE(world_->write_at(file_, 0, memory.span()).ok());
  ASSERT_TRUE(world_->sync_data(file_).ok());
  const std::uint64_t digest = world_->digest();
  ASSERT_TRUE(world_->flip_bit("/f", 12345).ok());
  EXPECT_NE(world_->digest(), digest);
  Pages back(kPageBytes);
  ASSERT_TRUE(world_->read_at(file_, 0, back.span()).ok());
  EXPECT_EQ(back.data()[12345 / 8] ^ memory.data()[12345 / 8], std::byte{1U << (12345 % 8)});
  ASSERT_TRUE(world_->flip_bit("/f", 12345).ok());
  EXPECT_EQ(world_->digest(), digest);
  EXPECT_FALSE(world_->flip_bit("/f", 64 * kBytes * 8).ok());
}

TEST_F(SimStorageTest, ReadMemoryIsPoisonedUntilItsCompletion) {
  Pages memory(kPageBytes);
  const IoRequest request{IoOp::kRead, IoClass::kDemand, file_, 0, memory.data(), kPageBytes, 1};
  ASSERT_TRUE(queue_->submit({&request, 1}).ok());
  EXPECT_EQ(memory.data()[100], std::byte{0xDB});
  ASSERT_TRUE(queue_->drain(kSecond).ok());
  EXPECT_EQ(memory.data()[100], std::byte{0});
}

TEST_F(SimStorageTest, MemoryChangedInFlightReachesTheDrive) {
  Pages memory(kPageBytes), back(kPageBytes);
  fill_pattern(memory.span(), 1);
  const IoRequest request{IoOp::kWrite, IoClass::kDemand, file_, 0, memory.data(), kPageBytes, 1};
  ASSERT_TRUE(queue_->submit({&request, 1}).ok());
  fill_pattern(memory.span(), 2);
  ASSERT_TRUE(queue_->drain(kSecond).ok());
  ASSERT_TRUE(world_->read_at(file_, 0, back.span()).ok());
  EXPECT_TRUE(has_pattern(back.span(), 2)) << "a bug of the caller must show as on a real drive";
}

TEST_F(SimStorageTest, PreallocateRespectsTheCapacity) {
  world_->set_faults({.capacity_bytes = 100 * kBytes});
  const FileId other = world_->open("/g", {.create = true}).value();
  const Status refused = world_->preallocate(other, 50 * kBytes);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::kNoSpace);
  EXPECT_EQ(world_->size_bytes(other).value(), 0U);
  EXPECT_EQ(world_->free_bytes("/").value(), 36 * kBytes);
  EXPECT_TRUE(world_->preallocate(other, 36 * kBytes).ok());
}

}  // namespace
}  // namespace penstock
