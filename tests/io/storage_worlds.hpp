#pragma once

// The storages that the batteries run over, and a sink that checks "exactly once".

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "io/forwarding_storage.hpp"
#include "io/sim_storage.hpp"
#include "io/storage_pages.hpp"
#include "temporary_directory.hpp"

namespace penstock::testing {

inline constexpr std::uint64_t kSecondNs = 1'000'000'000;
inline constexpr std::uint64_t kPatienceNs = 120 * kSecondNs;  // a hang, not a slow drive

/// Collects completions. A closed gate holds every completion but cancellations.
class BatterySink final : public CompletionSink {
 public:
  void io_complete(const IoCompletion& completion) noexcept override {
    {
      std::unique_lock lock(mutex_);
      if (completion.code != Errc::kCancelled) {
        if (!open_) ++held_;
        changed_.notify_all();
        changed_.wait(lock, [this] { return open_; });
      }
    }
    if (react) react(completion);
    const std::lock_guard lock(mutex_);
    ++times_[completion.cookie];
    completions_[completion.cookie] = completion;
  }
  void close_gate() {
    const std::lock_guard lock(mutex_);
    open_ = false;
  }
  void open_gate() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  /// Until a completion is held, so that the queue is known to have begun.
  void wait_at_gate() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return held_ > 0; });
  }
  [[nodiscard]] IoCompletion of(std::uint64_t cookie) {
    const std::lock_guard lock(mutex_);
    return completions_.at(cookie);
  }
  /// Every cookie of [0, count) came, once, and no other.
  void expect_exactly_once(std::uint64_t count) {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(times_.size(), count);
    for (const auto& [cookie, times] : times_) {
      EXPECT_LT(cookie, count);
      EXPECT_EQ(times, 1) << "cookie " << cookie;
    }
  }
  [[nodiscard]] std::uint64_t count(Errc code) {
    const std::lock_guard lock(mutex_);
    std::uint64_t count = 0;
    for (const auto& [cookie, completion] : completions_) count += completion.code == code ? 1 : 0;
    return count;
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    times_.clear();
    completions_.clear();
  }

  std::function<void(const IoCompletion&)> react;  // set before requests are submitted

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true;
  int held_ = 0;  // completions that came to a closed gate
  std::map<std::uint64_t, int> times_;
  std::map<std::uint64_t, IoCompletion> completions_;
};

/// kForwarded: the system's files behind a storage that passes everything on.
enum class World { kThreads, kUring, kSimulated, kForwarded };

inline const char* name_of(World world) {
  return world == World::kThreads ? "threads" : world == World::kUring ? "io_uring" : "simulated";
}

/// One storage with a directory to work in.
class StorageWorld {
 public:
  explicit StorageWorld(World kind) : kind_(kind) {
    if (kind == World::kSimulated) {
      timeline_ = std::make_unique<Timeline>(20);
      storage_ = make_sim_storage(*timeline_);
      directory_ = "/work";
      EXPECT_TRUE(storage_->make_directory(directory_).ok());
    } else {
      temporary_ = std::make_unique<TemporaryDirectory>();
      storage_ = make_posix_storage();
      directory_ = temporary_->path();
    }
    if (kind != World::kForwarded) return;
    under_ = std::move(storage_);
    storage_ = std::make_unique<ForwardingStorage>(*under_);
  }
  [[nodiscard]] bool simulated() const { return kind_ == World::kSimulated; }
  [[nodiscard]] Storage& storage() { return *storage_; }
  [[nodiscard]] SimStorage& sim() { return dynamic_cast<SimStorage&>(*storage_); }
  [[nodiscard]] std::string path(const std::string& name) const { return directory_ + "/" + name; }
  [[nodiscard]] const std::string& directory() const { return directory_; }
  [[nodiscard]] Result<std::unique_ptr<StorageQueue>> make_queue(CompletionSink& sink,
                                                                 QueueOptions options = {}) {
    options.backend = kind_ == World::kUring ? QueueBackend::kUring : QueueBackend::kThreads;
    return storage_->make_queue(sink, options);
  }

 private:
  World kind_;
  std::unique_ptr<Timeline> timeline_;
  std::unique_ptr<TemporaryDirectory> temporary_;
  std::unique_ptr<Storage> under_;  // of kForwarded
  std::unique_ptr<Storage> storage_;
  std::string directory_;
};

}  // namespace penstock::testing
