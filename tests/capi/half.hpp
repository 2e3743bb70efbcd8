#pragma once

/// fp16 by arithmetic, independent of the kernels: finite values only, rounded to nearest even.

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace penstock::capi_testing {

inline float from_f16(std::uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const auto fraction = static_cast<float>(half & 1023);
  const float size =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024.0F + fraction, exponent - 25);
  return (half >> 15) != 0 ? -size : size;
}

inline std::uint16_t f16_of(float value) {
  const int sign = std::signbit(value) ? 0x8000 : 0;
  if (value == 0.0F) return static_cast<std::uint16_t>(sign);
  int exponent = 0;
  (void)std::frexp(value, &exponent);  // |value| = f * 2^exponent, f in [0.5, 1)
  const int step = std::max(exponent - 11, -24);
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(std::fabs(value), -step)));
  // 1024 units carry into the exponent by themselves.
  return static_cast<std::uint16_t>(sign + ((step + 24) << 10) + units);
}

}  // namespace penstock::capi_testing
