#pragma once

/// Judges any implementation of the AdamW step by its values alone; the kernels must pass and wrong
/// optimizers must not. Limits are about twice what exact fp32 evaluation of the formulas needs.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "kernels/adamw_model.hpp"

namespace penstock::test {

/// What a check found; empty means it passed.
using Findings = std::vector<std::string>;

inline void expect_at_most(Findings& findings, const std::string& what, double value,
                           double limit) {
  if (value <= limit) return;  // NaN fails
  char text[96];
  std::snprintf(text, sizeof text, ": %.6g exceeds %.6g", value, limit);
  findings.push_back(what + text);
}

inline std::uint16_t bf16_bits(double x) {
  return static_cast<std::uint16_t>(bits_of(static_cast<float>(x)) >> 16);
}

/// Single steps from random states against double: m within 3 u, v within 4 u, p within one
/// rounding of itself and 8 u of what is added to it (u = 2^-24).
inline void check_single_steps(const StepFunction& step, Findings& findings) {
  constexpr double kUnit = 0x1p-24;
  constexpr std::size_t kCount = 4096;
  const std::vector<AdamW> hypers = {
      {.lr = 1e-3, .weight_decay = 0.0},
      {.lr = 1e-3, .weight_decay = 0.1},
      {.lr = 3e-2, .beta2 = 0.95, .eps = 1e-5, .weight_decay = 0.01},
      {.lr = 1e-3, .beta1 = 0.5, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.0},
  };
  RandomBits random(17);
  double worst_m = 0, worst_v = 0, worst_p = 0;
  for (const AdamW& hyper : hypers) {
    for (const std::uint64_t t : {1U, 7U, 1000U, 1000000U}) {
      for (const double factor : {1.0, 0.37, -1.0}) {
        State state;
        std::vector<std::uint16_t> gradient;
        for (std::size_t i = 0; i < kCount; ++i) {
          const double size = std::exp(3.0 * random.normal() - 4.0);
          state.p.push_back(static_cast<float>(random.normal()));
          state.m.push_back(static_cast<float>(size * random.normal()));
          state.v.push_back(static_cast<float>(size * size * random.uniform()));
          gradient.push_back(bf16_bits(size * random.normal()));
        }
        const State old = state;
        step(hyper, t, factor, state, gradient);
        for (std::size_t i = 0; i < kCount; ++i) {
          const float g = static_cast<float>(factor) * bf16_value(gradient[i]);
          const DoubleStep want =
              model_step_f64(hyper, t, static_cast<double>(g), static_cast<double>(old.p[i]),
                             static_cast<double>(old.m[i]), static_cast<double>(old.v[i]));
          const auto worse = [](double worst, double error, double scale) {
            const double ratio = error / (kUnit * scale + 1e-37);
            return ratio > worst || ratio != ratio ? ratio : worst;
          };
          worst_m = worse(worst_m, std::fabs(static_cast<double>(state.m[i]) - want.m),
                          3.0 * want.m_scale);
          worst_v =
              worse(worst_v, std::fabs(static_cast<double>(state.v[i]) - want.v), 4.0 * want.v);
          worst_p = worse(worst_p, std::fabs(static_cast<double>(state.p[i]) - want.p),
                          std::fabs(want.p) + 8.0 * want.p_scale);
        }
      }
    }
  }
  expect_at_most(findings, "single step, m (share of its limit)", worst_m, 1.0);
  expect_at_most(findings, "single step, v (share of its limit)", worst_v, 1.0);
  expect_at_most(findings, "single step, p (share of its limit)", worst_p, 1.0);
}

/// 10,000 steps of stationary gradients: v must not drift, since fp32 beta and 1 - beta need not
/// add up to one; nor may the update be biased.
inline void check_trajectory(const StepFunction& step, Findings& findings) {
  constexpr std::size_t kCount = 64;
  const AdamW hyper{.lr = 1e-3};
  State state{std::vector<float>(kCount), std::vector<float>(kCount), std::vector<float>(kCount)};
  std::vector<double> m(kCount), v(kCount);
  std::vector<std::uint16_t> gradient(kCount);
  RandomBits random(23);
  for (std::uint64_t t = 1; t <= 10000; ++t) {
    for (std::size_t i = 0; i < kCount; ++i) gradient[i] = bf16_bits(0.3 + random.normal());
    step(hyper, t, 1.0, state, gradient);
    for (std::size_t i = 0; i < kCount; ++i) {
      const DoubleStep next =
          model_step_f64(hyper, t, static_cast<double>(bf16_value(gradient[i])), 0.0, m[i], v[i]);
      m[i] = next.m;
      v[i] = next.v;
    }
  }
  double worst = 0, inner = 0, square = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    const double ratio = static_cast<double>(state.v[i]) / v[i];
    if (!(std::fabs(ratio - 1.0) <= worst)) worst = std::fabs(ratio - 1.0);
    const double want = m[i] / std::sqrt(v[i]);
    inner += want * static_cast<double>(state.m[i]) / std::sqrt(static_cast<double>(state.v[i]));
    square += want * want;
  }
  expect_at_most(findings, "trajectory, |v/V - 1|", worst, 5e-6);
  expect_at_most(findings, "trajectory, bias of the update", std::fabs(inner / square - 1.0), 5e-7);
}

/// Zero gradients: 2,000 steps of nothing but decay must decay by the right amount on average.
inline void check_decay(const StepFunction& step, Findings& findings) {
  constexpr std::size_t kCount = 4096;
  for (const auto& [rate, limit] : {std::pair{1e-5, 1e-3}, std::pair{1e-6, 5e-3}}) {
    const AdamW hyper{.lr = 1e-3, .weight_decay = rate / 1e-3};
    State state{{}, std::vector<float>(kCount), std::vector<float>(kCount)};
    RandomBits random(29);
    for (std::size_t i = 0; i < kCount; ++i) {
      state.p.push_back(static_cast<float>(std::exp(random.normal())));
    }
    const State old = state;
    const std::vector<std::uint16_t> gradient(kCount);
    for (std::uint64_t t = 1; t <= 2000; ++t) step(hyper, t, 1.0, state, gradient);
    double total = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      total += std::log(static_cast<double>(state.p[i]) / static_cast<double>(old.p[i]));
    }
    const double ratio = total / static_cast<double>(kCount) / (2000.0 * std::log1p(-rate));
    expect_at_most(findings, "decay of " + std::to_string(rate) + " a step, effective/true - 1",
                   std::fabs(ratio - 1.0), limit);
  }
}

/// The first step from nothing moves by lr g/(|g| + eps); constant gradients go on moving by that.
inline void check_constant_gradient(const StepFunction& step, Findings& findings) {
  const AdamW hyper{.lr = 0.0625};
  const std::vector<std::uint16_t> gradient = {
      bf16_bits(1.0), bf16_bits(-1.0), bf16_bits(0.0078125), bf16_bits(1e-20), bf16_bits(-300.0)};
  const std::size_t n = gradient.size();
  State state{std::vector<float>(n), std::vector<float>(n), std::vector<float>(n)};
  double worst = 0;
  for (std::uint64_t t = 1; t <= 100; ++t) {
    const State old = state;
    step(hyper, t, 1.0, state, gradient);
    for (std::size_t i = 0; i < n; ++i) {
      const double g = static_cast<double>(bf16_value(gradient[i]));
      const double want = -hyper.lr * g / (std::fabs(g) + hyper.eps);
      const double moved = static_cast<double>(state.p[i]) - static_cast<double>(old.p[i]);
      // m and v carry up to t roundings; p itself is at most 6.25.
      const double error = std::fabs(moved - want) / (std::fabs(want) * 1e-5 + 0x1p-21);
      if (!(error <= worst)) worst = error;
    }
  }
  expect_at_most(findings, "constant gradient, movement (share of its limit)", worst, 1.0);
}

inline Findings check_adamw(const StepFunction& step) {
  Findings findings;
  check_single_steps(step, findings);
  check_trajectory(step, findings);
  check_decay(step, findings);
  check_constant_gradient(step, findings);
  return findings;
}

}  // namespace penstock::test
