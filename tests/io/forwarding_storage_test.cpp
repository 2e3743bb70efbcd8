// Calls that must be passed on are so by the compiler; those with a default of their own are tried
// here, over a storage that answers them otherwise. (The battery of storages runs over one, too.)

#include "io/forwarding_storage.hpp"

#include <gtest/gtest.h>

#include "base/timeline.hpp"
#include "io/sim_storage.hpp"

namespace penstock {
namespace {

class OtherAnswers final : public ForwardingStorage {
 public:
  using ForwardingStorage::ForwardingStorage;
  std::uint64_t drive(FileId file) const override { return file + 40; }
  Status sync_all(std::span<const FileId> files) override {
    synced = files.size();
    return ok();
  }
  void begin_writeback(const std::string& path) override { begun = path; }
  std::uint64_t names_room_bytes(const std::string& directory) const override {
    return directory.size();
  }
  std::uint64_t longest_file_bytes() const override { return 123; }
  std::optional<std::uint64_t> counted_bytes(const std::string& directory) const override {
    return directory.size() + 7;
  }
  std::size_t synced = 0;
  std::string begun;
};

TEST(ForwardingStorageTest, PassesOnWhatHasADefault) {
  Timeline timeline(1);
  const auto drive = make_sim_storage(timeline);
  OtherAnswers under(*drive);
  ForwardingStorage storage(static_cast<Storage&>(under));
  EXPECT_EQ(storage.drive(2), 42U);
  const FileId files[] = {1, 2, 3};
  EXPECT_TRUE(storage.sync_all(files));
  EXPECT_EQ(under.synced, 3U);
  storage.begin_writeback("x/y");
  EXPECT_EQ(under.begun, "x/y");
  EXPECT_EQ(storage.names_room_bytes("abc"), 3U);
  EXPECT_EQ(storage.longest_file_bytes(), 123U);
  EXPECT_EQ(storage.counted_bytes("abc"), 10U);
}

class OneDrive final : public ForwardingQueue {
 public:
  using ForwardingQueue::ForwardingQueue;
  std::size_t drive_stats(std::span<DriveStats> into) const noexcept override {
    if (!into.empty()) into[0].drive = 9;
    return 1;
  }
};

TEST(ForwardingQueueTest, PassesOnWhatHasADefault) {
  class Sink final : public CompletionSink {
    void io_complete(const IoCompletion&) noexcept override {}
  } sink;
  Timeline timeline(1);
  const auto drive = make_sim_storage(timeline);
  auto made = drive->make_queue(sink, {});
  ASSERT_TRUE(made);
  const ForwardingQueue queue(std::make_unique<OneDrive>(std::move(made).value()));
  DriveStats stats[2];
  EXPECT_EQ(queue.drive_stats(stats), 1U);
  EXPECT_EQ(stats[0].drive, 9U);
}

}  // namespace
}  // namespace penstock
