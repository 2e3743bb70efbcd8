#pragma once

/// GELU (tanh form) and SwiGLU, forward and derivative.
///
/// Both are x * sigmoid(w(x)): 0.5 (1 + tanh u) = sigmoid(2u), which keeps full relative accuracy
/// where tanh -> -1 and the usual form cancels. A sigmoid below 2^-126 is 0, so values smaller than
/// about 1e-36 flush.

#include "kernels/math/exp.hpp"

namespace penstock::math {

/// sigmoid(w) and 1 - sigmoid(w), neither by cancellation.
template <class V>
struct Sigmoid {
  typename V::F32 value;
  typename V::F32 complement;
};

template <class V>
PENSTOCK_MATH Sigmoid<V> sigmoid(typename V::F32 w) {
  // Bounded, so that the complement is never 0 * inf.
  const auto e = exponential<V>(min(V::set(88.0F), -w));
  const auto value = V::set(1.0F) / (V::set(1.0F) + e);
  return {value, e * value};
}

/// Derivative of y = x sigmoid(w(x)): s + x s (1 - s) w', slope being w'.
template <class V>
PENSTOCK_MATH typename V::F32 gated_derivative(typename V::F32 x, const Sigmoid<V>& s,
                                               typename V::F32 slope) {
  return s.value * fma(x * slope, s.complement, V::set(1.0F));
}

inline constexpr float kGeluLinear = 0x1.988454p+0F;  ///< 2 sqrt(2/pi)
inline constexpr float kGeluCubic = 0x1.2444f2p-4F;   ///< 2 sqrt(2/pi) * 0.044715

template <class V>
PENSTOCK_MATH typename V::F32 gelu(typename V::F32 x) {
  return x * sigmoid<V>(x * fma(V::set(kGeluCubic), x * x, V::set(kGeluLinear))).value;
}

template <class V>
PENSTOCK_MATH typename V::F32 gelu_derivative(typename V::F32 x) {
  // Beyond +-16 the derivative is 0 or 1; the bound keeps the cubic finite.
  const auto bounded = min(V::set(16.0F), max(V::set(-16.0F), x));
  const auto square = bounded * bounded;
  const Sigmoid<V> s = sigmoid<V>(bounded * fma(V::set(kGeluCubic), square, V::set(kGeluLinear)));
  return gated_derivative<V>(bounded, s,
                             fma(V::set(3.0F * kGeluCubic), square, V::set(kGeluLinear)));
}

template <class V>
PENSTOCK_MATH typename V::F32 swiglu(typename V::F32 gate, typename V::F32 up) {
  return gate * sigmoid<V>(gate).value * up;
}

/// The two gradients of swiglu.
template <class V>
struct GatedGradient {
  typename V::F32 gate;
  typename V::F32 up;
};

template <class V>
PENSTOCK_MATH GatedGradient<V> swiglu_gradient(typename V::F32 gate, typename V::F32 up,
                                               typename V::F32 dy) {
  const Sigmoid<V> s = sigmoid<V>(gate);
  return {dy * up * gated_derivative<V>(gate, s, V::set(1.0F)), dy * (gate * s.value)};
}

}  // namespace penstock::math
