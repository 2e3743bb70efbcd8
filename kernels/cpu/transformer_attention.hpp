#pragma once

/// Row kernels of attention for a kit V: causal softmax, its backward, RoPE. Contracts:
/// transformer.hpp.

#include <cstddef>

#include "kernels/cpu/transformer_lanes.hpp"
#include "kernels/math/rope.hpp"
#include "kernels/math/softmax.hpp"

namespace penstock {

template <class V>
struct AttentionKernels {
  using F32 = typename V::F32;

  static void causal_softmax(std::size_t rows, std::size_t n, std::size_t first_visible,
                             float scale, float* x) {
    const F32 factor = V::set(scale);
    for (std::size_t r = 0; r < rows; ++r, x += n) {
      const std::size_t seen = visible(r, n, first_visible);
      F32 running = V::set(-math::kInfinity);
      for_row<V>(seen, [&](auto span) {
        running = max(span.keep(span.load(x) * factor, -math::kInfinity), running);
      });
      const F32 maximum = V::set(max_lanes(running));
      F32 sum = V::set(0.0F);
      for_row<V>(seen, [&](auto span) {
        const F32 term = math::softmax_term<V>(span.load(x), factor, maximum);
        span.store(x, term);
        sum = sum + span.keep(term, 0.0F);
      });
      const F32 reciprocal = V::set(1.0F / sum_lanes(sum));
      for_row<V>(seen, [&](auto span) { span.store(x, span.load(x) * reciprocal); });
      zero_row<V>(n - seen, x + seen);
    }
  }

  static void softmax_backward(std::size_t rows, std::size_t n, std::size_t first_visible,
                               float scale, const float* p, float* dp) {
    const F32 factor = V::set(scale);
    for (std::size_t r = 0; r < rows; ++r, p += n, dp += n) {
      const std::size_t seen = visible(r, n, first_visible);
      F32 sum = V::set(0.0F);
      for_row<V>(seen, [&](auto span) { sum = fma(span.load(dp), span.load(p), sum); });
      const F32 dot = V::set(sum_lanes(sum));
      for_row<V>(seen, [&](auto span) {
        span.store(dp, math::softmax_gradient<V>(span.load(p), span.load(dp), factor, dot));
      });
      zero_row<V>(n - seen, dp + seen);
    }
  }

  static void rope(std::size_t rows, std::size_t heads, std::size_t half, const float* cosine,
                   const float* sine, float direction, float* x) {
    const F32 sign = V::set(direction);
    for (std::size_t r = 0; r < rows; ++r, cosine += half, sine += half) {
      for (std::size_t h = 0; h < heads; ++h, x += 2 * half) {
        for_row<V>(half, [&](auto span) {
          const auto turned = math::rotate<V>(span.load(x), span.load(x + half), span.load(cosine),
                                              span.load(sine) * sign);
          span.store(x, turned.first);
          span.store(x + half, turned.second);
        });
      }
    }
  }

 private:
  /// Columns that row r of the call sees; no overflow for any first_visible.
  static std::size_t visible(std::size_t r, std::size_t n, std::size_t first_visible) {
    return first_visible >= n || r >= n - first_visible ? n : first_visible + r + 1;
  }
};

}  // namespace penstock
