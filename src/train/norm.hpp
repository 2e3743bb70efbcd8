#pragma once

/// RMSNorm or LayerNorm over the rows of one micro-batch.

#include <cstdint>

#include "model/config.hpp"
#include "train/ops.hpp"

namespace penstock {

/// Weight and, for LayerNorm, bias: [n].
struct NormWeights {
  const float* weight = nullptr;
  const float* bias = nullptr;
};
struct NormGradients {
  float* weight = nullptr;
  float* bias = nullptr;
};
/// What the backward needs again: [rows] each; `mean` is LayerNorm's.
struct NormStatistics {
  float* mean = nullptr;
  float* rstd = nullptr;
};

struct Norm {
  ModelFamily family = ModelFamily::kLlama;
  std::int64_t n = 0;
  float eps = 0.0F;

  /// x: [rows, n] f32; y: f32 scratch; out: y as operand.
  void forward(const Ops& ops, std::int64_t rows, const float* x, const NormWeights& weights,
               const NormStatistics& statistics, float* y, void* out) const;
  /// dx: [rows, n], overwritten; gradients: added to. scratch: [kMaxRowParts, 2 n].
  void backward(const Ops& ops, std::int64_t rows, const float* dy, const float* x,
                const NormWeights& weights, const NormStatistics& statistics, float* dx,
                float* scratch, const NormGradients& gradients) const;
};

}  // namespace penstock
