#pragma once

/// The learning rate of each step: linear warm-up, then half a cosine down to a floor.
///
/// Steps count from 0. Step s of the warm-up has peak * (s + 1) / warmup; behind it the rate falls
/// from the peak, and is floor * peak at the last step and from there on.
/// Threads: pure functions.

#include <cstdint>

namespace penstock {

struct Schedule {
  double peak = 1e-3;
  std::uint64_t warmup = 100;  ///< steps; 0: none
  std::uint64_t steps = 1000;  ///< of the whole run
  double floor = 0.1;          ///< share of the peak
};

[[nodiscard]] double learning_rate(const Schedule& schedule, std::uint64_t step);

}  // namespace penstock
