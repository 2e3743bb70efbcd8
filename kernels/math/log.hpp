#pragma once

/// Natural logarithm. Error <= 2 ulp for positive normal x; -inf for zero and denormals, inf for
/// inf, NaN for negative numbers and NaN.
///
/// x = 2^e m with m in [sqrt(1/2), sqrt(2)); f = m - 1, s = f / (2 + f), and
/// log(1 + f) = f - f^2/2 + s (f^2/2 + z R(z)), z = s^2, R minimax of degree 2 (2^-30).

#include "kernels/math/value.hpp"

namespace penstock::math {

template <class V>
PENSTOCK_MATH V logarithm(V x) {
  constexpr std::uint32_t kHalfRootBits = 0x3f3504f3U;  // sqrt(1/2)
  const auto offset = bits(x) + value_bits<V>(0x3f800000U - kHalfRootBits);
  const V m = from_bits((offset & value_bits<V>(0x007fffffU)) + value_bits<V>(kHalfRootBits));
  // The exponent as a float: its biased value in the low bits of 1.5 * 2^23.
  const V e = from_bits((offset >> 23) + value_bits<V>(0x4b400000U)) - V(0x1.8p23F + 127.0F);

  const V f = m - V(1.0F);
  const V s = f / (V(2.0F) + f);
  const V z = s * s;
  V r = fma(V(0x1.31e478p-2F), z, V(0x1.995eacp-2F));
  r = fma(r, z, V(0x1.55557ap-1F));
  const V half_square = V(0.5F) * f * f;
  const V correction = fma(s, fma(r, z, half_square), e * V(0x1.7f7d1cp-20F));
  const V result = fma(e, V(0x1.62e4p-1F), (correction - half_square) + f);

  const V infinity = from_bits(value_bits<V>(kInfinityBits));
  const V positive = select(less(x, infinity), result, x);
  // sqrt gives NaN for what is negative or NaN and a zero for what is zero.
  return select(less(V(0.0F), x), positive, square_root(x) - infinity);
}

}  // namespace penstock::math
