#include "capi/hyper.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace penstock::capi {
namespace {

constexpr double kLargest = std::numeric_limits<float>::max();
constexpr double kSmallestNormal = std::numeric_limits<float>::min();

/// False for NaN, too.
bool fits(double value) {
  return std::fabs(value) <= kLargest;
}

Error out_of_range(const char* name, double value, const char* range) {
  return argument(fmt::format("{} is {}; it must be {}", name, value, range));
}

bool has_beta(const UpdateRule& rule) {
  return rule.rule == Rule::kAdamW || rule.rule == Rule::kAdam || rule.rule == Rule::kLion;
}
bool has_eps(const UpdateRule& rule) {
  return rule.rule == Rule::kAdamW || rule.rule == Rule::kAdam || rule.rule == Rule::kAdagrad;
}

/// Learning rate and decay, and what the rule makes of both.
Status check_rate(const UpdateRule& rule) {
  const bool adam = has_beta(rule) && rule.rule != Rule::kLion;
  // The largest factor that the kernel uses of it is lr / (1 - beta1), at the first update.
  if (!(rule.lr >= 0.0) || !fits(adam ? rule.lr / (1.0 - rule.beta1) : rule.lr)) {
    return out_of_range("lr", rule.lr,
                        adam ? "at least 0, and lr / (1 - beta1) a float" : "at least 0, a float");
  }
  const bool decoupled = rule.rule == Rule::kAdamW || rule.rule == Rule::kLion;
  if (!(rule.weight_decay >= 0.0) ||
      !fits(decoupled ? rule.lr * rule.weight_decay : rule.weight_decay)) {
    return out_of_range("weight_decay", rule.weight_decay,
                        decoupled ? "at least 0, and lr times it a float" : "at least 0, a float");
  }
  return ok();
}

/// The options of single rules, which others must leave at zero.
Status check_options(const UpdateRule& rule) {
  const bool sgd = rule.rule == Rule::kSgd;
  if (rule.amsgrad && rule.rule != Rule::kAdamW && rule.rule != Rule::kAdam) {
    return argument("amsgrad is set, which only ADAMW and ADAM have; leave it 0");
  }
  if (!(rule.momentum >= 0.0) || !fits(rule.momentum) || (rule.momentum != 0.0 && !sgd)) {
    return out_of_range("momentum", rule.momentum, sgd ? "at least 0, a float" : "0 but for SGD");
  }
  if (!(rule.dampening >= 0.0 && rule.dampening <= 1.0) ||
      (rule.dampening != 0.0 && rule.momentum == 0.0)) {
    return out_of_range("dampening", rule.dampening, "in [0, 1], and 0 without momentum");
  }
  if (rule.nesterov && (rule.momentum == 0.0 || rule.dampening != 0.0)) {
    return argument("nesterov is set; it needs SGD with momentum and without dampening");
  }
  if (!(rule.lr_decay >= 0.0) || !fits(rule.lr_decay) ||
      (rule.lr_decay != 0.0 && rule.rule != Rule::kAdagrad)) {
    return out_of_range("lr_decay", rule.lr_decay, "at least 0, a float, and 0 but for ADAGRAD");
  }
  return ok();
}

}  // namespace

Status check_hyper(const UpdateRule& rule) {
  const auto is_beta = [](double beta) { return beta >= 0.0 && beta < 1.0; };
  if (has_beta(rule)) {
    if (!is_beta(rule.beta1)) return out_of_range("beta1", rule.beta1, "in [0, 1)");
    if (!is_beta(rule.beta2)) return out_of_range("beta2", rule.beta2, "in [0, 1)");
  }
  if (has_eps(rule) && (!(rule.eps >= kSmallestNormal) || !fits(rule.eps))) {
    return out_of_range("eps", rule.eps, "positive and a normal float, at least 1.2e-38");
  }
  PENSTOCK_CHECK_OK(check_rate(rule));
  return check_options(rule);
}

Status check_factor(const char* name, double factor) {
  return fits(factor) ? ok() : out_of_range(name, factor, "finite and a float");
}

}  // namespace penstock::capi
