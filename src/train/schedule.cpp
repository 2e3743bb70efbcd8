#include "train/schedule.hpp"

#include <cmath>
#include <numbers>

namespace penstock {

double learning_rate(const Schedule& schedule, std::uint64_t step) {
  if (step < schedule.warmup) {
    return schedule.peak * (static_cast<double>(step + 1) / static_cast<double>(schedule.warmup));
  }
  const double low = schedule.peak * schedule.floor;
  if (step + 1 >= schedule.steps) return low;
  const auto passed = static_cast<double>(step - schedule.warmup + 1);
  const auto all = static_cast<double>(schedule.steps - schedule.warmup);
  const double height = 0.5 * (1.0 + std::cos(std::numbers::pi * (passed / all)));
  return low + (schedule.peak - low) * height;
}

}  // namespace penstock
