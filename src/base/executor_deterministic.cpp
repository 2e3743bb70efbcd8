#include <numeric>
#include <utility>
#include <vector>

#include "base/executor.hpp"
#include "base/timeline.hpp"

namespace penstock {
namespace {

// Of the order of a tile update and of an fsync: what matters is that tasks overtake each other
// and the simulated drive's completions.
constexpr std::uint64_t kMaxTaskDelayNs = 20'000;
constexpr std::uint64_t kMaxBlockingDelayNs = 2'000'000;

class DeterministicExecutor final : public Executor {
 public:
  explicit DeterministicExecutor(Timeline& timeline) : timeline_(timeline) {}

  void submit(Task task) noexcept override {
    timeline_.after(1 + timeline_.random() % kMaxTaskDelayNs, task);
  }

  void submit_blocking(Task task) noexcept override {
    timeline_.after(1 + timeline_.random() % kMaxBlockingDelayNs, task);
  }

  void parallel_for(std::size_t count,
                    const std::function<void(std::size_t)>& body) noexcept override {
    std::vector<std::size_t> order(count);
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (std::size_t left = count; left > 1; --left) {  // Fisher and Yates
      std::swap(order[left - 1], order[timeline_.random() % left]);
    }
    for (const std::size_t index : order) body(index);
  }

  [[nodiscard]] int thread_count() const noexcept override { return 1; }
  bool run_one() noexcept override { return timeline_.run_one(); }
  [[nodiscard]] bool driven_by_caller() const noexcept override { return true; }

 private:
  Timeline& timeline_;
};

}  // namespace

std::unique_ptr<Executor> make_deterministic_executor(Timeline& timeline) {
  return std::make_unique<DeterministicExecutor>(timeline);
}

}  // namespace penstock
