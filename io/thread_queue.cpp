// The queue of threads that call pread and pwrite: as fast as io_uring at 1 MiB, more CPU.

#include <algorithm>
#include <system_error>

#include <fmt/format.h>

#include "io/io_thread.hpp"
#include "io/queue_backends.hpp"
#include "io/queue_state.hpp"

namespace penstock {

namespace {

constexpr std::uint32_t kThreadsMax = 64;

class ThreadQueueState final : public QueueState {
 public:
  ThreadQueueState(std::shared_ptr<PosixFileTable> files, CompletionSink& sink,
                   const QueueOptions& options)
      : QueueState(std::move(files), sink, options, std::max(options.threads, 1U)),
        node_(options.nodes.empty() ? IoNode{} : options.nodes.front()),
        priorities_(options.priorities) {}

  /// Body of each I/O thread: until the queue closes and nothing is left to do.
  void work() noexcept {
    settle_io_thread(node_);
    const IoPriorities priorities = priorities_ ? io_priorities() : IoPriorities{};
    int priority = 0;
    std::unique_lock lock(mutex);
    for (;;) {
      std::optional<Piece> piece = book.next_piece();
      if (!piece) {
        if (closing && book.in_flight() == 0) break;
        work_.wait(lock);
        continue;
      }
      lock.unlock();
      const int wanted = priorities[static_cast<std::size_t>(piece->io_class)];
      if (wanted != priority && set_io_priority(wanted)) priority = wanted;
      const TransferEnd end =
          transfer_blocking(*piece->file, piece->transfer, piece->offset_bytes, piece->memory);
      lock.lock();
      const std::optional<IoCompletion> completion = book.finish(*piece, end);
      work_.notify_one();  // credit has come back
      if (completion) deliver(lock, *completion);
    }
    work_.notify_all();  // the last request is gone: the other threads may end, too
  }

 private:
  void wake() noexcept override { work_.notify_all(); }

  const IoNode node_;
  const bool priorities_;
  std::condition_variable work_;
};

class ThreadQueue final : public StorageQueue {
 public:
  ThreadQueue(std::shared_ptr<ThreadQueueState> state, std::string reason, std::string shortfall)
      : state_(std::move(state)), reason_(std::move(reason)), shortfall_(std::move(shortfall)) {}
  ThreadQueue(const ThreadQueue&) = delete;
  ThreadQueue& operator=(const ThreadQueue&) = delete;

  ~ThreadQueue() override {
    const bool idle = state_->shut_down();
    for (std::thread& thread : threads_) {
      // A thread stuck in the kernel keeps the state, and the memory stays with the kernel.
      idle ? thread.join() : thread.detach();
    }
  }

  Status start(std::uint32_t count) {
    try {
      for (std::uint32_t i = 0; i < count; ++i) {
        threads_.emplace_back([state = state_] { state->work(); });
      }
    } catch (const std::system_error& error) {
      // Fewer threads than asked for still do the work.
      if (threads_.empty()) {
        return make_error(
            Errc::kNoMemory,
            fmt::format("start an I/O thread: {}; raise \"ulimit -u\", or \"-v\" where it is set",
                        error.what()),
            error.code().value());
      }
    }
    return ok();
  }

  Status submit(std::span<const IoRequest> requests) noexcept override {
    return state_->submit(requests);
  }
  std::size_t drop_queued() noexcept override { return state_->drop_queued(Errc::kCancelled, 0); }
  Status drain(std::uint64_t timeout_ns) noexcept override { return state_->drain(timeout_ns); }
  IoStats stats() const noexcept override { return state_->stats(); }
  std::size_t drive_stats(std::span<DriveStats> into) const noexcept override {
    return state_->drive_stats(into);
  }
  std::string backend() const override { return "threads"; }
  std::string backend_reason() const override { return reason_; }
  std::string shortfall() const override { return shortfall_; }

 private:
  std::shared_ptr<ThreadQueueState> state_;  // shared with the threads, see QueueState
  std::string reason_, shortfall_;
  std::vector<std::thread> threads_;
};

}  // namespace

Result<std::unique_ptr<StorageQueue>> make_thread_queue(std::shared_ptr<PosixFileTable> files,
                                                        CompletionSink& sink,
                                                        const QueueOptions& options,
                                                        std::string reason, std::string shortfall) {
  auto state = std::make_shared<ThreadQueueState>(std::move(files), sink, options);
  auto queue =
      std::make_unique<ThreadQueue>(std::move(state), std::move(reason), std::move(shortfall));
  const std::uint64_t threads = std::uint64_t{options.threads} * std::max(options.drives, 1U);
  PENSTOCK_CHECK_OK(
      queue->start(static_cast<std::uint32_t>(std::clamp<std::uint64_t>(threads, 1, kThreadsMax))));
  return std::unique_ptr<StorageQueue>(std::move(queue));
}

}  // namespace penstock
