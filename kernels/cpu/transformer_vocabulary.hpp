#pragma once

/// Row kernels over the vocabulary for a kit V: cross entropy in chunks, embedding rows. Contracts:
/// transformer.hpp.

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/transformer.hpp"
#include "kernels/cpu/transformer_lanes.hpp"
#include "kernels/math/loss.hpp"

namespace penstock {

template <class V>
struct VocabularyKernels {
  using F32 = typename V::F32;

  static void loss_fold(std::size_t rows, std::size_t n, std::size_t first, const float* logits,
                        const std::uint32_t* targets, float* maximum, float* sum,
                        float* target_logit) {
    for (std::size_t r = 0; r < rows; ++r, logits += n) {
      F32 running = V::set(-math::kInfinity);
      for_row<V>(n, [&](auto span) {
        running = max(span.keep(span.load(logits), -math::kInfinity), running);
      });
      const float before = maximum[r];
      maximum[r] = math::max(max_lanes(running), before);
      const float base = math::loss_base(maximum[r]);
      F32 terms = V::set(0.0F);
      for_row<V>(n, [&](auto span) {
        const F32 term = math::exponential<V>(span.load(logits) - V::set(base));
        terms = terms + span.keep(term, 0.0F);
      });
      sum[r] = math::loss_folded_sum(before, sum[r], base, sum_lanes(terms));
      if (in_chunk(targets[r], first, n)) target_logit[r] = logits[targets[r] - first];
    }
  }

  static void loss_value(std::size_t rows, const std::uint32_t* targets, const float* maximum,
                         const float* sum, const float* target_logit, float* loss) {
    for (std::size_t r = 0; r < rows; ++r) {
      loss[r] =
          targets[r] == kNoTarget ? 0.0F : math::loss_value(maximum[r], sum[r], target_logit[r]);
    }
  }

  static void loss_backward(std::size_t rows, std::size_t n, std::size_t first, float factor,
                            const std::uint32_t* targets, const float* maximum, const float* sum,
                            float* logits) {
    for (std::size_t r = 0; r < rows; ++r, logits += n) {
      if (targets[r] == kNoTarget) {
        zero_row<V>(n, logits);
        continue;
      }
      const F32 base = V::set(math::loss_base(maximum[r]));
      const F32 scaled_reciprocal = V::set(factor / sum[r]);
      for_row<V>(n, [&](auto span) {
        span.store(logits, math::loss_gradient<V>(span.load(logits), base, scaled_reciprocal));
      });
      if (in_chunk(targets[r], first, n)) logits[targets[r] - first] -= factor;
    }
  }

  static void embedding_gather(std::size_t rows, std::size_t n, std::size_t first,
                               std::size_t count, const std::uint32_t* tokens,
                               const std::uint16_t* table, float* out) {
    for (std::size_t r = 0; r < rows; ++r, out += n) {
      if (!in_chunk(tokens[r], first, count)) continue;
      const std::uint16_t* source = table + (tokens[r] - first) * n;
      for_row<V>(
          n, [&](auto span) { span.store(out, from_bits(shift_left<16>(span.load_u16(source)))); });
    }
  }

  static void embedding_backward(std::size_t rows, std::size_t n, std::size_t first,
                                 std::size_t count, const std::uint32_t* tokens, const float* dy,
                                 float* dtable) {
    for (std::size_t r = 0; r < rows; ++r, dy += n) {
      if (!in_chunk(tokens[r], first, count)) continue;
      float* target = dtable + (tokens[r] - first) * n;
      for_row<V>(n, [&](auto span) { span.store(target, span.load(target) + span.load(dy)); });
    }
  }

 private:
  static bool in_chunk(std::uint32_t index, std::size_t first, std::size_t count) {
    return index >= first && index - first < count;
  }
};

}  // namespace penstock
