#pragma once

/// Two models of the AdamW step, written from the formulas and not from the kernels: line by line
/// in fp32 (to compare bits) and in double (to compare values).

#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/cpu/optimizer.hpp"
#include "kernels/kernel_test_support.hpp"

namespace penstock::test {

struct State {
  std::vector<float> p, m, v;
};

/// One step under test: unscaled bf16 gradient, the state updated in place.
using StepFunction = std::function<void(const AdamW& hyper, std::uint64_t t, double gradient_factor,
                                        State& state, const std::vector<std::uint16_t>& gradient)>;

/// Call it with FloatModeGuard set; not inlined, so nothing moves across the guard.
[[gnu::noinline]] inline void model_step_f32(const AdamWScalars& s, float gradient, float& p,
                                             float& m, float& v) {
  const float g = s.gs * gradient;
  m = std::fma(s.w1, g - m, m);
  v = std::fma(s.w2, std::fma(g, g, -v), v);
  const float denominator = std::fma(std::sqrt(v), s.is, s.eps);
  const float update = m / denominator;
  if (s.nd == 0.0F) {
    p = std::fma(s.ns, update, p);
  } else {
    const float decay = s.nd * p;
    p = p + std::fma(s.ns, update, decay);
  }
}

/// The textbook step in double, and the scales its fp32 errors are measured with.
struct DoubleStep {
  double p, m, v;
  double m_scale;  ///< |b1 m| + |w1 G|
  double p_scale;  ///< the size of what is added to p
};
inline DoubleStep model_step_f64(const AdamW& h, std::uint64_t t, double g, double p, double m,
                                 double v) {
  const double steps = static_cast<double>(t);
  const double correction1 = 1.0 - std::pow(h.beta1, steps);
  const double correction2 = 1.0 - std::pow(h.beta2, steps);
  DoubleStep out{};
  out.m = h.beta1 * m + (1.0 - h.beta1) * g;
  out.v = h.beta2 * v + (1.0 - h.beta2) * g * g;
  const double denominator = std::sqrt(out.v / correction2) + h.eps;
  out.p = p - h.lr * h.weight_decay * p - h.lr * (out.m / correction1) / denominator;
  out.m_scale = std::fabs(h.beta1 * m) + std::fabs((1.0 - h.beta1) * g);
  out.p_scale =
      h.lr / correction1 * out.m_scale / denominator + h.lr * h.weight_decay * std::fabs(p);
  return out;
}

/// The kernels under test, as StepFunctions.
inline StepFunction split_kernel_step(Isa isa) {
  return [&kernels = optimizer_kernels(isa)](const AdamW& hyper, std::uint64_t t, double factor,
                                             State& state,
                                             const std::vector<std::uint16_t>& gradient) {
    const std::size_t n = gradient.size();
    std::vector<std::uint16_t> hi(n), lo(n);
    kernels.split(n, state.p.data(), hi.data(), lo.data());
    kernels.adamw_split(adamw_scalars(hyper, t, factor), n, hi.data(), lo.data(), state.m.data(),
                        state.v.data(), gradient.data());
    kernels.join(n, hi.data(), lo.data(), state.p.data());
  };
}
inline StepFunction f32_kernel_step(Isa isa) {
  return [&kernels = optimizer_kernels(isa)](const AdamW& hyper, std::uint64_t t, double factor,
                                             State& state,
                                             const std::vector<std::uint16_t>& gradient) {
    std::vector<float> wide(gradient.size());
    kernels.bf16_to_f32(gradient.size(), gradient.data(), wide.data());
    kernels.adamw_f32(adamw_scalars(hyper, t, factor), gradient.size(), state.p.data(),
                      state.m.data(), state.v.data(), wide.data());
  };
}

}  // namespace penstock::test
