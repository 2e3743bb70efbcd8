// One battery over both executors, then what is special to each.

#include "base/executor.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/timeline.hpp"

namespace penstock {
namespace {

/// A task that calls a function; the closure outlives its runs.
Task task_of(const std::function<void(std::uint64_t)>& body, std::uint64_t argument = 0) {
  return Task{[](void* context, std::uint64_t value) {
                (*static_cast<const std::function<void(std::uint64_t)>*>(context))(value);
              },
              const_cast<void*>(static_cast<const void*>(&body)), argument};
}

/// Counts down; wait() drives the executor or blocks, for a minute at most. Declared before the
/// executor whose tasks use it, so that even a failing test outlives them.
class Latch {
 public:
  explicit Latch(int count) : count_(count) {}
  void count_down() {
    const std::lock_guard lock(mutex_);
    --count_;
    changed_.notify_all();
  }
  [[nodiscard]] int count() {
    const std::lock_guard lock(mutex_);
    return count_;
  }
  [[nodiscard]] bool wait() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(1), [this] { return count_ <= 0; });
  }
  [[nodiscard]] bool wait(Executor& executor) {
    if (!executor.driven_by_caller()) return wait();
    while (count() > 0) {
      if (!executor.run_one()) return false;
    }
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_;
};

struct Kind {
  std::string name;
  std::function<std::unique_ptr<Executor>(Timeline&)> make;
};

class ExecutorTest : public ::testing::TestWithParam<Kind> {
 protected:
  Timeline timeline_{42};
  std::unique_ptr<Executor> executor_ = GetParam().make(timeline_);
};

INSTANTIATE_TEST_SUITE_P(
    Executors, ExecutorTest,
    ::testing::Values(Kind{"Tbb1", [](Timeline&) { return make_tbb_executor(1); }},
                      Kind{"Tbb2", [](Timeline&) { return make_tbb_executor(2); }},
                      Kind{"Tbb5", [](Timeline&) { return make_tbb_executor(5); }},
                      Kind{"Deterministic",
                           [](Timeline& timeline) {
                             return make_deterministic_executor(timeline);
                           }}),
    [](const auto& info) { return info.param.name; });

TEST_P(ExecutorTest, RunsEveryTaskOnce) {
  constexpr std::uint64_t kTasks = 2000;
  std::vector<std::atomic<int>> runs(2 * kTasks);
  Latch latch(2 * kTasks);
  const std::function<void(std::uint64_t)> body = [&](std::uint64_t i) {
    ++runs[i];
    latch.count_down();
  };
  for (std::uint64_t i = 0; i < kTasks; ++i) {
    executor_->submit(task_of(body, i));
    executor_->submit_blocking(task_of(body, kTasks + i));
  }
  ASSERT_TRUE(latch.wait(*executor_));
  for (std::size_t i = 0; i < runs.size(); ++i) ASSERT_EQ(runs[i], 1) << i;
}

TEST_P(ExecutorTest, NeverRunsATaskInsideSubmit) {
  static thread_local bool inside_submit = false;
  std::atomic<int> violations = 0;
  Latch latch(400);
  const std::function<void(std::uint64_t)> body = [&](std::uint64_t) {
    if (inside_submit) ++violations;
    latch.count_down();
  };
  for (int i = 0; i < 200; ++i) {
    inside_submit = true;
    executor_->submit(task_of(body));
    executor_->submit_blocking(task_of(body));
    inside_submit = false;
  }
  ASSERT_TRUE(latch.wait(*executor_));
  EXPECT_EQ(violations, 0);
}

TEST_P(ExecutorTest, TasksSubmitTasks) {
  Latch latch(1);
  std::atomic<int> runs = 0;
  std::function<void(std::uint64_t)> body = [&](std::uint64_t left) {
    ++runs;
    if (left == 0) return latch.count_down();
    if (left % 3 == 0) {
      executor_->submit_blocking(task_of(body, left - 1));
    } else {
      executor_->submit(task_of(body, left - 1));
    }
  };
  executor_->submit(task_of(body, 300));
  ASSERT_TRUE(latch.wait(*executor_));
  EXPECT_EQ(runs, 301);
}

TEST_P(ExecutorTest, ParallelForVisitsEveryIndexOnceAndReturnsWhenDone) {
  for (const std::size_t count : std::initializer_list<std::size_t>{0, 1, 2, 3, 64, 5000}) {
    std::vector<int> visits(count);  // not atomic: one visit each, seen after the return
    executor_->parallel_for(count, [&](std::size_t i) { ++visits[i]; });
    EXPECT_EQ(visits, std::vector<int>(count, 1));
  }
}

TEST_P(ExecutorTest, ParallelForNestsAndRunsInsideTasks) {
  constexpr std::size_t kOuter = 8;
  constexpr std::size_t kInner = 50;
  std::vector<std::atomic<int>> visits(4 * kOuter * kInner);
  Latch latch(4);
  const std::function<void(std::uint64_t)> body = [&](std::uint64_t task) {
    executor_->parallel_for(kOuter, [&](std::size_t outer) {
      executor_->parallel_for(
          kInner, [&](std::size_t inner) { ++visits[(task * kOuter + outer) * kInner + inner]; });
    });
    latch.count_down();
  };
  for (std::uint64_t task = 0; task < 3; ++task) executor_->submit(task_of(body, task));
  executor_->submit_blocking(task_of(body, 3));
  ASSERT_TRUE(latch.wait(*executor_));
  for (std::size_t i = 0; i < visits.size(); ++i) ASSERT_EQ(visits[i], 1) << i;
}

TEST(TbbExecutorTest, GivesAllThreadsToSubmittedTasksWhileTheCallerIsElsewhere) {
  constexpr int kThreads = 5;  // more than many test machines have
  // Each task waits until all five run: four workers would wait forever.
  Latch all_here(kThreads);
  std::atomic<int> met = 0;
  Latch done(kThreads);
  const std::function<void(std::uint64_t)> body = [&](std::uint64_t) {
    all_here.count_down();
    if (all_here.wait()) ++met;
    done.count_down();
  };
  const auto executor = make_tbb_executor(kThreads);
  EXPECT_EQ(executor->thread_count(), kThreads);
  EXPECT_FALSE(executor->driven_by_caller());
  EXPECT_FALSE(executor->run_one());
  for (int i = 0; i < kThreads; ++i) executor->submit(task_of(body));
  ASSERT_TRUE(done.wait());
  EXPECT_EQ(met, kThreads);
}

TEST(TbbExecutorTest, BlockingTasksHoldNoComputeThread) {
  Latch computed(1);
  Latch unblocked(1);
  std::atomic<bool> in_time = false;
  const std::function<void(std::uint64_t)> wait = [&](std::uint64_t) {
    in_time = computed.wait();
    unblocked.count_down();
  };
  const std::function<void(std::uint64_t)> compute = [&](std::uint64_t) { computed.count_down(); };
  const auto executor = make_tbb_executor(1);
  executor->submit_blocking(task_of(wait));
  executor->submit(task_of(compute));
  ASSERT_TRUE(unblocked.wait());
  EXPECT_TRUE(in_time);
}

// A thread that waits for its loop must not meanwhile run a piece of another loop, or a task: that
// may take a lock which the loop's caller holds.
TEST(TbbExecutorTest, WaitingForALoopRunsNothingElse) {
  static thread_local std::uint64_t loop_of_this_thread = 0;
  constexpr std::uint64_t kTasks = 300;
  std::atomic<int> violations = 0;
  Latch latch(2 * kTasks);
  const auto executor = make_tbb_executor(4);
  const std::function<void(std::uint64_t)> small = [&](std::uint64_t) {
    if (loop_of_this_thread != 0) ++violations;
    latch.count_down();
  };
  const std::function<void(std::uint64_t)> loop = [&](std::uint64_t id) {
    if (loop_of_this_thread != 0) ++violations;
    loop_of_this_thread = id;
    executor->parallel_for(16, [&](std::size_t) {
      if (loop_of_this_thread != 0 && loop_of_this_thread != id) ++violations;
      // Lets other threads take pieces of this loop, so that its caller comes to wait.
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    });
    loop_of_this_thread = 0;
    latch.count_down();
  };
  for (std::uint64_t id = 1; id <= kTasks; ++id) {
    executor->submit(task_of(loop, id));
    executor->submit(task_of(small));
  }
  EXPECT_TRUE(latch.wait());
  EXPECT_EQ(violations, 0);
}

TEST(TbbExecutorTest, DestructorWaitsForTasksAndTheTasksTheySubmit) {
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> runs = 0;
    std::function<void(std::uint64_t)> body;
    {
      const auto executor = make_tbb_executor(2);
      body = [&runs, &body, raw = executor.get()](std::uint64_t left) {
        ++runs;
        if (left == 0) return;
        raw->submit(task_of(body, left - 1));
        raw->submit_blocking(task_of(body, left - 1));
      };
      executor->submit(task_of(body, 5));
    }
    ASSERT_EQ(runs, 63);  // 1 + 2 + 4 + 8 + 16 + 32
  }
}

TEST(TbbExecutorTest, SmallExecutorsDoNotStarveLargeOnes) {
  Latch all_here(4);
  Latch done(4);
  std::atomic<int> met = 0;
  const std::function<void(std::uint64_t)> body = [&](std::uint64_t) {
    all_here.count_down();
    if (all_here.wait()) ++met;
    done.count_down();
  };
  const auto small = make_tbb_executor(1);
  const auto large = make_tbb_executor(4);
  for (int i = 0; i < 4; ++i) large->submit(task_of(body));
  ASSERT_TRUE(done.wait());
  EXPECT_EQ(met, 4);
}

/// What one seed makes of 40 tasks of both kinds and one loop: the order of everything.
std::vector<std::uint64_t> play(std::uint64_t seed) {
  Timeline timeline(seed);
  const auto executor = make_deterministic_executor(timeline);
  std::vector<std::uint64_t> order;
  const std::function<void(std::uint64_t)> body = [&](std::uint64_t i) {
    order.push_back(i);
    if (i == 7) executor->parallel_for(10, [&](std::size_t k) { order.push_back(1000 + k); });
  };
  for (std::uint64_t i = 0; i < 20; ++i) {
    executor->submit(task_of(body, i));
    executor->submit_blocking(task_of(body, 100 + i));
  }
  while (executor->run_one()) {
  }
  order.push_back(timeline.now_ns());
  return order;
}

TEST(DeterministicExecutorTest, ReplaysFromItsSeed) {
  EXPECT_EQ(play(1), play(1));
  EXPECT_NE(play(1), play(2));
}

TEST(DeterministicExecutorTest, ReordersTasksAndMovesTime) {
  const std::vector<std::uint64_t> order = play(3);
  std::vector<std::uint64_t> tasks;
  for (const std::uint64_t i : order) {
    if (i < 20) tasks.push_back(i);
  }
  ASSERT_EQ(tasks.size(), 20U);
  EXPECT_FALSE(std::is_sorted(tasks.begin(), tasks.end())) << "tasks must overtake each other";
  EXPECT_GT(order.back(), 0U);
}

TEST(DeterministicExecutorTest, LoopsVisitInEveryOrder) {
  Timeline timeline(5);
  const auto executor = make_deterministic_executor(timeline);
  EXPECT_TRUE(executor->driven_by_caller());
  EXPECT_EQ(executor->thread_count(), 1);
  std::vector<int> seen(6);  // by permutation of three
  for (int round = 0; round < 600; ++round) {
    std::vector<std::size_t> order;
    executor->parallel_for(3, [&](std::size_t i) { order.push_back(i); });
    ASSERT_EQ(order.size(), 3U);
    ++seen[order[0] * 2 + (order[1] > order[2] ? 1 : 0)];
  }
  for (const int count : seen) EXPECT_NEAR(count, 100, 50) << "of 600, each order once in six";
}

}  // namespace
}  // namespace penstock
