#pragma once

/// Conversions of single values in integer arithmetic.
///
/// f16 <-> f32 are bit for bit what the processor's F16C instructions do.
/// f16 subnormals are exact both ways, independent of MXCSR. Rounding is to nearest even; overflow
/// gives infinity. NaN keeps its sign and upper payload and becomes quiet.

#include <cstdint>

namespace penstock::math {

// Internal linkage: files built for wider instruction sets include this too.
static inline std::uint32_t f16_bits_to_f32_bits(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  std::uint32_t exponent = (half >> 10) & 0x1fU;
  std::uint32_t fraction = half & 0x3ffU;
  if (exponent == 0x1fU) {
    const std::uint32_t quiet = fraction != 0 ? 0x400000U : 0U;
    return sign | 0x7f800000U | quiet | (fraction << 13);
  }
  if (exponent == 0) {
    if (fraction == 0) return sign;
    exponent = 1;
    while ((fraction & 0x400U) == 0) {  // normalise: f32 has the range for every f16 subnormal
      fraction <<= 1;
      --exponent;
    }
    fraction &= 0x3ffU;
  }
  return sign | ((exponent + (127U - 15U)) << 23) | (fraction << 13);
}

/// (hi << 16) + sext(lo), the exact master: join_master() of kernels/math/convert.hpp.
static inline std::uint32_t master_bits(std::uint16_t hi, std::int16_t lo) {
  return (std::uint32_t{hi} << 16) + static_cast<std::uint32_t>(std::int32_t{lo});
}

static inline std::uint16_t f32_bits_to_f16_bits(std::uint32_t bits) {
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  std::uint32_t half;
  if (magnitude > 0x7f800000U) {
    half = 0x7e00U | ((magnitude >> 13) & 0x3ffU);
  } else if (magnitude >= 0x47800000U) {  // 65536 and above
    half = 0x7c00U;
  } else if (magnitude >= 0x38800000U) {  // normal f16; a carry may end in infinity, as it should
    const std::uint32_t rebased = magnitude - ((127U - 15U) << 23);
    half = (rebased + 0xfffU + ((rebased >> 13) & 1U)) >> 13;
  } else if (magnitude > 0x33000000U) {  // above half of the smallest subnormal
    const std::uint32_t shift = 126U - (magnitude >> 23);
    const std::uint32_t fraction = (magnitude & 0x7fffffU) | 0x800000U;
    const std::uint32_t kept = fraction >> shift;
    const std::uint32_t rest = fraction & ((1U << shift) - 1U);
    const std::uint32_t half_way = 1U << (shift - 1U);
    half = kept + (rest > half_way || (rest == half_way && (kept & 1U) != 0) ? 1U : 0U);
  } else {
    half = 0;
  }
  return static_cast<std::uint16_t>(sign | half);
}

}  // namespace penstock::math
