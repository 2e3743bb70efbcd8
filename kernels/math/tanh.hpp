#pragma once

/// tanh x. Error <= 2 ulp everywhere; the sign of zero is kept, NaN for NaN.

#include "kernels/math/exp.hpp"

namespace penstock::math {

template <class V>
PENSTOCK_MATH typename V::F32 hyperbolic_tangent(typename V::F32 x) {
  const auto a = abs(x);
  // Near 0: a + a^3 p(a^2), minimax of degree 4 (2^-27), so nothing cancels.
  const auto z = a * a;
  auto p = fma(V::set(-0x1.75da28p-8F), z, V::set(0x1.5224f8p-6F));
  p = fma(p, z, V::set(-0x1.b83c1cp-5F));
  p = fma(p, z, V::set(0x1.110726p-3F));
  p = fma(p, z, V::set(-0x1.555532p-2F));
  const auto near = fma(p, z * a, a);
  const auto far = V::set(1.0F) - V::set(2.0F) / (exponential<V>(a + a) + V::set(1.0F));
  const auto magnitude = select(less(a, V::set(0.625F)), near, far);
  return from_bits(bits(magnitude) | (bits(x) & V::set_u32(kSignBit)));
}

}  // namespace penstock::math
