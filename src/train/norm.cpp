#include "train/norm.hpp"

namespace penstock {

void Norm::forward(const Ops& ops, std::int64_t rows, const float* x, const NormWeights& weights,
                   const NormStatistics& statistics, float* y, void* out) const {
  for_rows(ops, rows, n, [&](std::int64_t first, std::int64_t count) {
    const std::int64_t at = first * n;
    if (family == ModelFamily::kLlama) {
      ops.math.rmsnorm_forward(size(count), size(n), eps, x + at, weights.weight, y + at,
                               statistics.rstd + first);
    } else {
      ops.math.layernorm_forward(size(count), size(n), eps, x + at, weights.weight, weights.bias,
                                 y + at, statistics.mean + first, statistics.rstd + first);
    }
    ops.to_operand(size(count * n), y + at, ops.at(out, at));
  });
}

void Norm::backward(const Ops& ops, std::int64_t rows, const float* dy, const float* x,
                    const NormWeights& weights, const NormStatistics& statistics, float* dx,
                    float* scratch, const NormGradients& gradients) const {
  const bool rms = family == ModelFamily::kLlama;
  sum_rows(
      ops, rows, rms ? n : 2 * n, scratch,
      [&](std::int64_t first, std::int64_t count, float* partial) {
        const std::int64_t at = first * n;
        if (rms) {
          ops.math.rmsnorm_backward(size(count), size(n), dy + at, x + at, weights.weight,
                                    statistics.rstd + first, dx + at, partial);
        } else {
          ops.math.layernorm_backward(size(count), size(n), dy + at, x + at, weights.weight,
                                      statistics.mean + first, statistics.rstd + first, dx + at,
                                      partial, partial + n);
        }
      },
      [&](const float* partial) {
        ops.math.add_into(size(n), partial, gradients.weight);
        if (!rms) ops.math.add_into(size(n), partial + n, gradients.bias);
      });
}

}  // namespace penstock
