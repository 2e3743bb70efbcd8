#pragma once

/// What the formulas of this directory ask of a value type V, and that interface for plain float.
///
/// V is float (scalar, CUDA) or a pack of fp32 lanes. Needed: V(float), + - * /, fma(a, b, c),
/// square_root(a), absolute(a), less(a, b) -> mask, select(mask, a, b), bits(a) -> unsigned lanes I
/// with + - << >> & |, from_bits(I), and value_bits<V>(uint32) -> I. Packs supply them by argument
/// dependent lookup. Every one is a single IEEE operation or exact, so each formula gives the same
/// bits for every V. Comparisons with NaN are false: larger(c, x) and smaller(c, x) return x then.
/// Everything is forced inline, so no copy built for one instruction set can be shared.

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define PENSTOCK_MATH __host__ __device__ __forceinline__
#else
#define PENSTOCK_MATH [[gnu::always_inline]] inline
#endif

namespace penstock::math {

PENSTOCK_MATH float fma(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
PENSTOCK_MATH float square_root(float a) {
  return __builtin_sqrtf(a);
}
PENSTOCK_MATH float absolute(float a) {
  return __builtin_fabsf(a);
}
PENSTOCK_MATH bool less(float a, float b) {
  return a < b;
}
PENSTOCK_MATH float select(bool mask, float a, float b) {
  return mask ? a : b;
}
PENSTOCK_MATH std::uint32_t bits(float a) {
  std::uint32_t result;
  std::memcpy(&result, &a, sizeof(result));
  return result;
}
PENSTOCK_MATH float from_bits(std::uint32_t a) {
  float result;
  std::memcpy(&result, &a, sizeof(result));
  return result;
}

/// The lane-wise integers that go with V.
template <class V>
struct BitsOf {
  using Type = typename V::Bits;
};
template <>
struct BitsOf<float> {
  using Type = std::uint32_t;
};
template <class V>
PENSTOCK_MATH typename BitsOf<V>::Type value_bits(std::uint32_t constant) {
  return typename BitsOf<V>::Type(constant);
}

/// Maximum and minimum of a constant c and x; x when x is NaN.
template <class V>
PENSTOCK_MATH V larger(V c, V x) {
  return select(less(x, c), c, x);
}
template <class V>
PENSTOCK_MATH V smaller(V c, V x) {
  return select(less(c, x), c, x);
}

inline constexpr std::uint32_t kSignBit = 0x80000000U;
inline constexpr std::uint32_t kInfinityBits = 0x7f800000U;

}  // namespace penstock::math
