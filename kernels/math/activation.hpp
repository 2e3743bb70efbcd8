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
  V value;
  V complement;
};

template <class V>
PENSTOCK_MATH Sigmoid<V> sigmoid(V w) {
  // Bounded, so that the complement is never 0 * inf.
  const V e = exponential(smaller(V(88.0F), V(0.0F) - w));
  const V value = V(1.0F) / (V(1.0F) + e);
  return {value, e * value};
}

/// Derivative of y = x sigmoid(w(x)): s + x s (1 - s) w', slope being w'.
template <class V>
PENSTOCK_MATH V gated_derivative(V x, const Sigmoid<V>& s, V slope) {
  return s.value * fma(x * slope, s.complement, V(1.0F));
}

inline constexpr float kGeluLinear = 0x1.988454p+0F;  ///< 2 sqrt(2/pi)
inline constexpr float kGeluCubic = 0x1.2444f2p-4F;   ///< 2 sqrt(2/pi) * 0.044715

template <class V>
PENSTOCK_MATH V gelu(V x) {
  return x * sigmoid(x * fma(V(kGeluCubic), x * x, V(kGeluLinear))).value;
}

template <class V>
PENSTOCK_MATH V gelu_derivative(V x) {
  // Beyond +-16 the derivative is 0 or 1; the bound keeps the cubic finite.
  const V bounded = smaller(V(16.0F), larger(V(-16.0F), x));
  const V square = bounded * bounded;
  const Sigmoid<V> s = sigmoid(bounded * fma(V(kGeluCubic), square, V(kGeluLinear)));
  return gated_derivative(bounded, s, fma(V(3.0F * kGeluCubic), square, V(kGeluLinear)));
}

template <class V>
PENSTOCK_MATH V swiglu(V gate, V up) {
  return gate * sigmoid(gate).value * up;
}

/// The two gradients of swiglu.
template <class V>
struct GatedGradient {
  V gate;
  V up;
};

template <class V>
PENSTOCK_MATH GatedGradient<V> swiglu_gradient(V gate, V up, V dy) {
  const Sigmoid<V> s = sigmoid(gate);
  return {dy * up * gated_derivative(gate, s, V(1.0F)), dy * (gate * s.value)};
}

}  // namespace penstock::math
