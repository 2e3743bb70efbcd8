#pragma once

/// Online cross entropy of one row: the state (maximum, sum of e^(x - maximum)) and its folding.

#include "kernels/math/exp.hpp"
#include "kernels/math/log.hpp"

namespace penstock::math {

/// What terms are taken relative to: the maximum, or 0 while every logit so far is -inf, so that
/// e^(-inf - base) is 0 and not NaN.
PENSTOCK_MATH float loss_base(float maximum) {
  return maximum == -kInfinity ? 0.0F : maximum;
}

/// The sum of the columns before, brought to a new base, plus the sum of a chunk.
PENSTOCK_MATH float loss_folded_sum(float old_maximum, float old_sum, float base, float chunk_sum) {
  return fma(old_sum, exponential<One>(old_maximum - base), chunk_sum);
}

/// -log softmax(target).
PENSTOCK_MATH float loss_value(float maximum, float sum, float target_logit) {
  return logarithm<One>(sum) + (maximum - target_logit);
}

/// factor * softmax; scaled_reciprocal is factor / sum.
template <class V>
PENSTOCK_MATH typename V::F32 loss_gradient(typename V::F32 logit, typename V::F32 base,
                                            typename V::F32 scaled_reciprocal) {
  return exponential<V>(logit - base) * scaled_reciprocal;
}

}  // namespace penstock::math
