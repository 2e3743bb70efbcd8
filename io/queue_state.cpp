#include "io/queue_state.hpp"

#include <algorithm>
#include <array>
#include <chrono>

#include <fmt/format.h>

namespace penstock {

bool QueueState::in_completion() const {
  return std::find(delivering_.begin(), delivering_.end(), std::this_thread::get_id()) !=
         delivering_.end();
}

Status QueueState::submit(std::span<const IoRequest> requests) noexcept {
  PENSTOCK_CHECK_OK(home_.check("the storage queue"));
  constexpr std::size_t kFew = 8;  // batches of a running engine take no memory
  std::array<PosixFilePtr, kFew> few;
  std::vector<PosixFilePtr> many(requests.size() > kFew ? requests.size() : 0);
  const std::span<PosixFilePtr> files = many.empty() ? std::span<PosixFilePtr>(few) : many;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const bool same = i != 0 && requests[i].file == requests[i - 1].file;
    files[i] = same ? files[i - 1] : files_->find(requests[i].file);
    PENSTOCK_CHECK_OK(check_request(requests[i], files[i].get(), i));
  }
  const std::uint64_t now_ns = steady_now_ns();
  std::unique_lock lock(mutex);
  const bool inside = in_completion();
  if (inside && book.room(true) < requests.size() && broken.empty() && !closing) {
    return make_error(Errc::kState,
                      fmt::format("submit: {} requests from inside a completion exceed the {} free "
                                  "places, and waiting there would never end; submit fewer",
                                  requests.size(), book.room(true)));
  }
  for (std::size_t i = 0; i < requests.size();) {
    if (!broken.empty()) return make_error(Errc::kInternal, broken);
    if (closing) {
      return make_error(Errc::kState, "submit: the queue is shutting down; submit to another one");
    }
    std::size_t room = book.room(inside);
    for (; room != 0 && i < requests.size(); --room, ++i) {
      book.add(requests[i], std::move(files[i]), now_ns);
    }
    wake();
    if (i == requests.size()) break;
    const std::chrono::nanoseconds left(now_ns + kSubmitWaitNs - steady_now_ns());
    if (left.count() <= 0 || progress_.wait_for(lock, left) == std::cv_status::timeout) {
      return make_error(Errc::kTimeout, fmt::format("submit: no place became free; {}; check the "
                                                    "drive (kernel log)",
                                                    book.describe(steady_now_ns())));
    }
  }
  return ok();
}

void QueueState::deliver(std::unique_lock<std::mutex>& lock,
                         const IoCompletion& completion) noexcept {
  if (!abandoned_) {
    delivering_.push_back(std::this_thread::get_id());
    lock.unlock();
    sink_.io_complete(completion);
    lock.lock();
    delivering_.erase(
        std::find(delivering_.begin(), delivering_.end(), std::this_thread::get_id()));
  }
  book.delivered();
  progress_.notify_all();
}

std::size_t QueueState::drop_queued(Errc code, int sys_errno) noexcept {
  if (!home_.is_here()) return 0;
  std::unique_lock lock(mutex);
  std::size_t dropped = 0;
  // A sink that submits again from a cancellation must not keep this going for ever.
  const std::uint64_t most = book.in_flight();
  while (dropped < most) {
    const std::optional<IoCompletion> completion = book.drop_one(code, sys_errno);
    if (!completion) break;
    ++dropped;
    deliver(lock, *completion);
  }
  return dropped;
}

Status QueueState::drain(std::uint64_t timeout_ns) noexcept {
  PENSTOCK_CHECK_OK(home_.check("the storage queue"));
  std::unique_lock lock(mutex);
  const auto idle = [this] { return book.in_flight() == 0; };
  // Capped: an "endless" timeout must not overflow the clock.
  const std::chrono::nanoseconds wait(std::min<std::uint64_t>(timeout_ns, std::uint64_t{1} << 60));
  if (progress_.wait_for(lock, wait, idle)) return ok();
  return make_error(Errc::kTimeout,
                    fmt::format("drain: {}; in-flight transfers cannot be cancelled, their memory "
                                "stays the kernel's",
                                book.describe(steady_now_ns())));
}

IoStats QueueState::stats() noexcept {
  if (!home_.is_here()) return {};
  const std::lock_guard lock(mutex);
  return book.stats(steady_now_ns());
}

std::size_t QueueState::drive_stats(std::span<DriveStats> into) noexcept {
  if (!home_.is_here()) return 0;
  const std::lock_guard lock(mutex);
  return book.drive_stats(into, steady_now_ns());
}

bool QueueState::shut_down() noexcept {
  if (!home_.is_here()) return false;
  {
    const std::lock_guard lock(mutex);
    closing = true;
    progress_.notify_all();  // whoever waits for room
    wake();
  }
  drop_queued(Errc::kCancelled, 0);
  const bool idle = drain(kShutdownWaitNs).ok();
  std::unique_lock lock(mutex);
  wake();  // the I/O threads end once nothing is in flight
  abandoned_ = true;
  progress_.wait(lock, [this] { return delivering_.empty(); });
  return idle;
}

}  // namespace penstock
