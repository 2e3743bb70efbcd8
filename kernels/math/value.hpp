#pragma once

/// What the formulas of this directory compute with: a kit V, and the kit of one plain float.
///
/// A kit names the types F32, U32, Mask and builds them (set, set_u32); operations on them are
/// operators and free functions, found by argument dependent lookup for vectors (vec_scalar.hpp
/// lists them) and here for float. Every one is a single IEEE operation or exact, so a formula
/// gives the same bits for every kit, as long as MXCSR (or the GPU's flush mode) is the same.
/// Everything here is forced inline: what is built with wide instructions leaves no function behind
/// that other files could share.

#include <cstdint>

#ifdef __CUDACC__
#define PENSTOCK_MATH __host__ __device__ __forceinline__
#else
#define PENSTOCK_MATH [[gnu::always_inline]] inline
#endif

namespace penstock::math {

struct One {
  using F32 = float;
  using U32 = std::uint32_t;
  using Mask = bool;
  PENSTOCK_MATH static float set(float x) { return x; }
  PENSTOCK_MATH static std::uint32_t set_u32(std::uint32_t x) { return x; }
};

PENSTOCK_MATH float fma(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
PENSTOCK_MATH float sqrt(float a) {
  return __builtin_sqrtf(a);
}
PENSTOCK_MATH float abs(float a) {
  return __builtin_fabsf(a);
}
PENSTOCK_MATH float min(float a, float b) {
  return a < b ? a : b;
}
PENSTOCK_MATH float max(float a, float b) {
  return a > b ? a : b;
}
PENSTOCK_MATH bool less(float a, float b) {
  return a < b;
}
PENSTOCK_MATH float select(bool mask, float a, float b) {
  return mask ? a : b;
}
PENSTOCK_MATH std::uint32_t bits(float a) {
  return __builtin_bit_cast(std::uint32_t, a);
}
PENSTOCK_MATH float from_bits(std::uint32_t a) {
  return __builtin_bit_cast(float, a);
}
template <int kCount>
PENSTOCK_MATH std::uint32_t shift_left(std::uint32_t a) {
  return a << kCount;
}
template <int kCount>
PENSTOCK_MATH std::uint32_t shift_right(std::uint32_t a) {
  return a >> kCount;
}

inline constexpr float kInfinity = __builtin_inff();
inline constexpr std::uint32_t kSignBit = 0x80000000U;

}  // namespace penstock::math
