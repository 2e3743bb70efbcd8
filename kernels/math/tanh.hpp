#pragma once

/// tanh x. Error <= 4 ulp everywhere; the sign of zero is kept, NaN for NaN.

#include "kernels/math/exp.hpp"

namespace penstock::math {

template <class V>
PENSTOCK_MATH V hyperbolic_tangent(V x) {
  const V a = absolute(x);
  // Near 0: a + a^3 p(a^2), minimax of degree 4 (2^-27), so nothing cancels.
  const V z = a * a;
  V p = fma(V(-0x1.75da28p-8F), z, V(0x1.5224f8p-6F));
  p = fma(p, z, V(-0x1.b83c1cp-5F));
  p = fma(p, z, V(0x1.110726p-3F));
  p = fma(p, z, V(-0x1.555532p-2F));
  const V near = fma(p, z * a, a);
  const V far = V(1.0F) - V(2.0F) / (exponential(a + a) + V(1.0F));
  const V magnitude = select(less(a, V(0.625F)), near, far);
  return from_bits(bits(magnitude) | (bits(x) & value_bits<V>(kSignBit)));
}

}  // namespace penstock::math
