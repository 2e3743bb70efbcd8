#pragma once

/// Runs tasks, on oneTBB threads or on one deterministic thread over virtual time.
///
/// Threads: every member may be called from any thread, tasks included.
/// Memory:  a Task is three words and is copied; its context must outlive its run.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace penstock {

class Timeline;

/// A unit of work without allocation: `run(context, argument)`.
struct Task {
  void (*run)(void* context, std::uint64_t argument) = nullptr;
  void* context = nullptr;
  std::uint64_t argument = 0;
};

class Executor {
 public:
  virtual ~Executor() = default;

  /// Queues a task; it runs once, on some thread, some time later (never inside submit).
  virtual void submit(Task task) noexcept = 0;

  /// Queues a task that may block on the system (fsync, file creation). It never occupies a
  /// compute thread.
  virtual void submit_blocking(Task task) noexcept = 0;

  /// Runs body(0) .. body(count - 1), in any order and on any threads, and returns when all are
  /// done. Callable from tasks (nested). The result of a computation must not depend on the order.
  virtual void parallel_for(std::size_t count,
                            const std::function<void(std::size_t)>& body) noexcept = 0;

  [[nodiscard]] virtual int thread_count() const noexcept = 0;

  /// For one-thread executors: runs the next event of the virtual world in the caller's thread.
  /// False when there is nothing to run. Executors with threads of their own always return false:
  /// their caller waits on a condition variable instead.
  virtual bool run_one() noexcept = 0;

  /// True for executors whose caller must drive progress with run_one().
  [[nodiscard]] virtual bool driven_by_caller() const noexcept = 0;
};

/// A oneTBB arena of `threads` (>= 1) plus one thread for blocking tasks. The destructor waits for
/// every submitted task.
std::unique_ptr<Executor> make_tbb_executor(int threads);

/// Everything in the caller's thread, in an order and at virtual times drawn from the timeline's
/// seed. `timeline` must outlive the executor.
std::unique_ptr<Executor> make_deterministic_executor(Timeline& timeline);

}  // namespace penstock
