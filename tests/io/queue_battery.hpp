#pragma once

// The fixture of the queue battery: one world, one file, one queue.

#include <gtest/gtest.h>

#include "io/storage_worlds.hpp"

namespace penstock::testing {

class QueueBattery : public ::testing::TestWithParam<World> {
 protected:
  void SetUp() override {
    world_ = std::make_unique<StorageWorld>(GetParam());
    auto queue = world_->make_queue(sink_);
    if (!queue && GetParam() == World::kUring) {
      GTEST_SKIP() << queue.error().message << " (then this runs over io_uring)";
    }
    ASSERT_TRUE(queue.ok()) << queue.error().message;
    queue_ = std::move(queue).value();
    file_ = make_file("data", 0);
  }
  void TearDown() override {
    sink_.open_gate();
    queue_.reset();
  }

  void remake_queue(const QueueOptions& options) {
    queue_.reset();
    auto queue = world_->make_queue(sink_, options);
    ASSERT_TRUE(queue.ok()) << queue.error().message;
    queue_ = std::move(queue).value();
  }
  FileId make_file(const std::string& name, std::uint64_t pages) {
    auto file = world_->storage().open(world_->path(name), {.create = true});
    EXPECT_TRUE(file.ok());
    if (pages != 0) {
      EXPECT_TRUE(world_->storage().preallocate(file.value(), pages * kPageBytes).ok());
    }
    return file.value();
  }
  [[nodiscard]] IoRequest request(IoOp op, std::byte* memory, std::uint64_t pages,
                                  std::uint64_t at_page, std::uint64_t cookie,
                                  IoClass io_class = IoClass::kDemand) const {
    return {op, io_class, file_, at_page * kPageBytes, memory, pages * kPageBytes, cookie};
  }
  void submit(const std::vector<IoRequest>& requests) {
    const Status submitted = queue_->submit(requests);
    ASSERT_TRUE(submitted.ok()) << submitted.error().message;
  }
  void drain() {
    const Status drained = queue_->drain(kPatienceNs);
    ASSERT_TRUE(drained.ok()) << drained.error().message;
  }

  BatterySink sink_;
  std::unique_ptr<StorageWorld> world_;
  std::unique_ptr<StorageQueue> queue_;
  FileId file_ = 0;
};

}  // namespace penstock::testing
