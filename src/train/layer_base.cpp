#include "train/layer_base.hpp"

#include <utility>

namespace penstock {

LayerBase::LayerBase(const LayerShape& shape, MatmulType operand, Attention attention)
    : shape_(shape),
      operand_(operand),
      attention_(std::move(attention)),
      norm_{shape.config.family, shape.config.hidden, static_cast<float>(shape.config.norm_eps)},
      rows_(shape.rows()),
      hidden_(shape.config.hidden),
      row_qkv_(shape.attention().row_qkv()) {}

void LayerBase::carve(Carver& carver) {
  attention_.carve(carver, operand_);
  scratch_ = carve_scratch(carver, shape_, operand_);
}

Status LayerBase::backward(const Ops& ops, const GroupWeights& weights, const float* x,
                           const Activations& kept, float* d, const GroupGradients& gradients) {
  PENSTOCK_CHECK_OK(feed_forward_backward(ops, weights, kept, d, gradients));
  return attention_backward(ops, weights, x, kept, d, gradients);
}

const void* LayerBase::normed(const Ops& ops, const float* x, const NormWeights& weights) const {
  void* const out = scratch_.narrow_operand[0];
  norm_.forward(ops, rows_, x, weights, scratch_.statistics, scratch_.narrow[0], out);
  return out;
}

void LayerBase::norm_backward(const Ops& ops, const float* x, const NormWeights& weights, float* d,
                              const NormGradients& gradients) const {
  norm_.backward(ops, rows_, scratch_.narrow[0], x, weights, scratch_.statistics,
                 scratch_.narrow[1], scratch_.partials, gradients);
  add_rows(ops, rows_, hidden_, scratch_.narrow[1], d);
}

Status LayerBase::heads_backward(const Ops& ops, const Linear& projection, const void* weight,
                                 const Activations& kept, const float* d, float* weight_gradient) {
  void* const d_out = scratch_.narrow_operand[1];
  round_rows(ops, rows_, hidden_, d, d_out);
  PENSTOCK_CHECK_OK(projection.backward_weight(ops, d_out, kept.heads, weight_gradient));
  PENSTOCK_CHECK_OK(projection.backward_data(ops, d_out, weight, scratch_.heads));
  round_rows(ops, rows_, shape_.attention().row_out(), scratch_.heads, scratch_.heads_operand);
  return attention_.backward(ops, kept.qkv, scratch_.heads_operand, scratch_.qkv);
}

}  // namespace penstock
