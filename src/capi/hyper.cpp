#include "capi/hyper.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace penstock::capi {
namespace {

constexpr double kLargest = std::numeric_limits<float>::max();

/// False for NaN, too.
bool fits(double value) {
  return std::fabs(value) <= kLargest;
}

Error out_of_range(const char* name, double value, const char* range) {
  return argument(fmt::format("{} is {}; it must be {}", name, value, range));
}

}  // namespace

Status check_hyper(const AdamW& hyper) {
  const auto is_beta = [](double beta) { return beta >= 0.0 && beta < 1.0; };
  if (!is_beta(hyper.beta1)) return out_of_range("beta1", hyper.beta1, "in [0, 1)");
  if (!is_beta(hyper.beta2)) return out_of_range("beta2", hyper.beta2, "in [0, 1)");
  if (!(hyper.eps > 0.0) || !fits(hyper.eps)) {
    return out_of_range("eps", hyper.eps, "positive and a float");
  }
  // The largest factor that the kernel uses of it is lr / (1 - beta1), at the first update.
  if (!(hyper.lr >= 0.0) || !fits(hyper.lr / (1.0 - hyper.beta1))) {
    return out_of_range("lr", hyper.lr, "at least 0, and lr / (1 - beta1) a float");
  }
  if (!(hyper.weight_decay >= 0.0) || !fits(hyper.lr * hyper.weight_decay)) {
    return out_of_range("weight_decay", hyper.weight_decay, "at least 0, and lr times it a float");
  }
  return ok();
}

Status check_factor(const char* name, double factor) {
  return fits(factor) ? ok() : out_of_range(name, factor, "finite and a float");
}

}  // namespace penstock::capi
