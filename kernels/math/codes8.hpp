#pragma once

/// Codes of 8 bits for the states of Adam, on a kit V: magnitudes relative to the largest of a
/// block, about as their fourth root.
///
/// Shifting the bits of a float right by 2 and adding a constant quarters its exponent: of x in
/// [0, 1] it makes a t in [0, 1] near x^(1/4), continuous and piecewise linear in x, and the shift
/// undoes it. A code c means t = c / 256 (m: c / 128, with a sign), that is, a number with few
/// bits; one step of r is 1.6 % of the largest, 3.1 % of a sixteenth of it, and so on. Corners (x =
/// 2^k) lie at codes, so that what is linear between codes is so between corners.
///
/// Rounding is random, with the right mean. To the nearest, .9 m and .999 v would often be rounded
/// back to m and v for ever, since steps are that large; and a step that v takes alone makes
/// updates explode. Both magnitudes of an element are rounded by the same random number: errors of
/// m / sqrt(v) cancel in part.
///
/// r is sqrt(v), as half the range of exponents does: unsigned, at least 1 where not all of the
/// block is zero. m is a signed number of -127 ... 127. The largest magnitude of a block has the
/// largest code, and the scale is what that one times the scale needs: largest / value of the
/// largest code.
/// Errors: none. What is not finite clamps to the largest code; scales tell of it.

#include "kernels/math/value.hpp"

namespace penstock::math {

/// A form of code: its number of magnitudes 2^bits, in what the formulas need.
struct CodeForm {
  std::uint32_t to_position;  ///< bits(x) / 4 + this: 65536 t 2^bits, as a float
  std::uint32_t from_code;    ///< (bits(float(c)) - this) * 4: the magnitude of c
  float largest_position;     ///< 65536 (2^bits - 1)
  float largest_value;        ///< the magnitude of 2^bits - 1
};
inline constexpr CodeForm kCodeM = {0x3b200000U, 0x33200000U, 127.0F * 65536.0F, 0.96875F};
inline constexpr CodeForm kCodeR = {0x3ba00000U, 0x33a00000U, 255.0F * 65536.0F, 0.984375F};
/// The position of code 1.
inline constexpr float kLeastPosition = 65536.0F;

/// The magnitude of c >= 0; exact.
template <class V, class U>
PENSTOCK_MATH auto code_value(const CodeForm& form, U c) {
  const U zero = V::set_u32(form.from_code);
  return from_bits(shift_left<2>(max(bits(int_to_float(c)), zero) - zero));
}

/// The code of a magnitude x, next to it below or, where 16 random bits say so, above. least: a
/// lower bound of the position.
template <class V, class F, class U>
PENSTOCK_MATH U code_of(const CodeForm& form, F x, F least, U random) {
  const F position = from_bits(shift_right<2>(bits(x)) + V::set_u32(form.to_position));
  const F bounded = min(max(position, least), V::set(form.largest_position));
  return shift_right<16>(round_to_int(bounded) + random);
}

/// m from its code, sign-extended.
template <class V, class F, class U>
PENSTOCK_MATH F decode_m(U code, F scale) {
  const F x = code_value<V>(kCodeM, magnitude(code));
  return from_bits(bits(x) | (code & V::set_u32(kSignBit))) * scale;
}
/// m to its code, in the low 8 bits. inverse: 1 / scale.
template <class V, class F, class U>
PENSTOCK_MATH U encode_m(F m, F inverse, U random) {
  const F x = m * inverse;
  const U code = code_of<V>(kCodeM, abs(x), V::set(0.0F), random);
  const U sign = shift_right_signed<31>(bits(x));
  return (code ^ sign) - sign;
}

/// r from its code, zero-extended.
template <class V, class F, class U>
PENSTOCK_MATH F decode_r(U code, F scale) {
  return code_value<V>(kCodeR, code) * scale;
}
/// r to its code, in the low 8 bits. least: kLeastPosition, or 0 in a block of zeros.
template <class V, class F, class U>
PENSTOCK_MATH U encode_r(F r, F inverse, F least, U random) {
  return code_of<V>(kCodeR, r * inverse, least, random);
}

}  // namespace penstock::math
