#pragma once

/// e^x. Error <= 1 ulp where the result is normal; results below 2^-126 are 0, above the largest
/// float inf, NaN for NaN.
///
/// x = k ln2 + r with |r| <= ln2/2; e^r = 1 + r + r^2 q(r), q a minimax polynomial of degree 4
/// (relative error of e^r 2^-28); then two exact powers of two, whose last product overflows or
/// flushes by itself.

#include "kernels/math/value.hpp"

namespace penstock::math {

template <class V>
PENSTOCK_MATH typename V::F32 exponential(typename V::F32 x) {
  // Outside these bounds the result is inf or 0 anyway; inside them k fits an exponent field.
  const auto bounded = min(V::set(89.0F), max(V::set(-89.0F), x));
  const auto shifter = V::set(0x1.8p23F);  // adding it rounds to an integer, held in the low bits
  const auto shifted = fma(bounded, V::set(0x1.715476p+0F), shifter);
  const auto k = shifted - shifter;
  auto r = fma(k, V::set(-0x1.62e4p-1F), bounded);
  r = fma(k, V::set(-0x1.7f7d1cp-20F), r);

  auto q = fma(V::set(0x1.6a23eep-10F), r, V::set(0x1.123a0ap-7F));
  q = fma(q, r, V::set(0x1.5558f2p-5F));
  q = fma(q, r, V::set(0x1.555492p-3F));
  q = fma(q, r, V::set(0x1.fffffcp-2F));
  const auto power = V::set(1.0F) + fma(q, r * r, r);

  // k + 256 > 0, halved: 2^k = 2^(half - 128) 2^(k + 128 - half).
  const auto biased = bits(shifted) - V::set_u32(0x4b400000U - 256U);
  const auto half = shift_right<1>(biased);
  const auto one = V::set_u32(1);
  const auto first = from_bits(shift_left<23>(half - one));
  const auto second = from_bits(shift_left<23>(biased - half - one));
  return power * first * second;
}

}  // namespace penstock::math
