#pragma once

/// Conversions between fp32, bf16 and the split master on a vector kit V (kernels/cpu/vec_*.hpp):
/// U32 words in, U32 words out, integer operations only, so no rounding mode or flush applies.

namespace penstock::math {

/// Every NaN becomes 0x7fc00000, so that results do not depend on which operand's payload an
/// instruction keeps.
template <class V>
static inline typename V::F32 canonical(typename V::F32 x) {
  return select(is_nan(x), from_bits(V::set_u32(0x7fc00000U)), x);
}

/// The upper 16 bits are x to the nearest even, the lower ones have no meaning. `x` is canonical
/// and no denormal.
template <class V>
static inline typename V::U32 normal_to_bf16_high(typename V::F32 x) {
  const auto word = bits(x);
  const auto odd = shift_right<16>(word) & V::set_u32(1);
  return word + V::set_u32(0x7fff) + odd;
}

/// To the upper 16 bits, nearest even. A denormal becomes a zero of its sign, as the processor's
/// own bf16 instruction has it. `x` is canonical.
template <class V>
static inline typename V::U32 f32_to_bf16(typename V::F32 x) {
  const auto word = bits(x);
  const auto no_exponent = equal(word & V::set_u32(0x7f800000U), V::set_u32(0));
  return select(no_exponent, shift_right<16>(word) & V::set_u32(0x8000U),
                shift_right<16>(normal_to_bf16_high<V>(x)));
}

/// Exact, denormals included; NaN payloads are kept.
template <class V>
static inline typename V::F32 bf16_to_f32(typename V::U32 half) {
  return from_bits(shift_left<16>(half));
}

/// The exact master of hi in the upper 16 bits and lo as a signed number.
template <class V>
static inline typename V::F32 join_halves(typename V::U32 hi_high, typename V::U32 lo) {
  return from_bits(hi_high + lo);
}

/// (hi << 16) + sext(lo), the exact master.
template <class V>
static inline typename V::F32 join_master(typename V::U32 hi, typename V::U32 lo) {
  return join_halves<V>(shift_left<16>(hi), shift_right_signed<16>(shift_left<16>(lo)));
}

/// hi in the upper 16 bits, as below; the lower ones have no meaning.
template <class V>
static inline typename V::U32 split_hi_high(typename V::F32 x) {
  return bits(x) + V::set_u32(0x8000U);
}

/// hi: nearest, ties away from zero. `x` is canonical: other NaNs could carry into the sign. lo is
/// the low 16 bits of x as they are.
template <class V>
static inline typename V::U32 split_hi_word(typename V::F32 x) {
  return shift_right<16>(split_hi_high<V>(x));
}

/// The remainder of 8 bits of an x whose lowest 8 bits are 0.
template <class V>
static inline typename V::U32 split_lo8_word(typename V::F32 x) {
  return shift_right<8>(bits(x));
}

}  // namespace penstock::math
