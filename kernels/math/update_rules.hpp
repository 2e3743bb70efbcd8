#pragma once

/// The element-wise update rules, each once, on a kit V (kernels/math/value.hpp): Adam and AdamW
/// with or without AMSGrad, SGD with or without momentum, Adagrad, Lion. docs/numerics.md has
/// sources and the differences from PyTorch.
///
/// A rule says which states it keeps besides the weight p (kM, kV, kVMax) and updates them from the
/// gradient as it came. What a rule may leave out (decay, Nesterov) is chosen by factors, not by
/// further templates: a select costs nothing beside the memory, and skips for NaN and infinity,
/// too. Errors: none; what is not finite goes through as IEEE has it.

#include "kernels/math/value.hpp"

namespace penstock::math {

/// UpdateScalars of kernels/cpu/update.hpp, in every lane.
template <class F>
struct UpdateFactors {
  F gs, l2, nd, w1, w2, ns, is, eps, mu, keep, first, nesterov;
};

template <class F>
struct UpdateState {
  F p, m, v, v_max;
};

/// g, plus l2 * p where there is a penalty.
template <class V, class F>
PENSTOCK_MATH F with_penalty(const UpdateFactors<F>& f, F p, F g) {
  return select(less(V::set(0.0F), f.l2), fma(f.l2, p, g), g);
}

/// p + ns u + nd p. The decay is added to the update, not taken as a factor of p: (1 - lr wd) p
/// would round it away with the one it is added to. Without decay, fma(ns, u, p), it is one
/// rounding.
template <class F>
PENSTOCK_MATH F with_decay(const UpdateFactors<F>& f, F p, F u) {
  return p + fma(f.ns, u, f.nd * p);
}

/// Adam (Kingma & Ba 2015, algorithm 1), AdamW (Loshchilov & Hutter 2019, algorithm 2) and AMSGrad
/// of both (Reddi, Kale & Kumar 2018, algorithm 2, with Adam's bias corrections).
/// Averages as m + w1 (G - m): with b m + (1-b) G, fp32 beta and 1-beta do not add up to one and v
/// drifts by 1e-5. v stays >= 0: the inner value is never below -v.
/// Without kDecoupled, nd counts as 0: of all selects, that of the decay would cost AVX2 a third of
/// its speed, as these formulas leave it no register.
template <bool kAmsGrad, bool kDecoupled>
struct Adam {
  static constexpr bool kM = true, kV = true, kVMax = kAmsGrad;

  template <class V, class F>
  PENSTOCK_MATH static void step(const UpdateFactors<F>& f, F gradient, UpdateState<F>& x) {
    F g = f.gs * gradient;
    if constexpr (!kDecoupled) g = with_penalty<V>(f, x.p, g);
    x.m = fma(f.w1, g - x.m, x.m);
    x.v = fma(f.w2, fma(g, g, -x.v), x.v);
    F second = x.v;
    if constexpr (kAmsGrad) {
      // Compilers may make this MAXPS, which of a denormal returns zero. The sum does so, too (and
      // -0 becomes +0), whatever was chosen before.
      x.v_max = select(less(x.v, x.v_max), x.v_max, x.v) + V::set(0.0F);
      second = x.v_max;
    }
    const F u = x.m / fma(sqrt(second), f.is, f.eps);
    x.p = kDecoupled ? with_decay(f, x.p, u) : fma(f.ns, u, x.p);
  }
};

/// SGD with momentum (Sutskever and others 2013, in PyTorch's form: the learning rate outside the
/// average, the first gradient whole). m is the momentum buffer; at the first update it is not
/// read.
template <bool kMomentum>
struct Sgd {
  static constexpr bool kM = kMomentum, kV = false, kVMax = false;

  template <class V, class F>
  PENSTOCK_MATH static void step(const UpdateFactors<F>& f, F gradient, UpdateState<F>& x) {
    const F g = with_penalty<V>(f, x.p, f.gs * gradient);
    F u = g;
    if constexpr (kMomentum) {
      x.m = select(less(V::set(0.0F), f.first), g, fma(f.mu, x.m, f.keep * g));
      u = select(less(V::set(0.0F), f.nesterov), fma(f.mu, x.m, g), x.m);
    }
    x.p = fma(f.ns, u, x.p);
  }
};

/// Adagrad (Duchi, Hazan & Singer 2011, figure 1, diagonal). v is the sum of squares.
struct Adagrad {
  static constexpr bool kM = false, kV = true, kVMax = false;

  template <class V, class F>
  PENSTOCK_MATH static void step(const UpdateFactors<F>& f, F gradient, UpdateState<F>& x) {
    const F g = with_penalty<V>(f, x.p, f.gs * gradient);
    x.v = fma(g, g, x.v);
    const F u = g / (sqrt(x.v) + f.eps);
    x.p = fma(f.ns, u, x.p);
  }
};

/// Lion (Chen and others 2023, algorithm 2).
struct Lion {
  static constexpr bool kM = true, kV = false, kVMax = false;

  template <class V, class F>
  PENSTOCK_MATH static void step(const UpdateFactors<F>& f, F gradient, UpdateState<F>& x) {
    const F g = f.gs * gradient;
    const F c = fma(f.w1, g - x.m, x.m);
    const F u = sign<V>(c);
    x.p = select(less(f.nd, V::set(0.0F)), with_decay(f, x.p, u), fma(f.ns, u, x.p));
    x.m = fma(f.w2, g - x.m, x.m);
  }

 private:
  /// +-1; +0 for zeros, so that such a weight keeps its bits; NaN for NaN, whose sign bit is noise.
  template <class V, class F>
  PENSTOCK_MATH static F sign(F c) {
    const F one = from_bits((bits(c) & V::set_u32(kSignBit)) | V::set_u32(0x3f800000U));
    const F zero_or_nan = select(less_equal(abs(c), V::set(0.0F)), V::set(0.0F), c);
    return select(less(V::set(0.0F), abs(c)), one, zero_or_nan);
  }
};

}  // namespace penstock::math
