#pragma once

/// Row kernels of RMSNorm and LayerNorm for a kit V. Contracts: transformer.hpp.

#include <cstddef>

#include "kernels/cpu/transformer_lanes.hpp"
#include "kernels/math/norm_rows.hpp"

namespace penstock {

/// The norms of one ISA; V is local to its file, so these are too.
template <class V>
struct NormKernels {
  using F32 = typename V::F32;

  static void rmsnorm_forward(std::size_t rows, std::size_t n, float eps, const float* x,
                              const float* weight, float* y, float* rstd_out) {
    for (std::size_t r = 0; r < rows; ++r, x += n, y += n) {
      F32 sum = V::set(0.0F);
      for_row<V>(n, [&](auto span) {
        const F32 value = span.load(x);
        sum = fma(value, value, sum);
      });
      rstd_out[r] = math::reciprocal_deviation(mean(sum, n), eps);
      const F32 rstd = V::set(rstd_out[r]);
      for_row<V>(n, [&](auto span) { span.store(y, span.load(x) * rstd * span.load(weight)); });
    }
  }

  static void rmsnorm_backward(std::size_t rows, std::size_t n, const float* dy, const float* x,
                               const float* weight, const float* rstd_in, float* dx,
                               float* dweight) {
    for (std::size_t r = 0; r < rows; ++r, dy += n, x += n, dx += n) {
      const F32 rstd = V::set(rstd_in[r]);
      F32 dot = V::set(0.0F);
      for_row<V>(n, [&](auto span) {
        const F32 g = span.load(dy) * span.load(weight);
        dot = fma(g, span.load(x) * rstd, dot);
      });
      const F32 minus_mean = V::set(-mean(dot, n));
      for_row<V>(n, [&](auto span) {
        const F32 upstream = span.load(dy);
        const F32 xhat = span.load(x) * rstd;
        span.store(dx, math::rmsnorm_dx<V>(upstream * span.load(weight), xhat, rstd, minus_mean));
        span.store(dweight, fma(upstream, xhat, span.load(dweight)));
      });
    }
  }

  static void layernorm_forward(std::size_t rows, std::size_t n, float eps, const float* x,
                                const float* weight, const float* bias, float* y, float* mean_out,
                                float* rstd_out) {
    for (std::size_t r = 0; r < rows; ++r, x += n, y += n) {
      F32 sum = V::set(0.0F);
      for_row<V>(n, [&](auto span) { sum = sum + span.load(x); });
      mean_out[r] = mean(sum, n);
      const F32 centre = V::set(mean_out[r]);
      // The variance about the mean, in a pass of its own: the difference of two large sums would
      // lose it.
      F32 squares = V::set(0.0F);
      for_row<V>(n, [&](auto span) {
        const F32 offset = span.keep(span.load(x) - centre, 0.0F);
        squares = fma(offset, offset, squares);
      });
      rstd_out[r] = math::reciprocal_deviation(mean(squares, n), eps);
      const F32 rstd = V::set(rstd_out[r]);
      for_row<V>(n, [&](auto span) {
        const F32 xhat = math::normalised<V>(span.load(x), centre, rstd);
        span.store(y, fma(xhat, span.load(weight), span.load(bias)));
      });
    }
  }

  static void layernorm_backward(std::size_t rows, std::size_t n, const float* dy, const float* x,
                                 const float* weight, const float* mean_in, const float* rstd_in,
                                 float* dx, float* dweight, float* dbias) {
    for (std::size_t r = 0; r < rows; ++r, dy += n, x += n, dx += n) {
      const F32 centre = V::set(mean_in[r]);
      const F32 rstd = V::set(rstd_in[r]);
      F32 sum = V::set(0.0F);
      F32 dot = V::set(0.0F);
      for_row<V>(n, [&](auto span) {
        const F32 g = span.load(dy) * span.load(weight);
        sum = sum + g;
        dot = fma(g, math::normalised<V>(span.load(x), centre, rstd), dot);
      });
      const F32 mean_g = V::set(mean(sum, n));
      const F32 minus_mean_g_xhat = V::set(-mean(dot, n));
      for_row<V>(n, [&](auto span) {
        const F32 upstream = span.load(dy);
        const F32 xhat = math::normalised<V>(span.load(x), centre, rstd);
        span.store(dx, math::layernorm_dx<V>(upstream * span.load(weight), xhat, rstd, mean_g,
                                             minus_mean_g_xhat));
        span.store(dweight, fma(upstream, xhat, span.load(dweight)));
        span.store(dbias, span.load(dbias) + upstream);
      });
    }
  }

 private:
  static float mean(F32 sum, std::size_t n) { return sum_lanes(sum) / static_cast<float>(n); }
};

}  // namespace penstock
