// Invariants
//   * pending_ = tasks submitted (both kinds) whose run has not returned; it changes only under
//     mutex_, so that the destructor cannot free the mutex under the last finisher.
//   * The arena holds `threads` slots, none reserved: workers serve submitted tasks while the
//     caller computes elsewhere, and a caller of parallel_for takes a slot or lends its work.
//   * Blocking tasks run in submission order on blocking_thread_, never on an arena thread.

#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <thread>

#include <tbb/blocked_range.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/partitioner.h>
#include <tbb/task_arena.h>

#include "base/executor.hpp"

namespace penstock {
namespace {

/// Runs `attempt` until memory suffices. A queued task must not be dropped and must not run inside
/// submit, where its caller may hold locks; tasks that finish meanwhile give memory back.
template <class Attempt>
void until_memory_suffices(const Attempt& attempt) noexcept {
  for (;;) {
    try {
      attempt();
      return;
    } catch (const std::bad_alloc&) {
      std::this_thread::yield();
    }
  }
}

/// oneTBB starts one thread less than it may use, by default than the machine has: room for
/// `threads` workers beside the caller needs a higher limit. Never lowers what others set.
std::optional<tbb::global_control> room_for(int threads) {
  constexpr auto kLimit = tbb::global_control::max_allowed_parallelism;
  const auto wanted = static_cast<std::size_t>(threads) + 1;
  if (tbb::global_control::active_value(kLimit) >= wanted) return std::nullopt;
  return std::optional<tbb::global_control>(std::in_place, kLimit, wanted);
}

class TbbExecutor final : public Executor {
 public:
  explicit TbbExecutor(int threads)
      : room_(room_for(threads)),
        arena_(threads, 0),
        blocking_thread_([this] { run_blocking(); }) {}

  ~TbbExecutor() override {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return pending_ == 0; });
      stop_ = true;
      changed_.notify_all();
    }
    blocking_thread_.join();
  }

  TbbExecutor(const TbbExecutor&) = delete;
  TbbExecutor& operator=(const TbbExecutor&) = delete;

  void submit(Task task) noexcept override {
    {
      const std::lock_guard lock(mutex_);
      ++pending_;
    }
    until_memory_suffices([this, task] {
      arena_.enqueue([this, task] {
        task.run(task.context, task.argument);
        finish_one();
      });
    });
  }

  void submit_blocking(Task task) noexcept override {
    until_memory_suffices([this, task] {
      const std::lock_guard lock(mutex_);
      blocking_tasks_.push_back(task);
      ++pending_;
      changed_.notify_all();
    });
  }

  void parallel_for(std::size_t count,
                    const std::function<void(std::size_t)>& body) noexcept override {
    if (count == 0) return;
    if (count == 1) {
      body(0);
      return;
    }
    arena_.execute([count, &body] {
      // Isolated: a thread that waits for this loop runs no piece of another loop meanwhile, which
      // might need a lock that this loop's caller holds.
      tbb::this_task_arena::isolate([count, &body] {
        tbb::parallel_for(
            tbb::blocked_range<std::size_t>(0, count, 1),
            [&body](const tbb::blocked_range<std::size_t>& range) {
              for (std::size_t i = range.begin(); i != range.end(); ++i) body(i);
            },
            tbb::simple_partitioner{});
      });
    });
  }

  [[nodiscard]] int thread_count() const noexcept override { return arena_.max_concurrency(); }
  bool run_one() noexcept override { return false; }
  [[nodiscard]] bool driven_by_caller() const noexcept override { return false; }

 private:
  void finish_one() noexcept {
    const std::lock_guard lock(mutex_);
    if (--pending_ == 0) changed_.notify_all();
  }

  void run_blocking() noexcept {
    for (;;) {
      Task task;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return stop_ || !blocking_tasks_.empty(); });
        if (blocking_tasks_.empty()) return;
        task = blocking_tasks_.front();
        blocking_tasks_.pop_front();
      }
      task.run(task.context, task.argument);
      finish_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> blocking_tasks_;
  std::size_t pending_ = 0;
  bool stop_ = false;
  std::optional<tbb::global_control> room_;
  tbb::task_arena arena_;
  std::thread blocking_thread_;  // last: it uses all of the above
};

}  // namespace

std::unique_ptr<Executor> make_tbb_executor(int threads) {
  try {
    return std::make_unique<TbbExecutor>(threads < 1 ? 1 : threads);
  } catch (const std::system_error&) {
    return nullptr;  // the system refuses another thread
  }
}

}  // namespace penstock
