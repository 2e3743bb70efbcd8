#pragma once

/// The update rules of kernels/math/update_rules.hpp, each as a policy with a fault in its formula,
/// for the kernels' own loop on the scalar kit. With Fault::kNone they are right.

#include "kernels/cpu/vec_scalar.hpp"
#include "kernels/math/update_rules.hpp"

namespace penstock::test {
namespace {

enum class Fault {
  kNone,
  kEpsInsideRoot,
  kEpsBeforeCorrection,
  kNoRoot,
  kWeightedSum,
  kDecayAfter,
  kDecayInFactor,
  kMaximumFedBack,
  kMaximumIgnoredInStep,
  kSignOfZero,
  kSignMaskWithExponent,
  kAverageFirst,
  kBufferAfterStep,
  kNesterovWithOldBuffer,
};

using F32 = scalar::F32;
using Factors = math::UpdateFactors<F32>;
using Values = math::UpdateState<F32>;

/// The faults that every rule with decay or an average can have.
template <Fault kFault>
void weigh(const Factors& f, Values& x, F32 u) {
  const auto decays = less(f.nd, scalar::Kit::set(0.0F));
  const F32 plain = fma(f.ns, u, x.p);
  if constexpr (kFault == Fault::kDecayAfter) {
    x.p = select(decays, plain + f.nd * plain, plain);
  } else if constexpr (kFault == Fault::kDecayInFactor) {
    x.p = select(decays, fma(f.ns, u, (scalar::Kit::set(1.0F) + f.nd) * x.p), plain);
  } else {
    x.p = select(decays, math::with_decay(f, x.p, u), plain);
  }
}
template <Fault kFault>
F32 average(F32 old, F32 weight, F32 value) {
  if constexpr (kFault == Fault::kWeightedSum) {
    return (scalar::Kit::set(1.0F) - weight) * old + weight * value;
  } else {
    return fma(weight, value - old, old);
  }
}

template <Fault kFault, bool kAmsGrad>
struct FaultyAdam {
  static constexpr bool kM = true, kV = true, kVMax = kAmsGrad;

  template <class V>
  static void step(const Factors& f, F32 gradient, Values& x) {
    const F32 g = math::with_penalty<V>(f, x.p, f.gs * gradient);
    x.m = average<kFault>(x.m, f.w1, g);
    x.v = kFault == Fault::kWeightedSum ? average<kFault>(x.v, f.w2, g * g)
                                        : fma(f.w2, fma(g, g, -x.v), x.v);
    F32 second = x.v;
    if constexpr (kAmsGrad) {
      x.v_max = select(less(x.v, x.v_max), x.v_max, x.v);
      if (kFault != Fault::kMaximumIgnoredInStep) second = x.v_max;
      if (kFault == Fault::kMaximumFedBack) x.v = x.v_max;
    }
    F32 denominator = fma(sqrt(second), f.is, f.eps);
    if (kFault == Fault::kNoRoot) denominator = fma(second, f.is, f.eps);
    if (kFault == Fault::kEpsInsideRoot) denominator = sqrt(fma(second, f.is * f.is, f.eps));
    if (kFault == Fault::kEpsBeforeCorrection) denominator = (sqrt(second) + f.eps) * f.is;
    weigh<kFault>(f, x, x.m / denominator);
  }
};

template <Fault kFault, bool>
struct FaultySgd {
  static constexpr bool kM = true, kV = false, kVMax = false;

  template <class V>
  static void step(const Factors& f, F32 gradient, Values& x) {
    const F32 g = math::with_penalty<V>(f, x.p, f.gs * gradient);
    const F32 old = x.m;
    x.m = select(less(V::set(0.0F), f.first), g, fma(f.mu, x.m, f.keep * g));
    const F32 ahead = kFault == Fault::kNesterovWithOldBuffer ? old : x.m;
    F32 u = select(less(V::set(0.0F), f.nesterov), fma(f.mu, ahead, g), x.m);
    if (kFault == Fault::kBufferAfterStep) u = old;
    x.p = fma(f.ns, u, x.p);
  }
};

template <Fault kFault, bool>
struct FaultyAdagrad {
  static constexpr bool kM = false, kV = true, kVMax = false;

  template <class V>
  static void step(const Factors& f, F32 gradient, Values& x) {
    const F32 g = math::with_penalty<V>(f, x.p, f.gs * gradient);
    x.v = fma(g, g, x.v);
    F32 denominator = sqrt(x.v) + f.eps;
    if (kFault == Fault::kNoRoot) denominator = x.v + f.eps;
    if (kFault == Fault::kEpsInsideRoot) denominator = sqrt(x.v + f.eps);
    x.p = fma(f.ns, g / denominator, x.p);
  }
};

template <Fault kFault, bool>
struct FaultyLion {
  static constexpr bool kM = true, kV = false, kVMax = false;

  template <class V>
  static void step(const Factors& f, F32 gradient, Values& x) {
    const F32 g = f.gs * gradient;
    if (kFault == Fault::kAverageFirst) x.m = average<kFault>(x.m, f.w2, g);
    const F32 c = average<kFault>(x.m, f.w1, g);
    const auto one = V::set_u32(0x3f800000U);
    F32 u = from_bits((bits(c) & V::set_u32(0x80000000U)) | one);
    // -1.0f is sign and exponent bits: a mask that makes every direction 0 or some power of two.
    if (kFault == Fault::kSignMaskWithExponent) u = from_bits(bits(c) & V::set_u32(0xbf800000U));
    if (kFault != Fault::kSignOfZero) u = select(equal(c, V::set(0.0F)), V::set(0.0F), u);
    weigh<kFault>(f, x, u);
    if (kFault != Fault::kAverageFirst) x.m = average<kFault>(x.m, f.w2, g);
  }
};

}  // namespace
}  // namespace penstock::test
