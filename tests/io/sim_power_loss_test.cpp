// Method: write through the simulation, take many power losses from different seeds at one moment,
// and check which outcomes occur and which never do. A power loss that always kept, or never kept,
// unsynced data would prove nothing about a store, so "sometimes" is tested as well as "never".

#include <gtest/gtest.h>

#include <set>

#include "io/sim_storage.hpp"
#include "io/storage_pages.hpp"

namespace penstock {
namespace {

using testing::fill_pattern;
using testing::has_pattern;
using testing::Pages;

constexpr std::uint64_t kFileBytes = 16 * kPageBytes;
constexpr std::uint64_t kImages = 200;

struct Counter final : CompletionSink {
  void io_complete(const IoCompletion& completion) noexcept override {
    ++completions;
    last = completion;
  }
  int completions = 0;
  IoCompletion last;
};

class SimPowerLossTest : public ::testing::Test {
 protected:
  SimPowerLossTest() : world_(make_sim_storage(timeline_)), old_(kFileBytes), new_(kFileBytes) {
    fill_pattern(old_.span(), 1);
    fill_pattern(new_.span(), 2);
  }

  // A durable file of the old contents, named durably.
  FileId durable_file(const std::string& path) {
    const FileId file = world_->open(path, {.create = true}).value();
    EXPECT_TRUE(world_->preallocate(file, kFileBytes).ok());
    EXPECT_TRUE(world_->write_at(file, 0, old_.span()).ok());
    EXPECT_TRUE(world_->sync_data(file).ok());
    EXPECT_TRUE(world_->sync_directory("/").ok());
    return file;
  }

  // How many pages of an image's file are new; fails on a page that is neither old nor new.
  std::size_t new_pages(SimStorage& image, const std::string& path) {
    const auto bytes = image.read_file(path, kFileBytes);
    EXPECT_TRUE(bytes.ok());
    if (!bytes.ok() || bytes.value().size() != kFileBytes) return kImages;
    std::size_t fresh = 0;
    for (std::uint64_t at = 0; at < kFileBytes; at += kPageBytes) {
      const bool is_new = std::memcmp(bytes.value().data() + at, new_.data() + at, kPageBytes) == 0;
      const bool is_old = std::memcmp(bytes.value().data() + at, old_.data() + at, kPageBytes) == 0;
      EXPECT_TRUE(is_new != is_old) << "page " << at / kPageBytes << " is torn inside";
      fresh += is_new ? 1 : 0;
    }
    return fresh;
  }

  Timeline timeline_{7};
  std::unique_ptr<SimStorage> world_;
  Pages old_, new_;
};

TEST_F(SimPowerLossTest, UnsyncedPagesAreSometimesLostSometimesKeptSometimesTorn) {
  const FileId file = durable_file("/f");
  ASSERT_TRUE(world_->write_at(file, 0, new_.span()).ok());
  std::set<std::size_t> seen;
  for (std::uint64_t seed = 0; seed < kImages; ++seed) {
    seen.insert(new_pages(*world_->after_power_loss(timeline_, seed), "/f"));
  }
  EXPECT_TRUE(seen.contains(0));
  EXPECT_TRUE(seen.contains(16));
  EXPECT_GT(seen.size(), 8U) << "tears of many sizes must occur";
}

TEST_F(SimPowerLossTest, WhatOnlyBeganToBeWrittenOutMayBeLost) {
  durable_file("/f");
  ASSERT_TRUE(world_->overwrite_file("/f", new_.span()).ok());
  world_->begin_writeback("/f");
  std::set<std::size_t> seen;
  for (std::uint64_t seed = 0; seed < kImages; ++seed) {
    seen.insert(new_pages(*world_->after_power_loss(timeline_, seed), "/f"));
  }
  EXPECT_TRUE(seen.contains(0));
  EXPECT_GT(seen.size(), 8U);
  ASSERT_TRUE(world_->sync_file("/f").ok());
  EXPECT_EQ(new_pages(*world_->after_power_loss(timeline_, 3), "/f"), 16U);
}

TEST_F(SimPowerLossTest, SyncedPagesAreNeverLost) {
  const FileId file = durable_file("/f");
  ASSERT_TRUE(world_->write_at(file, 0, new_.span()).ok());
  ASSERT_TRUE(world_->sync_data(file).ok());
  for (std::uint64_t seed = 0; seed < kImages; ++seed) {
    EXPECT_EQ(new_pages(*world_->after_power_loss(timeline_, seed), "/f"), 16U) << seed;
  }
}

TEST_F(SimPowerLossTest, AFailedSyncLosesWhatItWasToKeepEvenIfRetried) {
  const FileId file = durable_file("/f");
  ASSERT_TRUE(world_->write_at(file, 0, new_.span()).ok());
  world_->set_faults({.fail_sync_at = 2});
  const Status failed = world_->sync_data(file);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, Errc::kIo);
  EXPECT_EQ(new_pages(*world_, "/f"), 16U) << "still readable before the power loss";
  ASSERT_TRUE(world_->sync_data(file).ok()) << "a retry claims success, as on Linux";
  EXPECT_EQ(new_pages(*world_->after_power_loss(timeline_, 3), "/f"), 0U);
}

TEST_F(SimPowerLossTest, AnOverwrittenCachedPageMayLandInItsOlderVersion) {
  const FileId file = durable_file("/f");
  Pages middle(kPageBytes);
  fill_pattern(middle.span(), 3);
  ASSERT_TRUE(world_->write_at(file, 0, middle.span()).ok());
  ASSERT_TRUE(world_->write_at(file, 0, new_.span().first(kPageBytes)).ok());
  int kept_middle = 0;
  for (std::uint64_t seed = 0; seed < kImages; ++seed) {
    const auto bytes = world_->after_power_loss(timeline_, seed)->read_file("/f", kFileBytes);
    kept_middle += std::memcmp(bytes.value().data(), middle.data(), kPageBytes) == 0 ? 1 : 0;
  }
  EXPECT_GT(kept_middle, 0);
}

TEST_F(SimPowerLossTest, AWriteInFlightMayLandInPart) {
  const FileId file = durable_file("/f");
  Counter sink;
  auto queue = world_->make_queue(sink, {}).value();
  const IoRequest request{IoOp::kWrite, IoClass::kWriteBack, file, 0, new_.data(), kFileBytes, 9};
  ASSERT_TRUE(queue->submit({&request, 1}).ok());
  std::set<std::size_t> seen;
  for (std::uint64_t seed = 0; seed < kImages; ++seed) {
    seen.insert(new_pages(*world_->after_power_loss(timeline_, seed), "/f"));
  }
  EXPECT_TRUE(seen.contains(0));
  EXPECT_GT(seen.size(), 4U);
  ASSERT_TRUE(queue->drain(1'000'000'000).ok());
  EXPECT_EQ(sink.completions, 1);
  ASSERT_TRUE(world_->sync_data(file).ok());
  EXPECT_EQ(new_pages(*world_->after_power_loss(timeline_, 1), "/f"), 16U);
}

TEST_F(SimPowerLossTest, ASyncDoesNotCoverAWriteStillInFlight) {
  const FileId file = durable_file("/f");
  Counter sink;
  auto queue = world_->make_queue(sink, {}).value();
  const IoRequest request{IoOp::kWrite, IoClass::kWriteBack, file, 0, new_.data(), kFileBytes, 9};
  ASSERT_TRUE(queue->submit({&request, 1}).ok());
  ASSERT_TRUE(world_->sync_data(file).ok());
  std::set<std::size_t> seen;
  for (std::uint64_t seed = 0; seed < kImages; ++seed) {
    seen.insert(new_pages(*world_->after_power_loss(timeline_, seed), "/f"));
  }
  EXPECT_TRUE(seen.contains(0));
}

TEST_F(SimPowerLossTest, NamesNeedTheirDirectorySynced) {
  durable_file("/f");
  ASSERT_TRUE(world_->write_file("/f.tmp", new_.span()).ok());
  ASSERT_TRUE(world_->sync_file("/f.tmp").ok());
  ASSERT_TRUE(world_->rename("/f.tmp", "/f").ok());
  int renamed = 0, tmp_left = 0, neither = 0;
  for (std::uint64_t seed = 0; seed < kImages; ++seed) {
    const auto image = world_->after_power_loss(timeline_, seed);
    const bool is_new = new_pages(*image, "/f") == 16;
    const bool has_tmp = image->exists("/f.tmp").value();
    EXPECT_FALSE(is_new && has_tmp) << "a rename is one operation";
    renamed += is_new ? 1 : 0;
    tmp_left += has_tmp ? 1 : 0;
    neither += !is_new && !has_tmp ? 1 : 0;
  }
  EXPECT_GT(renamed, 0);
  EXPECT_GT(tmp_left, 0);
  EXPECT_GT(neither, 0);
  ASSERT_TRUE(world_->sync_directory("/").ok());
  for (std::uint64_t seed = 0; seed < kImages; ++seed) {
    const auto image = world_->after_power_loss(timeline_, seed);
    EXPECT_EQ(new_pages(*image, "/f"), 16U);
    EXPECT_FALSE(image->exists("/f.tmp").value());
  }
}

TEST_F(SimPowerLossTest, ADurableNameDoesNotMakeContentDurable) {
  ASSERT_TRUE(world_->write_file("/m", new_.span()).ok());
  ASSERT_TRUE(world_->sync_directory("/").ok());
  bool empty = false, full = false, torn = false;
  for (std::uint64_t seed = 0; seed < kImages; ++seed) {
    const auto bytes = world_->after_power_loss(timeline_, seed)->read_file("/m", kFileBytes);
    ASSERT_TRUE(bytes.ok());
    if (bytes.value().empty()) {
      empty = true;
    } else if (has_pattern(bytes.value(), 2)) {
      full = true;
    } else {
      torn = true;
    }
  }
  EXPECT_TRUE(empty && full && torn);
}

TEST_F(SimPowerLossTest, UnnamedFilesAndLocksVanish) {
  const FileId file = durable_file("/f");
  ASSERT_TRUE(world_->lock(file).ok());
  ASSERT_TRUE(world_->open("/", {.temporary = true}).ok());
  const auto image = world_->after_power_loss(timeline_, 5);
  EXPECT_EQ(image->list("/").value(), std::vector<std::string>{"f"});
  const FileId again = image->open("/f", {}).value();
  EXPECT_TRUE(image->lock(again).ok());
}

TEST_F(SimPowerLossTest, SameSeedSameImageOtherSeedOtherImage) {
  const FileId file = durable_file("/f");
  ASSERT_TRUE(world_->write_at(file, 0, new_.span()).ok());
  ASSERT_TRUE(world_->write_file("/g", new_.span()).ok());
  std::set<std::uint64_t> digests;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const std::uint64_t digest = world_->after_power_loss(timeline_, seed)->digest();
    EXPECT_EQ(world_->after_power_loss(timeline_, seed)->digest(), digest);
    digests.insert(digest);
  }
  EXPECT_GT(digests.size(), 20U);
}

TEST_F(SimPowerLossTest, AnImageIsAWorldOfItsOwn) {
  const FileId file = durable_file("/f");
  const auto image = world_->after_power_loss(timeline_, 1);
  const std::uint64_t digest = image->digest();
  ASSERT_TRUE(world_->write_at(file, 0, new_.span()).ok());
  ASSERT_TRUE(world_->sync_data(file).ok());
  EXPECT_EQ(image->digest(), digest);
  const FileId in_image = image->open("/f", {}).value();
  ASSERT_TRUE(image->write_at(in_image, 0, new_.span().first(kPageBytes)).ok());
  EXPECT_NE(image->digest(), digest);
  EXPECT_EQ(new_pages(*world_, "/f"), 16U);
}

TEST_F(SimPowerLossTest, TheObserverSeesEveryOperationAndMayTakeImages) {
  std::vector<std::uint64_t> operations;
  std::vector<std::uint64_t> digests;
  world_->set_observer([&](std::uint64_t operation) {
    operations.push_back(operation);
    digests.push_back(world_->after_power_loss(timeline_, 11)->digest());
  });
  const FileId file = durable_file("/f");  // create, preallocate, write, sync, directory sync
  Counter sink;
  auto queue = world_->make_queue(sink, {}).value();
  const IoRequest request{IoOp::kWrite, IoClass::kWriteBack, file, 0, new_.data(), kFileBytes, 9};
  ASSERT_TRUE(queue->submit({&request, 1}).ok());
  ASSERT_TRUE(queue->drain(1'000'000'000).ok());
  EXPECT_EQ(operations, (std::vector<std::uint64_t>{1, 2, 3, 4, 5, 6}));
  world_->set_observer({});
}

}  // namespace
}  // namespace penstock
