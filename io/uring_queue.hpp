#pragma once

/// Internals of the io_uring queue: the loop of its one I/O thread.
///
/// The thread creates the ring, is the only one to touch it, and repeats: take pieces from the book
/// as far as credit and places go, submit and wait for at least one completion, book them all.
/// Producers wake it through an eventfd, which it reads through the ring, and only when it said
/// that it is about to sleep.

#include <liburing.h>

#include <condition_variable>

#include "io/io_thread.hpp"
#include "io/piece_table.hpp"
#include "io/queue_state.hpp"
#include "io/ring_memory.hpp"

namespace penstock {

class UringQueueState final : public QueueState {
 public:
  UringQueueState(std::shared_ptr<PosixFileTable> files, CompletionSink& sink,
                  const QueueOptions& options)
      : QueueState(std::move(files), sink, options), options_(options), pieces_(kPieces) {
    delayed_.reserve(kPieces);  // a retry must not need memory
  }
  ~UringQueueState() override;
  UringQueueState(const UringQueueState&) = delete;
  UringQueueState& operator=(const UringQueueState&) = delete;

  /// Body of the I/O thread.
  void run() noexcept;

  /// Waits until run() has a ring, or says why it has none.
  Status wait_started();
  /// "io_uring with single issuer and deferred task work".
  [[nodiscard]] std::string ring_description() const { return description_; }
  [[nodiscard]] std::string shortfall() const { return memory_.shortfall(); }

  /// Tests only: makes the ring complete something nobody submitted.
  void inject_completion(std::uint64_t user_data);

 private:
  static constexpr std::uint32_t kPieces = 256;
  // Above every name of a PieceTable, and not liburing's own (all ones).
  static constexpr std::uint64_t kWakeData = ~std::uint64_t{1};

  void wake() noexcept override;
  Status open_ring();
  bool prepare_round();  // false when the thread is to end
  void submit_round();
  void enter_failed(int error);
  void prepare_piece(std::uint64_t name);
  void prepare_wake();
  void reap();
  void completed(std::uint64_t name, std::int32_t result);
  void unknown_completion(std::uint64_t name);
  void fail_queue(int error);

  [[nodiscard]] bool drop_feature(const Piece& piece, std::int32_t result);

  // Of the I/O thread alone.
  const QueueOptions options_;
  io_uring ring_{};
  RingMemory memory_;
  IoPriorities priorities_{};
  bool has_ring_ = false;
  PieceTable pieces_;
  struct Delayed {
    std::uint64_t due_ns, name;
  };
  std::vector<Delayed> delayed_;  // retries that wait a little
  std::uint64_t wake_value_ = 0;
  bool wake_armed_ = false;
  std::uint64_t stuck_since_ns_ = 0;  // the kernel takes nothing since; 0: it does

  // Under the mutex.
  int wake_fd_ = -1;
  bool sleeping_ = false;
  bool started_ = false;
  Status start_status_ = ok();
  std::condition_variable start_changed_;
  std::vector<std::uint64_t> injected_;
  std::string description_;
};

}  // namespace penstock
