#pragma once

/// Rotary position embedding of one pair (Su et al. 2021, eq. 34, halves instead of neighbours).

#include "kernels/math/value.hpp"

namespace penstock::math {

template <class V>
struct Rotated {
  V first;
  V second;
};

template <class V>
PENSTOCK_MATH Rotated<V> rotate(V a, V b, V cosine, V sine) {
  return {fma(a, cosine, V(0.0F) - b * sine), fma(b, cosine, a * sine)};
}

}  // namespace penstock::math
