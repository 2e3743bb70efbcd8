#include "io/uring_queue.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <system_error>

#include <fmt/format.h>

#include "io/queue_backends.hpp"
#include "io/uring_ring.hpp"

namespace penstock {

namespace {

constexpr std::uint64_t kEnterStuckNs = 5'000'000'000;

void pause_ns(std::uint64_t ns) {
  const timespec pause{0, static_cast<long>(ns)};
  ::nanosleep(&pause, nullptr);
}

}  // namespace

UringQueueState::~UringQueueState() {
  if (has_ring_) io_uring_queue_exit(&ring_);
  if (wake_fd_ >= 0) ::close(wake_fd_);
}

void UringQueueState::wake() noexcept {
  if (!sleeping_) return;
  sleeping_ = false;
  const std::uint64_t one = 1;
  // A full counter would mean that the thread is being woken already.
  [[maybe_unused]] const ssize_t written = ::write(wake_fd_, &one, sizeof one);
}

Status UringQueueState::open_ring() {
  wake_fd_ = ::eventfd(0, EFD_CLOEXEC);
  if (wake_fd_ < 0) {
    return make_error(Errc::kUnsupported,
                      fmt::format("make an eventfd: {} ({}); raise \"ulimit -n\"",
                                  std::generic_category().message(errno), errno),
                      errno);
  }
  auto words = open_uring(ring_, kPieces);
  if (!words) return std::move(words).error();
  has_ring_ = true;
  if (options_.register_memory) memory_.lend(ring_, options_.memory);
  if (options_.priorities) priorities_ = io_priorities();
  description_ = fmt::format("{}, {}, {}", words.value(), memory_.words(), words_of(priorities_));
  return ok();
}

Status UringQueueState::wait_started() {
  std::unique_lock lock(mutex);
  start_changed_.wait(lock, [this] { return started_; });
  return start_status_;
}

void UringQueueState::run() noexcept {
  settle_io_thread(options_.nodes.empty() ? IoNode{} : options_.nodes.front());
  Status opened = open_ring();
  const bool good = opened.ok();
  {
    const std::lock_guard lock(mutex);
    start_status_ = std::move(opened);
    started_ = true;
    start_changed_.notify_all();
  }
  if (!good) return;
  while (prepare_round()) {
    submit_round();
    reap();
  }
  // Here, not in the destructor: a ring with one issuer ends on its own thread.
  io_uring_queue_exit(&ring_);
  has_ring_ = false;
}

bool UringQueueState::prepare_round() {
  const std::uint64_t now_ns = steady_now_ns();
  for (std::size_t i = 0; i < delayed_.size();) {
    if (delayed_[i].due_ns > now_ns || io_uring_sq_space_left(&ring_) == 0) {
      ++i;
      continue;
    }
    prepare_piece(delayed_[i].name);
    delayed_[i] = delayed_.back();
    delayed_.pop_back();
  }
  if (!wake_armed_) prepare_wake();
  const std::lock_guard lock(mutex);
  if (closing && book.in_flight() == 0) return false;
  while (!injected_.empty() && io_uring_sq_space_left(&ring_) != 0) {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    io_uring_prep_nop(sqe);
    io_uring_sqe_set_data64(sqe, injected_.back());
    injected_.pop_back();
  }
  while (!pieces_.full() && io_uring_sq_space_left(&ring_) != 0) {
    const std::optional<Piece> piece = book.next_piece();
    if (!piece) break;
    prepare_piece(pieces_.put(*piece));
  }
  sleeping_ = true;
  return true;
}

void UringQueueState::prepare_piece(std::uint64_t name) {
  const Piece& piece = *pieces_.find(name);
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);  // the caller made sure of the room
  std::byte* memory = piece.memory + piece.transfer.done;
  const auto bytes = static_cast<unsigned>(piece.transfer.bytes - piece.transfer.done);
  const std::uint64_t offset = piece.offset_bytes + piece.transfer.done;
  const int file = piece.file->descriptor(), place = memory_.find(memory, bytes);
  if (piece.transfer.op == IoOp::kRead) {
    place < 0 ? io_uring_prep_read(sqe, file, memory, bytes, offset)
              : io_uring_prep_read_fixed(sqe, file, memory, bytes, offset, place);
  } else {
    place < 0 ? io_uring_prep_write(sqe, file, memory, bytes, offset)
              : io_uring_prep_write_fixed(sqe, file, memory, bytes, offset, place);
  }
  sqe->ioprio = static_cast<std::uint16_t>(priorities_[static_cast<std::size_t>(piece.io_class)]);
  io_uring_sqe_set_data64(sqe, name);
}

void UringQueueState::prepare_wake() {
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  if (sqe == nullptr) return;  // next round
  io_uring_prep_read(sqe, wake_fd_, &wake_value_, sizeof wake_value_, 0);
  io_uring_sqe_set_data64(sqe, kWakeData);
  wake_armed_ = true;
}

void UringQueueState::submit_round() {
  int result = 0;
  if (delayed_.empty()) {
    result = io_uring_submit_and_wait(&ring_, 1);
  } else {
    const auto next =
        std::min_element(delayed_.begin(), delayed_.end(),
                         [](const Delayed& a, const Delayed& b) { return a.due_ns < b.due_ns; });
    const std::uint64_t now_ns = steady_now_ns();
    __kernel_timespec wait{0, static_cast<long long>(next->due_ns > now_ns ? next->due_ns - now_ns
                                                                           : std::uint64_t{1})};
    io_uring_cqe* cqe = nullptr;
    result = io_uring_submit_and_wait_timeout(&ring_, &cqe, 1, &wait, nullptr);
    if (result == -ETIME) result = 0;
  }
  {
    const std::lock_guard lock(mutex);
    sleeping_ = false;
  }
  if (result >= 0 || result == -EINTR) {
    stuck_since_ns_ = 0;
  } else {
    enter_failed(-result);
  }
}

// What was not submitted stays in the ring and goes with the next enter.
void UringQueueState::enter_failed(int error) {
  if (io_uring_cq_ready(&ring_) != 0) return;  // reaping makes room
  const std::uint64_t now_ns = steady_now_ns();
  if (stuck_since_ns_ == 0) stuck_since_ns_ = now_ns;
  const bool passing = error == EAGAIN || error == EBUSY || error == ENOMEM;
  if (!passing || now_ns - stuck_since_ns_ > kEnterStuckNs) fail_queue(error);
  pause_ns(1'000'000);
}

void UringQueueState::fail_queue(int error) {
  {
    const std::lock_guard lock(mutex);
    if (!broken.empty()) return;
    broken = fmt::format("the io_uring takes nothing any more: {} ({}); make a new queue",
                         std::generic_category().message(error), error);
  }
  drop_queued(Errc::kIo, error);
}

void UringQueueState::reap() {
  for (;;) {
    io_uring_cqe* cqe = nullptr;
    if (io_uring_peek_cqe(&ring_, &cqe) != 0 || cqe == nullptr) return;
    const std::uint64_t name = io_uring_cqe_get_data64(cqe);
    const std::int32_t result = cqe->res;
    io_uring_cqe_seen(&ring_, cqe);
    if (name == kWakeData) {
      wake_armed_ = false;
    } else if (name != LIBURING_UDATA_TIMEOUT) {
      completed(name, result);
    }
  }
}

/// Whether `result` only says that a feature was promised too much; then it is not used any more.
bool UringQueueState::drop_feature(const Piece& piece, std::int32_t result) {
  if (result == -EOPNOTSUPP && memory_.find(piece.memory, piece.transfer.bytes) >= 0) {
    memory_.forget();
    return true;
  }
  if (result == -EPERM && priorities_ != IoPriorities{}) {
    priorities_ = {};
    return true;
  }
  return false;
}

void UringQueueState::completed(std::uint64_t name, std::int32_t result) {
  Piece* piece = pieces_.find(name);
  if (piece == nullptr) {
    unknown_completion(name);
    return;
  }
  if (drop_feature(*piece, result)) {
    ++piece->transfer.retries;
    delayed_.push_back({0, name});
    return;
  }
  std::uint64_t refused = 0;
  const Verdict verdict = judge_on(*piece->file, piece->transfer, result, refused);
  if (refused != 0) {
    const std::lock_guard lock(mutex);
    book.count_direct_refused();
  }
  switch (verdict.move) {
    case NextMove::kContinue:
    case NextMove::kRetryNow:
      delayed_.push_back({0, name});
      return;
    case NextMove::kRetryLater:
      delayed_.push_back({steady_now_ns() + retry_pause_ns(piece->transfer.stalled), name});
      return;
    case NextMove::kDone:
    case NextMove::kFail:
      break;
  }
  const Piece ended = *piece;
  pieces_.release(name);
  std::unique_lock lock(mutex);
  const std::optional<IoCompletion> completion =
      book.finish(ended, {verdict.code, verdict.sys_errno, 0});
  if (completion) deliver(lock, *completion);
}

void UringQueueState::unknown_completion(std::uint64_t name) {
  const std::lock_guard lock(mutex);
  book.count_error();
  if (!broken.empty()) return;
  broken = fmt::format(
      "the io_uring completed {:#x}, which nobody submitted: memory may be wrong; "
      "stop the run and report this",
      name);
}

void UringQueueState::inject_completion(std::uint64_t user_data) {
  const std::lock_guard lock(mutex);
  injected_.push_back(user_data);
  wake();
}

namespace {

class UringQueue final : public StorageQueue {
 public:
  explicit UringQueue(std::shared_ptr<UringQueueState> state) : state_(std::move(state)) {}
  UringQueue(const UringQueue&) = delete;
  UringQueue& operator=(const UringQueue&) = delete;

  ~UringQueue() override {
    if (!thread_.joinable()) return;
    if (state_->shut_down()) {
      thread_.join();
    } else {
      thread_.detach();  // it keeps the state, and the ring, for as long as the kernel needs them
    }
  }

  Status start() {
    try {
      thread_ = std::thread([state = state_] { state->run(); });
    } catch (const std::system_error& error) {
      return make_error(
          Errc::kNoMemory,
          fmt::format("start the I/O thread: {}; raise \"ulimit -u\", or \"-v\" where it is set",
                      error.what()),
          error.code().value());
    }
    Status started = state_->wait_started();
    if (!started) thread_.join();
    return started;
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
  std::string backend() const override { return "io_uring"; }
  std::string backend_reason() const override {
    return "the kernel offers " + state_->ring_description();
  }
  std::string shortfall() const override { return state_->shortfall(); }

 private:
  std::shared_ptr<UringQueueState> state_;  // shared with the thread, see QueueState
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<StorageQueue>> make_uring_queue(std::shared_ptr<PosixFileTable> files,
                                                       CompletionSink& sink,
                                                       const QueueOptions& options) {
  auto state = std::make_shared<UringQueueState>(std::move(files), sink, options);
  auto queue = std::make_unique<UringQueue>(std::move(state));
  PENSTOCK_CHECK_OK(queue->start());
  return std::unique_ptr<StorageQueue>(std::move(queue));
}

}  // namespace penstock
