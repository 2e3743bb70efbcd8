// What measuring a drive asks of it: told by a queue that writes slowly and remembers.

#include "io/drive_rates.hpp"

#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "io/forwarding_storage.hpp"
#include "io/page_buffer.hpp"
#include "io/sim_storage.hpp"

namespace penstock {
namespace {

constexpr std::uint64_t kMiBytes = 1U << 20;
using Places = std::set<std::pair<FileId, std::uint64_t>>;

struct Seen {
  std::mutex mutex;  // guards both
  Places written, read;
};

/// One request at a time, on a thread of its own; each write takes a while.
class SlowWrites final : public StorageQueue {
 public:
  SlowWrites(CompletionSink& sink, Seen& seen)
      : sink_(sink), seen_(seen), thread_([this] { work(); }) {}
  ~SlowWrites() override {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Status submit(std::span<const IoRequest> requests) noexcept override {
    const std::lock_guard lock(mutex_);
    waiting_.insert(waiting_.end(), requests.begin(), requests.end());
    changed_.notify_all();
    return ok();
  }
  std::size_t drop_queued() noexcept override { return 0; }
  Status drain(std::uint64_t) noexcept override { return ok(); }
  [[nodiscard]] IoStats stats() const noexcept override { return {}; }
  [[nodiscard]] std::string backend() const override { return "fake"; }
  [[nodiscard]] std::string backend_reason() const override { return "a test"; }

 private:
  void work() {
    while (true) {
      IoRequest request;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return closing_ || !waiting_.empty(); });
        if (waiting_.empty()) return;
        request = waiting_.front();
        waiting_.pop_front();
      }
      const bool writes = request.op == IoOp::kWrite;
      if (writes) std::this_thread::sleep_for(std::chrono::milliseconds(3));
      {
        const std::lock_guard lock(seen_.mutex);
        (writes ? seen_.written : seen_.read).emplace(request.file, request.offset_bytes);
      }
      sink_.io_complete({.cookie = request.cookie, .bytes = request.bytes});
    }
  }

  CompletionSink& sink_;
  Seen& seen_;
  std::mutex mutex_;  // guards the two below
  std::deque<IoRequest> waiting_;
  bool closing_ = false;
  std::condition_variable changed_;
  std::thread thread_;
};

class WatchedStorage final : public ForwardingStorage {
 public:
  using ForwardingStorage::ForwardingStorage;
  Result<std::unique_ptr<StorageQueue>> make_queue(CompletionSink& sink,
                                                   const QueueOptions&) override {
    return std::unique_ptr<StorageQueue>(std::make_unique<SlowWrites>(sink, seen));
  }
  Seen seen;
};

TEST(DriveRatesTest, ReadsOnlyWhatItHasJustWritten) {
  Timeline timeline(1);
  const auto under = make_sim_storage(timeline);
  WatchedStorage storage(*under);
  PageBuffer memory(4 * kMiBytes);
  ASSERT_FALSE(memory.empty());
  // Far more than the slow writes reach; a file never written may be read without its drive.
  const DriveRegion regions[] = {{1, 0, 1024 * kMiBytes}, {2, 64 * kMiBytes, 512 * kMiBytes}};
  const auto rates = measure_drives(storage, regions, memory.span(), 0.05);
  ASSERT_TRUE(rates) << rates.error().message;
  EXPECT_GT(rates.value().read_bytes_per_second, rates.value().write_bytes_per_second);
  EXPECT_EQ(rates.value().written_bytes, storage.seen.written.size() * kMiBytes);
  EXPECT_FALSE(storage.seen.read.empty());
  for (const auto& place : storage.seen.read) {
    EXPECT_TRUE(storage.seen.written.contains(place))
        << "file " << place.first << " at byte " << place.second;
  }
}

TEST(DriveRatesTest, RefusesRegionsAndMemoryTooSmallToMeasure) {
  Timeline timeline(1);
  const auto under = make_sim_storage(timeline);
  WatchedStorage storage(*under);
  PageBuffer memory(4 * kMiBytes);
  const DriveRegion small[] = {{1, 0, kMiBytes}}, large[] = {{1, 0, 2 * kMiBytes}};
  EXPECT_EQ(measure_drives(storage, {}, memory.span(), 0.01).error().code, Errc::kArgument);
  EXPECT_EQ(measure_drives(storage, small, memory.span(), 0.01).error().code, Errc::kArgument);
  EXPECT_EQ(measure_drives(storage, large, memory.span().first(kMiBytes), 0.01).error().code,
            Errc::kArgument);
}

}  // namespace
}  // namespace penstock
