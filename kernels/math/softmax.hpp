#pragma once

/// Per-element formulas of softmax. The row's maximum and sums are the kernel's.

#include "kernels/math/exp.hpp"

namespace penstock::math {

/// e^(scale x - maximum), maximum being that of the rounded products: at the maximum exactly 1.
template <class V>
PENSTOCK_MATH V softmax_term(V x, V scale, V maximum) {
  return exponential(x * scale - maximum);
}

/// Gradient with respect to x: scale p (dp - sum(dp p)).
template <class V>
PENSTOCK_MATH V softmax_gradient(V p, V dp, V scale, V dot) {
  return scale * (p * (dp - dot));
}

}  // namespace penstock::math
