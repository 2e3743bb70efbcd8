#pragma once

/// Per-element formulas of RMSNorm and LayerNorm. The sums over a row are the kernel's, since their
/// order is part of the result; here mean_of and the like are those sums already divided by n.

#include "kernels/math/value.hpp"

namespace penstock::math {

/// 1 / sqrt(mean_square + eps).
PENSTOCK_MATH float reciprocal_deviation(float mean_square, float eps) {
  return 1.0F / sqrt(mean_square + eps);
}

/// (x - mean) * rstd; RMSNorm has no mean.
template <class V>
PENSTOCK_MATH typename V::F32 normalised(typename V::F32 x, typename V::F32 mean,
                                         typename V::F32 rstd) {
  return (x - mean) * rstd;
}

/// dx of RMSNorm: rstd (g - xhat mean(g xhat)), with g = dy * weight.
template <class V>
PENSTOCK_MATH typename V::F32 rmsnorm_dx(typename V::F32 g, typename V::F32 xhat,
                                         typename V::F32 rstd, typename V::F32 minus_mean_g_xhat) {
  return rstd * fma(xhat, minus_mean_g_xhat, g);
}

/// dx of LayerNorm: rstd (g - mean(g) - xhat mean(g xhat)).
template <class V>
PENSTOCK_MATH typename V::F32 layernorm_dx(typename V::F32 g, typename V::F32 xhat,
                                           typename V::F32 rstd, typename V::F32 mean_g,
                                           typename V::F32 minus_mean_g_xhat) {
  return rstd * fma(xhat, minus_mean_g_xhat, g - mean_g);
}

}  // namespace penstock::math
