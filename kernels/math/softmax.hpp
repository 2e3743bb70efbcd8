#pragma once

/// Per-element formulas of softmax. The row's maximum and sums are the kernel's.

#include "kernels/math/exp.hpp"

namespace penstock::math {

/// e^(scale x - maximum), maximum being that of the rounded products: at the maximum exactly 1.
template <class V>
PENSTOCK_MATH typename V::F32 softmax_term(typename V::F32 x, typename V::F32 scale,
                                           typename V::F32 maximum) {
  return exponential<V>(x * scale - maximum);
}

/// Gradient with respect to x: scale p (dp - sum(dp p)).
template <class V>
PENSTOCK_MATH typename V::F32 softmax_gradient(typename V::F32 p, typename V::F32 dp,
                                               typename V::F32 scale, typename V::F32 dot) {
  return scale * (p * (dp - dot));
}

}  // namespace penstock::math
