#pragma once

/// What the two queues over real files share: the request book under a lock, intake, delivery,
/// bounded waiting. Each backend adds only how pieces reach the kernel.
///
/// Invariants
///   1. `book` and every flag are touched under `mutex` only.
///   2. The sink is called without the lock, and never once `abandoned` is set: setting it waits
///      until no delivery is under way, so the sink may die right after.
///   3. A QueueState is shared by the queue and its I/O threads. If a thread outlives the bounded
///      wait of the destructor (the kernel still owns memory), the state lives on with it.
///   4. In a forked child nothing is locked, submitted or waited for: the threads are not there.

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/home_process.hpp"
#include "io/request_book.hpp"

namespace penstock {

/// How long a destructor waits for the kernel before it leaks what is in flight.
inline constexpr std::uint64_t kShutdownWaitNs = 30'000'000'000;
/// How long submit() waits for a place.
inline constexpr std::uint64_t kSubmitWaitNs = 150'000'000'000;

class QueueState {
  static constexpr std::size_t kDeliverers = 128;  // I/O threads, and callers that drop requests

 public:
  QueueState(std::shared_ptr<PosixFileTable> files, CompletionSink& sink,
             const QueueOptions& options, std::uint32_t pieces_per_drive = 0)
      : book(options, pieces_per_drive), files_(std::move(files)), sink_(sink) {
    delivering_.reserve(kDeliverers);  // delivering must not need memory
  }
  virtual ~QueueState() = default;

  Status submit(std::span<const IoRequest> requests) noexcept;
  std::size_t drop_queued(Errc code, int sys_errno) noexcept;
  Status drain(std::uint64_t timeout_ns) noexcept;
  [[nodiscard]] IoStats stats() noexcept;
  std::size_t drive_stats(std::span<DriveStats> into) noexcept;

  /// Refuses further requests and cancels those the kernel has nothing of; waits, bounded, for the
  /// rest; then no completion is delivered any more. False when something is still in flight.
  bool shut_down() noexcept;

  /// Delivers, with the lock released meanwhile.
  void deliver(std::unique_lock<std::mutex>& lock, const IoCompletion& completion) noexcept;

  std::mutex mutex;
  RequestBook book;
  bool closing = false;
  std::string broken;  ///< not empty: every later submit() fails with kInternal and this sentence

 protected:
  /// Called under the lock after requests were added or `closing` was set.
  virtual void wake() noexcept = 0;
  [[nodiscard]] bool abandoned() const { return abandoned_; }

 private:
  [[nodiscard]] bool in_completion() const;

  HomeProcess home_;
  std::shared_ptr<PosixFileTable> files_;  // outlives the storage if the queue does
  CompletionSink& sink_;
  std::condition_variable progress_;  // room for requests, or a request less in flight
  std::vector<std::thread::id> delivering_;
  bool abandoned_ = false;
};

}  // namespace penstock
