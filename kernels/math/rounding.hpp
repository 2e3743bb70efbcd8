#pragma once

/// Rounding to bf16 at random, on a kit V: up with the probability that makes the mean right. The
/// random word is a hash of a key and the element's index, so it depends on no order, thread or
/// cut. Integer operations only: the same bits on every kit, and no rounding mode applies.

#include "kernels/math/value.hpp"

namespace penstock::math {

/// A hash of both keys and the element: the multiplications and shifts that C. Wellons' search for
/// 32-bit permutations of low bias found (lowbias32), with the second key between its rounds, so
/// that two keys do not give two windows of one sequence. The upper half is the better mixed one.
template <class V, class U>
PENSTOCK_MATH U random_words(U element, U key0, U key1) {
  U x = element + key0;
  x = (x ^ shift_right<16>(x)) * V::set_u32(0x7feb352dU);
  x = (x ^ shift_right<15>(x)) + key1;
  x = x * V::set_u32(0x846ca68bU);
  return x ^ shift_right<16>(x);
}

/// The bf16 below or above x in magnitude. What bf16 holds exactly stays; infinity and NaN
/// (canonical) stay, too, and the largest finite numbers do not become infinite.
template <class V, class F, class U>
PENSTOCK_MATH U stochastic_bf16(F x, U random) {
  const U word = bits(x);
  const U down = shift_right<16>(word);
  const U rounded = shift_right<16>(word + shift_right<16>(random));
  const U exponent = V::set_u32(0x7f80U);
  return select(equal(rounded & exponent, exponent), down, rounded);
}

}  // namespace penstock::math
