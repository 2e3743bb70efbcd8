#pragma once

/// Rounding at random, to bf16 and others, on a kit V: up with the probability that makes the mean
/// right. The random word is a hash of a key and the element's index, so it depends on no order,
/// thread or cut. Integer operations only: the same bits on every kit, and no rounding mode
/// applies.

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

/// 16 bits for each element, from one word for two vectors: element e has the upper half of the
/// word of pair_index(e) where bit 4 of e is 0, else the lower.
template <class V, class U>
PENSTOCK_MATH U pair_index(U element) {
  const U lane = V::set_u32(15);
  return (shift_right<1>(element) & (V::set_u32(0xffffffffU) ^ lane)) | (element & lane);
}
template <class U>
struct RandomPair {
  U first, second;  ///< of 16 elements and the 16 after them
};
/// Of the two vectors from an element on that is a multiple of 32: `pair` is its pair_index().
template <class V, class U>
PENSTOCK_MATH RandomPair<U> random_pair(U pair, U key0, U key1) {
  const U words = random_words<V>(pair, key0, key1);
  return {shift_right<16>(words), words & V::set_u32(0xffff)};
}
/// Of any 16 elements.
template <class V, class U>
PENSTOCK_MATH U random_halves(U element, U key0, U key1) {
  const RandomPair<U> both = random_pair<V>(pair_index<V>(element), key0, key1);
  return select(equal(element & V::set_u32(16), V::set_u32(0)), both.first, both.second);
}

/// x cut after bit kBits, which goes up or down in magnitude; what the cut bits hold has no
/// meaning. `random` is less than 2^kBits. What has no bits to cut stays; so do infinity and NaN
/// (canonical), and the largest finite numbers do not become infinite.
template <class V, int kBits, class F, class U>
PENSTOCK_MATH U stochastic_bits(F x, U random) {
  const U exponent = V::set_u32(0x7f800000U), up = bits(x) + random;
  return select(equal(up & exponent, exponent), bits(x), up);
}
/// The same, with zeros for the bits cut.
template <class V, int kBits, class F, class U>
PENSTOCK_MATH F stochastic_cut(F x, U random) {
  return from_bits(stochastic_bits<V, kBits>(x, random) & V::set_u32(0xffffffffU << kBits));
}

}  // namespace penstock::math
