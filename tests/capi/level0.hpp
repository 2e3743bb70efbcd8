#pragma once

/// What tests of penstock_cpu_optimizer_step share: the rules, and a state of n elements.

#include <cstdint>
#include <cstring>
#include <vector>

#include "penstock/penstock.hpp"

namespace penstock::capi_testing {

struct NamedArgs {
  const char* name;
  penstock_optimizer_args args;
};

/// Each rule with each option that changes its formula.
inline std::vector<NamedArgs> every_rule() {
  std::vector<NamedArgs> out;
  const auto add = [&](const char* name, penstock_optimizer kind, auto change) {
    penstock_optimizer_args args = optimizer_args();
    args.kind = kind;
    change(args);
    out.push_back({name, args});
  };
  const auto as_it_is = [](auto&) {};
  add("AdamW", PENSTOCK_ADAMW, as_it_is);
  add("AdamW with AMSGrad", PENSTOCK_ADAMW, [](auto& a) { a.amsgrad = 1; });
  add("Adam", PENSTOCK_ADAM, as_it_is);
  add("Adam with AMSGrad", PENSTOCK_ADAM, [](auto& a) { a.amsgrad = 1; });
  add("SGD", PENSTOCK_SGD, as_it_is);
  add("SGD with momentum", PENSTOCK_SGD, [](auto& a) { a.momentum = 0.9, a.dampening = 0.25; });
  add("SGD with Nesterov", PENSTOCK_SGD, [](auto& a) { a.momentum = 0.9, a.nesterov = 1; });
  add("Adagrad", PENSTOCK_ADAGRAD, [](auto& a) { a.lr_decay = 0.01; });
  add("Lion", PENSTOCK_LION, [](auto& a) { a.beta2 = 0.99; });
  return out;
}

inline std::uint16_t bf16_of(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}
inline float from_bf16(std::uint16_t half) {
  const std::uint32_t bits = static_cast<std::uint32_t>(half) << 16;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// Weights in both forms, and every state.
struct State {
  std::vector<float> p, m, v, v_max;
  std::vector<std::uint16_t> hi, lo;

  explicit State(std::size_t n) : p(n), m(n), v(n), v_max(n), hi(n), lo(n) {}

  [[nodiscard]] penstock_optimizer_arrays arrays(bool halves) {
    penstock_optimizer_arrays out = optimizer_arrays();
    out.n = p.size();
    if (!halves) out.p = p.data();
    if (halves) out.hi = hi.data(), out.lo = lo.data();
    out.m = m.data();
    out.v = v.data();
    out.v_max = v_max.data();
    return out;
  }
  void split() {
    for (std::size_t i = 0; i < p.size(); ++i) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &p[i], sizeof bits);
      hi[i] = static_cast<std::uint16_t>((bits + 0x8000U) >> 16);
      lo[i] = static_cast<std::uint16_t>(bits);
    }
  }
  void join() {
    for (std::size_t i = 0; i < p.size(); ++i) {
      const auto low = static_cast<std::int16_t>(lo[i]);
      const std::uint32_t bits =
          (static_cast<std::uint32_t>(hi[i]) << 16) + static_cast<std::uint32_t>(low);
      std::memcpy(&p[i], &bits, sizeof bits);
    }
  }
};

}  // namespace penstock::capi_testing
