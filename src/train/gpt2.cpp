// The gpt2 layer: x + proj(attention(qkv(LayerNorm(x)))), then x + down(gelu(fc(LayerNorm(x)))),
// every product with a bias.

#include <utility>

#include "train/layer_base.hpp"

namespace penstock {
namespace {

struct Gpt2Products {
  Linear qkv, proj, fc, down;
};

class Gpt2Layer final : public LayerBase {
 public:
  Gpt2Layer(const LayerShape& shape, MatmulType operand, Attention attention,
            const Gpt2Products& products)
      : LayerBase(shape, operand, std::move(attention)), products_(products) {}

  void prepare_tables() override {}

  Status forward(const Ops& ops, const GroupWeights& weights, const float* x,
                 const Activations& kept, float* out) override;

 private:
  void activate(const Ops& ops, const Activations& kept, void* out) const;
  Status attention_forward(const Ops& ops, const GroupWeights& weights, const float* x,
                           const Activations& kept);
  Status feed_forward_backward(const Ops& ops, const GroupWeights& weights, const Activations& kept,
                               float* d, const GroupGradients& gradients) override;
  Status attention_backward(const Ops& ops, const GroupWeights& weights, const float* x,
                            const Activations& kept, float* d,
                            const GroupGradients& gradients) override;

  const Gpt2Products products_;
};

void Gpt2Layer::activate(const Ops& ops, const Activations& kept, void* out) const {
  const std::int64_t n = shape_.config.intermediate;
  float* const wide = scratch_.wide[0];
  for_rows(ops, rows_, n, [&](std::int64_t first, std::int64_t count) {
    const std::int64_t at = first * n;
    ops.math.gelu_forward(size(count * n), kept.gate + at, wide + at);
    ops.to_operand(size(count * n), wide + at, ops.at(out, at));
  });
}

Status Gpt2Layer::attention_forward(const Ops& ops, const GroupWeights& weights, const float* x,
                                    const Activations& kept) {
  const void* const n =
      normed(ops, x, {weights.vector[kGpt2Norm1], weights.vector[kGpt2Norm1Bias]});
  PENSTOCK_CHECK_OK(products_.qkv.forward(ops, n, weights.matrix[kGpt2Qkv], scratch_.qkv));
  add_bias(ops, rows_, row_qkv_, weights.vector[kGpt2QkvBias], scratch_.qkv);
  round_rows(ops, rows_, row_qkv_, scratch_.qkv, kept.qkv);
  PENSTOCK_CHECK_OK(attention_.forward(ops, kept.qkv, scratch_.heads));
  round_rows(ops, rows_, hidden_, scratch_.heads, kept.heads);
  copy_rows(ops, rows_, hidden_, x, kept.middle);
  PENSTOCK_CHECK_OK(
      products_.proj.forward(ops, kept.heads, weights.matrix[kGpt2Proj], kept.middle));
  add_bias(ops, rows_, hidden_, weights.vector[kGpt2ProjBias], kept.middle);
  return ok();
}

Status Gpt2Layer::forward(const Ops& ops, const GroupWeights& weights, const float* x,
                          const Activations& kept, float* out) {
  PENSTOCK_CHECK_OK(attention_forward(ops, weights, x, kept));
  const void* const n =
      normed(ops, kept.middle, {weights.vector[kGpt2Norm2], weights.vector[kGpt2Norm2Bias]});
  PENSTOCK_CHECK_OK(products_.fc.forward(ops, n, weights.matrix[kGpt2Fc], kept.gate));
  add_bias(ops, rows_, shape_.config.intermediate, weights.vector[kGpt2FcBias], kept.gate);
  if (out == nullptr) return ok();
  activate(ops, kept, scratch_.wide_operand[0]);
  copy_rows(ops, rows_, hidden_, kept.middle, out);
  PENSTOCK_CHECK_OK(
      products_.down.forward(ops, scratch_.wide_operand[0], weights.matrix[kGpt2Down], out));
  add_bias(ops, rows_, hidden_, weights.vector[kGpt2DownBias], out);
  return ok();
}

Status Gpt2Layer::feed_forward_backward(const Ops& ops, const GroupWeights& weights,
                                        const Activations& kept, float* d,
                                        const GroupGradients& gradients) {
  const std::int64_t wide = shape_.config.intermediate;
  void* const d_out = scratch_.narrow_operand[1];
  void* const activated = scratch_.wide_operand[0];
  round_rows(ops, rows_, hidden_, d, d_out);
  add_bias_gradient(ops, rows_, hidden_, d, scratch_.partials, gradients[kGpt2DownBias]);
  activate(ops, kept, activated);
  PENSTOCK_CHECK_OK(products_.down.backward_weight(ops, d_out, activated, gradients[kGpt2Down]));
  float* const d_activated = scratch_.wide[0];
  float* const d_fc = scratch_.wide[1];
  void* const d_fc_operand = scratch_.wide_operand[1];
  PENSTOCK_CHECK_OK(
      products_.down.backward_data(ops, d_out, weights.matrix[kGpt2Down], d_activated));
  for_rows(ops, rows_, wide, [&](std::int64_t first, std::int64_t count) {
    const std::int64_t at = first * wide;
    ops.math.gelu_backward(size(count * wide), kept.gate + at, d_activated + at, d_fc + at);
    ops.to_operand(size(count * wide), d_fc + at, ops.at(d_fc_operand, at));
  });
  add_bias_gradient(ops, rows_, wide, d_fc, scratch_.partials, gradients[kGpt2FcBias]);
  const NormWeights norm{weights.vector[kGpt2Norm2], weights.vector[kGpt2Norm2Bias]};
  const void* const n = normed(ops, kept.middle, norm);
  PENSTOCK_CHECK_OK(products_.fc.backward_weight(ops, d_fc_operand, n, gradients[kGpt2Fc]));
  float* const dn = scratch_.narrow[0];
  PENSTOCK_CHECK_OK(products_.fc.backward_data(ops, d_fc_operand, weights.matrix[kGpt2Fc], dn));
  norm_backward(ops, kept.middle, norm, d, {gradients[kGpt2Norm2], gradients[kGpt2Norm2Bias]});
  return ok();
}

Status Gpt2Layer::attention_backward(const Ops& ops, const GroupWeights& weights, const float* x,
                                     const Activations& kept, float* d,
                                     const GroupGradients& gradients) {
  add_bias_gradient(ops, rows_, hidden_, d, scratch_.partials, gradients[kGpt2ProjBias]);
  PENSTOCK_CHECK_OK(heads_backward(ops, products_.proj, weights.matrix[kGpt2Proj], kept, d,
                                   gradients[kGpt2Proj]));
  void* const d_qkv = scratch_.qkv_operand;
  round_rows(ops, rows_, row_qkv_, scratch_.qkv, d_qkv);
  add_bias_gradient(ops, rows_, row_qkv_, scratch_.qkv, scratch_.partials, gradients[kGpt2QkvBias]);
  const NormWeights norm{weights.vector[kGpt2Norm1], weights.vector[kGpt2Norm1Bias]};
  const void* const n = normed(ops, x, norm);
  PENSTOCK_CHECK_OK(products_.qkv.backward_weight(ops, d_qkv, n, gradients[kGpt2Qkv]));
  float* const dn = scratch_.narrow[0];
  PENSTOCK_CHECK_OK(products_.qkv.backward_data(ops, d_qkv, weights.matrix[kGpt2Qkv], dn));
  norm_backward(ops, x, norm, d, {gradients[kGpt2Norm1], gradients[kGpt2Norm1Bias]});
  return ok();
}

}  // namespace

Result<std::unique_ptr<Layer>> make_gpt2_layer(Matmul& matmul, MatmulType operand,
                                               const LayerShape& shape) {
  const ModelConfig& c = shape.config;
  const AttentionShape heads = shape.attention();
  const std::int64_t rows = shape.rows();
  const auto layout = WeightLayout::kInOut;
  const auto linear = [&](const LinearShape& s) { return Linear::prepare(matmul, operand, s); };
  PENSTOCK_TAKE(attention, Attention::prepare(matmul, operand, heads));
  PENSTOCK_TAKE(qkv, linear({rows, c.hidden, heads.row_qkv(), layout}));
  PENSTOCK_TAKE(proj, linear({rows, c.hidden, c.hidden, layout, 0, true}));
  PENSTOCK_TAKE(fc, linear({rows, c.hidden, c.intermediate, layout}));
  PENSTOCK_TAKE(down, linear({rows, c.intermediate, c.hidden, layout, 0, true}));
  return std::unique_ptr<Layer>(std::make_unique<Gpt2Layer>(shape, operand, std::move(attention),
                                                            Gpt2Products{qkv, proj, fc, down}));
}

}  // namespace penstock
