// The llama layer: x + Wo attention(rope(Wq n), rope(Wk n), Wv n) with n = RMSNorm(x), then
// x + Wdown (silu(Wgate n) * Wup n) with n = RMSNorm of that.

#include <utility>

#include "train/layer_base.hpp"

namespace penstock {
namespace {

struct LlamaProducts {
  Linear q, kv, out, gate_up, down;
  /// The data gradients of k, v and up are added to those of q and gate.
  Linear kv_added, gate_up_added;
};

class LlamaLayer final : public LayerBase {
 public:
  LlamaLayer(const LayerShape& shape, MatmulType operand, Attention attention,
             const LlamaProducts& products)
      : LayerBase(shape, operand, std::move(attention)), products_(products) {}

  void prepare_tables() override { fill_rotations(shape_, scratch_); }

  Status forward(const Ops& ops, const GroupWeights& weights, const float* x,
                 const Activations& kept, float* out) override;

 private:
  // Columns where queries, keys and values of a row start.
  [[nodiscard]] std::int64_t key_column() const {
    return shape_.config.heads * shape_.config.head_dim;
  }
  [[nodiscard]] std::int64_t value_column() const {
    return key_column() + shape_.config.kv_heads * shape_.config.head_dim;
  }

  void rotate(const Ops& ops, float direction, float* qkv, void* out) const;
  void activate(const Ops& ops, const Activations& kept, void* out) const;
  Status attention_forward(const Ops& ops, const GroupWeights& weights, const float* x,
                           const Activations& kept);
  Status feed_forward_backward(const Ops& ops, const GroupWeights& weights, const Activations& kept,
                               float* d, const GroupGradients& gradients) override;
  Status attention_backward(const Ops& ops, const GroupWeights& weights, const float* x,
                            const Activations& kept, float* d,
                            const GroupGradients& gradients) override;

  const LlamaProducts products_;
};

/// Rotates queries and keys of each row in place, then rounds the whole row.
void LlamaLayer::rotate(const Ops& ops, float direction, float* qkv, void* out) const {
  const std::int64_t half = shape_.config.head_dim / 2;
  const std::int64_t heads = shape_.config.heads + shape_.config.kv_heads;
  for_rows(ops, rows_, row_qkv_, [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t row = first; row < first + count; ++row) {
      const std::int64_t angle = row % shape_.batch.seq * half;
      ops.math.rope(1, size(heads), size(half), scratch_.cosine + angle, scratch_.sine + angle,
                    direction, qkv + row * row_qkv_);
    }
    ops.to_operand(size(count * row_qkv_), qkv + first * row_qkv_, ops.at(out, first * row_qkv_));
  });
}

void LlamaLayer::activate(const Ops& ops, const Activations& kept, void* out) const {
  const std::int64_t n = shape_.config.intermediate;
  float* const wide = scratch_.wide[0];
  for_rows(ops, rows_, n, [&](std::int64_t first, std::int64_t count) {
    const std::int64_t at = first * n;
    ops.math.swiglu_forward(size(count * n), kept.gate + at, kept.up + at, wide + at);
    ops.to_operand(size(count * n), wide + at, ops.at(out, at));
  });
}

Status LlamaLayer::attention_forward(const Ops& ops, const GroupWeights& weights, const float* x,
                                     const Activations& kept) {
  const void* const n = normed(ops, x, {weights.vector[kLlamaInputNorm]});
  float* const qkv = scratch_.qkv;
  PENSTOCK_CHECK_OK(products_.q.forward(ops, n, weights.matrix[kLlamaQ], qkv));
  PENSTOCK_CHECK_OK(products_.kv.forward(ops, n, weights.matrix[kLlamaK], qkv + key_column()));
  PENSTOCK_CHECK_OK(products_.kv.forward(ops, n, weights.matrix[kLlamaV], qkv + value_column()));
  rotate(ops, 1.0F, qkv, kept.qkv);
  PENSTOCK_CHECK_OK(attention_.forward(ops, kept.qkv, scratch_.heads));
  round_rows(ops, rows_, shape_.attention().row_out(), scratch_.heads, kept.heads);
  copy_rows(ops, rows_, hidden_, x, kept.middle);
  return products_.out.forward(ops, kept.heads, weights.matrix[kLlamaO], kept.middle);
}

Status LlamaLayer::forward(const Ops& ops, const GroupWeights& weights, const float* x,
                           const Activations& kept, float* out) {
  PENSTOCK_CHECK_OK(attention_forward(ops, weights, x, kept));
  const void* const n = normed(ops, kept.middle, {weights.vector[kLlamaPostNorm]});
  PENSTOCK_CHECK_OK(products_.gate_up.forward(ops, n, weights.matrix[kLlamaGate], kept.gate));
  PENSTOCK_CHECK_OK(products_.gate_up.forward(ops, n, weights.matrix[kLlamaUp], kept.up));
  if (out == nullptr) return ok();
  activate(ops, kept, scratch_.wide_operand[0]);
  copy_rows(ops, rows_, hidden_, kept.middle, out);
  return products_.down.forward(ops, scratch_.wide_operand[0], weights.matrix[kLlamaDown], out);
}

Status LlamaLayer::feed_forward_backward(const Ops& ops, const GroupWeights& weights,
                                         const Activations& kept, float* d,
                                         const GroupGradients& gradients) {
  const std::int64_t wide = shape_.config.intermediate;
  void* const d_out = scratch_.narrow_operand[1];
  void* const activated = scratch_.wide_operand[0];
  round_rows(ops, rows_, hidden_, d, d_out);
  activate(ops, kept, activated);
  PENSTOCK_CHECK_OK(products_.down.backward_weight(ops, d_out, activated, gradients[kLlamaDown]));
  float* const d_activated = scratch_.wide[0];
  PENSTOCK_CHECK_OK(
      products_.down.backward_data(ops, d_out, weights.matrix[kLlamaDown], d_activated));
  void* const d_gate = scratch_.wide_operand[0];
  void* const d_up = scratch_.wide_operand[1];
  for_rows(ops, rows_, wide, [&](std::int64_t first, std::int64_t count) {
    const std::int64_t at = first * wide;
    const std::size_t n = size(count * wide);
    ops.math.swiglu_backward(n, kept.gate + at, kept.up + at, d_activated + at,
                             scratch_.wide[1] + at, scratch_.wide[2] + at);
    ops.to_operand(n, scratch_.wide[1] + at, ops.at(d_gate, at));
    ops.to_operand(n, scratch_.wide[2] + at, ops.at(d_up, at));
  });
  const NormWeights norm{weights.vector[kLlamaPostNorm]};
  const void* const n = normed(ops, kept.middle, norm);
  PENSTOCK_CHECK_OK(products_.gate_up.backward_weight(ops, d_gate, n, gradients[kLlamaGate]));
  PENSTOCK_CHECK_OK(products_.gate_up.backward_weight(ops, d_up, n, gradients[kLlamaUp]));
  float* const dn = scratch_.narrow[0];
  PENSTOCK_CHECK_OK(products_.gate_up.backward_data(ops, d_gate, weights.matrix[kLlamaGate], dn));
  PENSTOCK_CHECK_OK(products_.gate_up_added.backward_data(ops, d_up, weights.matrix[kLlamaUp], dn));
  norm_backward(ops, kept.middle, norm, d, {gradients[kLlamaPostNorm]});
  return ok();
}

Status LlamaLayer::attention_backward(const Ops& ops, const GroupWeights& weights, const float* x,
                                      const Activations& kept, float* d,
                                      const GroupGradients& gradients) {
  PENSTOCK_CHECK_OK(
      heads_backward(ops, products_.out, weights.matrix[kLlamaO], kept, d, gradients[kLlamaO]));
  const void* const dq = scratch_.qkv_operand;
  rotate(ops, -1.0F, scratch_.qkv, scratch_.qkv_operand);
  const void* const dk = ops.at(dq, key_column());
  const void* const dv = ops.at(dq, value_column());

  const NormWeights norm{weights.vector[kLlamaInputNorm]};
  const void* const n = normed(ops, x, norm);
  PENSTOCK_CHECK_OK(products_.q.backward_weight(ops, dq, n, gradients[kLlamaQ]));
  PENSTOCK_CHECK_OK(products_.kv.backward_weight(ops, dk, n, gradients[kLlamaK]));
  PENSTOCK_CHECK_OK(products_.kv.backward_weight(ops, dv, n, gradients[kLlamaV]));
  float* const dn = scratch_.narrow[0];
  PENSTOCK_CHECK_OK(products_.q.backward_data(ops, dq, weights.matrix[kLlamaQ], dn));
  PENSTOCK_CHECK_OK(products_.kv_added.backward_data(ops, dk, weights.matrix[kLlamaK], dn));
  PENSTOCK_CHECK_OK(products_.kv_added.backward_data(ops, dv, weights.matrix[kLlamaV], dn));
  norm_backward(ops, x, norm, d, {gradients[kLlamaInputNorm]});
  return ok();
}

}  // namespace

Result<std::unique_ptr<Layer>> make_llama_layer(Matmul& matmul, MatmulType operand,
                                                const LayerShape& shape) {
  const ModelConfig& c = shape.config;
  const AttentionShape heads = shape.attention();
  const std::int64_t rows = shape.rows(), kv = c.kv_heads * c.head_dim;
  const auto layout = WeightLayout::kOutIn;
  const auto linear = [&](const LinearShape& s) { return Linear::prepare(matmul, operand, s); };
  PENSTOCK_TAKE(attention, Attention::prepare(matmul, operand, heads));
  PENSTOCK_TAKE(q, linear({rows, c.hidden, heads.row_out(), layout, heads.row_qkv()}));
  PENSTOCK_TAKE(k, linear({rows, c.hidden, kv, layout, heads.row_qkv()}));
  PENSTOCK_TAKE(k_added, linear({rows, c.hidden, kv, layout, heads.row_qkv(), false, true}));
  PENSTOCK_TAKE(out, linear({rows, heads.row_out(), c.hidden, layout, 0, true}));
  PENSTOCK_TAKE(gate, linear({rows, c.hidden, c.intermediate, layout}));
  PENSTOCK_TAKE(gate_added, linear({rows, c.hidden, c.intermediate, layout, 0, false, true}));
  PENSTOCK_TAKE(down, linear({rows, c.intermediate, c.hidden, layout, 0, true}));
  const LlamaProducts products{q, k, out, gate, down, k_added, gate_added};
  return std::unique_ptr<Layer>(
      std::make_unique<LlamaLayer>(shape, operand, std::move(attention), products));
}

}  // namespace penstock
