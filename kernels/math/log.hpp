#pragma once

/// Natural logarithm. Error <= 1 ulp for positive normal x; -inf for zero and denormals, inf for
/// inf, NaN for negative numbers and NaN.
///
/// x = 2^e m with m in [sqrt(1/2), sqrt(2)); f = m - 1, s = f / (2 + f), and
/// log(1 + f) = f - f^2/2 + s (f^2/2 + z R(z)), z = s^2, R minimax of degree 2 (2^-30).

#include "kernels/math/value.hpp"

namespace penstock::math {

template <class V>
PENSTOCK_MATH typename V::F32 logarithm(typename V::F32 x) {
  constexpr std::uint32_t kHalfRootBits = 0x3f3504f3U;  // sqrt(1/2)
  const auto offset = bits(x) + V::set_u32(0x3f800000U - kHalfRootBits);
  const auto m = from_bits((offset & V::set_u32(0x007fffffU)) + V::set_u32(kHalfRootBits));
  // The exponent as a float: its biased value in the low bits of 1.5 * 2^23.
  const auto e =
      from_bits(shift_right<23>(offset) + V::set_u32(0x4b400000U)) - V::set(0x1.8p23F + 127.0F);

  const auto f = m - V::set(1.0F);
  const auto s = f / (V::set(2.0F) + f);
  const auto z = s * s;
  auto r = fma(V::set(0x1.31e478p-2F), z, V::set(0x1.995eacp-2F));
  r = fma(r, z, V::set(0x1.55557ap-1F));
  const auto half_square = V::set(0.5F) * f * f;
  const auto correction = fma(s, fma(r, z, half_square), e * V::set(0x1.7f7d1cp-20F));
  const auto result = fma(e, V::set(0x1.62e4p-1F), (correction - half_square) + f);

  const auto infinity = V::set(kInfinity);
  const auto positive = select(less(x, infinity), result, x);
  // sqrt gives NaN for what is negative or NaN and a zero for what is zero.
  return select(less(V::set(0.0F), x), positive, sqrt(x) - infinity);
}

}  // namespace penstock::math
