#pragma once

/// Two models of every update rule, written from the formulas and not from the kernels: line by
/// line in fp32 (to compare bits), and the textbook's or PyTorch's form in double (to compare
/// values) with the sizes that fp32 errors are measured by. And the kernels, as functions on plain
/// vectors.

#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "kernels/cpu/optimizer.hpp"
#include "kernels/cpu/update.hpp"
#include "kernels/kernel_test_support.hpp"

namespace penstock::test {

struct UpdateValues {
  std::vector<float> p, m, v, v_max;

  explicit UpdateValues(std::size_t n) : p(n), m(n), v(n), v_max(n) {}
};

/// One step under test. Gradients are representable as bf16 and as f16, so that the type a kernel
/// reads them from does not matter. `out` (may be null) receives the new weights as bf16.
using UpdateStep =
    std::function<void(const UpdateRule& rule, std::uint64_t t, double factor, UpdateValues& x,
                       const std::vector<float>& gradient, std::vector<std::uint16_t>* out)>;

/// Call it with FloatModeGuard set; not inlined, so nothing moves across the guard.
[[gnu::noinline]] inline void model_update_f32(const UpdateRule& rule, const UpdateScalars& s,
                                               float gradient, float& p, float& m, float& v,
                                               float& v_max) {
  float g = s.gs * gradient;
  if (s.l2 > 0.0F) g = std::fma(s.l2, p, g);
  float u = g;
  switch (rule.rule) {
    case Rule::kAdamW:
    case Rule::kAdam: {
      m = std::fma(s.w1, g - m, m);
      v = std::fma(s.w2, std::fma(g, g, -v), v);
      if (rule.amsgrad) v_max = (v_max > v ? v_max : v) + 0.0F;
      u = m / std::fma(std::sqrt(rule.amsgrad ? v_max : v), s.is, s.eps);
      break;
    }
    case Rule::kSgd:
      if (rule.momentum != 0.0) {
        m = s.first > 0.0F ? g : std::fma(s.mu, m, s.keep * g);
        u = rule.nesterov ? std::fma(s.mu, m, g) : m;
      }
      break;
    case Rule::kAdagrad:
      v = std::fma(g, g, v);
      u = g / (std::sqrt(v) + s.eps);
      break;
    case Rule::kLion: {
      const float c = std::fma(s.w1, g - m, m);
      u = c > 0.0F ? 1.0F : c < 0.0F ? -1.0F : c == 0.0F ? 0.0F : c;
      m = std::fma(s.w2, g - m, m);
      break;
    }
  }
  if (s.nd < 0.0F) {
    const float decay = s.nd * p;
    p = p + std::fma(s.ns, u, decay);
  } else {
    p = std::fma(s.ns, u, p);
  }
}

/// An exact step, and what its fp32 errors are multiples of u = 2^-24 of.
struct ExactUpdate {
  double p, m, v, v_max;
  double m_scale, v_scale;
  double p_scale;          ///< the size of what is added to p
  double undecided = 0.0;  ///< Lion: p may be off by this where the sign hangs on a rounding
};

inline ExactUpdate exact_adam(const UpdateRule& r, double t, double g, double g_scale,
                              const ExactUpdate& old) {
  ExactUpdate x = old;
  const double correction1 = 1.0 - std::pow(r.beta1, t), correction2 = 1.0 - std::pow(r.beta2, t);
  x.m = r.beta1 * old.m + (1.0 - r.beta1) * g;
  x.v = r.beta2 * old.v + (1.0 - r.beta2) * g * g;
  x.m_scale = std::fabs(r.beta1 * old.m) + (1.0 - r.beta1) * g_scale;
  x.v_scale = r.beta2 * old.v + (1.0 - r.beta2) * g_scale * g_scale;
  x.v_max = r.amsgrad ? std::fmax(old.v_max, x.v) : old.v_max;
  const double second = r.amsgrad ? x.v_max : x.v;
  const double denominator = std::sqrt(second / correction2) + r.eps;
  const double decay = r.rule == Rule::kAdamW ? r.lr * r.weight_decay * old.p : 0.0;
  x.p = old.p - decay - r.lr * (x.m / correction1) / denominator;
  // Where decay and gradient cancel in g, v carries their rounding, and the quotient with it.
  const double cancelled = second > 0.0 ? std::fmax(x.v_scale / second - 1.0, 0.0) : 0.0;
  x.p_scale = r.lr / correction1 * (x.m_scale + std::fabs(x.m) * cancelled) / denominator +
              std::fabs(decay);
  return x;
}

inline ExactUpdate exact_sgd(const UpdateRule& r, double t, double g, double g_scale,
                             const ExactUpdate& old) {
  ExactUpdate x = old;
  double u = g, u_scale = g_scale;
  if (r.momentum != 0.0) {
    const double keep = 1.0 - r.dampening;
    x.m = t == 1.0 ? g : r.momentum * old.m + keep * g;
    x.m_scale = t == 1.0 ? g_scale : std::fabs(r.momentum * old.m) + std::fabs(keep) * g_scale;
    u = r.nesterov ? g + r.momentum * x.m : x.m;
    u_scale = r.nesterov ? g_scale + r.momentum * x.m_scale : x.m_scale;
  }
  x.p = old.p - r.lr * u;
  x.p_scale = r.lr * u_scale;
  return x;
}

inline ExactUpdate exact_adagrad(const UpdateRule& r, double t, double g, double g_scale,
                                 const ExactUpdate& old) {
  ExactUpdate x = old;
  x.v = old.v + g * g;
  x.v_scale = old.v + g_scale * g_scale;
  const double denominator = std::sqrt(x.v) + r.eps;
  const double rate = r.lr / (1.0 + (t - 1.0) * r.lr_decay);
  const double cancelled = x.v > 0.0 ? x.v_scale / x.v - 1.0 : 0.0;
  x.p = old.p - rate * g / denominator;
  x.p_scale = rate * (g_scale + std::fabs(g) * cancelled) / denominator;
  return x;
}

inline ExactUpdate exact_lion(const UpdateRule& r, double g, double g_scale,
                              const ExactUpdate& old) {
  ExactUpdate x = old;
  const double c = r.beta1 * old.m + (1.0 - r.beta1) * g;
  const double c_scale = std::fabs(r.beta1 * old.m) + (1.0 - r.beta1) * g_scale;
  const double sign = c > 0.0 ? 1.0 : c < 0.0 ? -1.0 : 0.0;
  x.p = old.p - r.lr * sign - r.lr * r.weight_decay * old.p;
  x.p_scale = r.lr + r.lr * r.weight_decay * std::fabs(old.p);
  if (std::fabs(c) <= 4.0 * 0x1p-24 * c_scale && c_scale > 0.0) x.undecided = 2.0 * r.lr;
  x.m = r.beta2 * old.m + (1.0 - r.beta2) * g;
  x.m_scale = std::fabs(r.beta2 * old.m) + (1.0 - r.beta2) * g_scale;
  return x;
}

/// `g` is the gradient times its factor, as fp32 has it. Maximising turns it, not the decay.
inline ExactUpdate exact_update(const UpdateRule& r, std::uint64_t t, double g, double p, double m,
                                double v, double v_max) {
  const ExactUpdate old = {.p = p,
                           .m = m,
                           .v = v,
                           .v_max = v_max,
                           .m_scale = std::fabs(m),
                           .v_scale = v,
                           .p_scale = 0.0};
  if (r.maximize) g = -g;
  const bool decoupled = r.rule == Rule::kAdamW || r.rule == Rule::kLion;
  const double penalty = decoupled ? 0.0 : r.weight_decay * p;
  const double scale = std::fabs(g) + std::fabs(penalty);
  g += penalty;
  const auto steps = static_cast<double>(t);
  switch (r.rule) {
    case Rule::kAdamW:
    case Rule::kAdam:
      return exact_adam(r, steps, g, scale, old);
    case Rule::kSgd:
      return exact_sgd(r, steps, g, scale, old);
    case Rule::kAdagrad:
      return exact_adagrad(r, steps, g, scale, old);
    case Rule::kLion:
      break;
  }
  return exact_lion(r, g, scale, old);
}

/// How one step is to be run by a kernel.
struct KernelForm {
  Isa isa = Isa::kScalar;
  DType gradient_type = DType::kBf16;
  bool split_master = false;
  DType state_type = DType::kF32;  ///< bf16: states that are not exact in it are cut first

  [[nodiscard]] Master master() const { return split_master ? Master::kSplit : Master::kF32; }
};

/// `values` as bf16, for a kernel to work on, and written back when it is done.
class Bf16Copy {
 public:
  explicit Bf16Copy(std::vector<float>& values) : values_(values) {
    for (const float x : values) {
      halves_.push_back(static_cast<std::uint16_t>(bits_of(x) >> 16));
    }
  }
  ~Bf16Copy() {
    for (std::size_t i = 0; i < halves_.size(); ++i) values_[i] = bf16_value(halves_[i]);
  }
  Bf16Copy(const Bf16Copy&) = delete;
  Bf16Copy& operator=(const Bf16Copy&) = delete;
  [[nodiscard]] std::uint16_t* data() { return halves_.data(); }

 private:
  std::vector<float>& values_;
  std::vector<std::uint16_t> halves_;
};

inline std::vector<std::byte> encode_gradient(Isa isa, DType type, const std::vector<float>& g) {
  std::vector<std::byte> bytes(g.size() * size_bytes(type));
  const OptimizerKernels& kernels = optimizer_kernels(isa);
  auto* half = reinterpret_cast<std::uint16_t*>(bytes.data());
  if (type == DType::kF32 && !g.empty()) std::memcpy(bytes.data(), g.data(), bytes.size());
  if (type == DType::kBf16) kernels.f32_to_bf16(g.size(), g.data(), half);
  if (type == DType::kF16) kernels.f32_to_f16(g.size(), g.data(), half);
  return bytes;
}

/// The kernels under test, as an UpdateStep. `kernel` is called with the scalars of the step; tests
/// of wrong optimizers change both.
using ScalarsFunction = std::function<UpdateScalars(const UpdateRule&, std::uint64_t, double)>;
inline UpdateStep kernel_update(const KernelForm& form,
                                const ScalarsFunction& scalars = update_scalars,
                                UpdateKernel other_kernel = nullptr) {
  return [=](const UpdateRule& rule, std::uint64_t t, double factor, UpdateValues& x,
             const std::vector<float>& gradient, std::vector<std::uint16_t>* out) {
    const std::size_t n = gradient.size();
    const std::vector<std::byte> bytes = encode_gradient(form.isa, form.gradient_type, gradient);
    std::vector<std::uint16_t> hi(n), lo(n);
    UpdateArrays a{.n = n,
                   .p = x.p.data(),
                   .m = x.m.data(),
                   .v = x.v.data(),
                   .v_max = x.v_max.data(),
                   .gradient = bytes.data(),
                   .gradient_type = form.gradient_type};
    a.state_type = form.state_type;
    std::optional<Bf16Copy> m, v, v_max;
    if (form.state_type == DType::kBf16) {
      a.m = m.emplace(x.m).data();
      a.v = v.emplace(x.v).data();
      a.v_max = v_max.emplace(x.v_max).data();
    }
    if (form.split_master) {
      optimizer_kernels(form.isa).split(n, x.p.data(), hi.data(), lo.data());
      a.p = nullptr;
      a.hi = hi.data();
      a.lo = lo.data();
    }
    if (out != nullptr) {
      out->resize(n);
      a.out = out->data();
      a.out_type = DType::kBf16;
    }
    const UpdateKernel kernel =
        other_kernel != nullptr
            ? other_kernel
            : update_kernel(form.isa, rule, form.gradient_type, form.master(), form.state_type);
    kernel(scalars(rule, t, factor), a);
    if (form.split_master) {
      optimizer_kernels(form.isa).join(n, hi.data(), lo.data(), x.p.data());
    }
  };
}

}  // namespace penstock::test
