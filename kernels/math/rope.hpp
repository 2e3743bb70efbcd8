#pragma once

/// Rotary position embedding of one pair (Su et al. 2021, eq. 34, halves instead of neighbours).

#include "kernels/math/value.hpp"

namespace penstock::math {

template <class V>
struct Rotated {
  typename V::F32 first;
  typename V::F32 second;
};

template <class V>
PENSTOCK_MATH Rotated<V> rotate(typename V::F32 a, typename V::F32 b, typename V::F32 cosine,
                                typename V::F32 sine) {
  return {fma(a, cosine, -(b * sine)), fma(b, cosine, a * sine)};
}

}  // namespace penstock::math
