#pragma once

/// Load on the processor that touches no memory, to measure what else happens under it.
///
/// Threads: its own, until it dies.

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace penstock {

/// Every core computes until this dies: integer work that touches no memory.
class BusyCores {
 public:
  explicit BusyCores(std::uint32_t threads) {
    for (std::uint32_t i = 0; i < threads; ++i) {
      threads_.emplace_back([this, i] {
        std::uint64_t value = i + 1;
        while (!done_.load(std::memory_order_relaxed)) {
          for (int step = 0; step < 4096; ++step) value = value * 6364136223846793005U + 1;
          result_.store(value, std::memory_order_relaxed);
        }
      });
    }
  }
  ~BusyCores() {
    done_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  BusyCores(const BusyCores&) = delete;
  BusyCores& operator=(const BusyCores&) = delete;

 private:
  std::atomic<bool> done_{false};
  std::atomic<std::uint64_t> result_{0};  // so that the work is not optimised away
  std::vector<std::thread> threads_;
};

}  // namespace penstock
