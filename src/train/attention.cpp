#include "train/attention.hpp"

#include <cmath>

#include "train/lanes.hpp"

namespace penstock {

Result<Attention> Attention::prepare(Matmul& matmul, MatmulType operand,
                                     const AttentionShape& shape) {
  Attention attention;
  attention.shape_ = shape;
  const std::int64_t groups = shape.sequences * shape.kv_heads;
  attention.lanes_.resize(size(std::min<std::int64_t>(matmul.lanes(), groups)));
  attention.scale_ = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_dim)));
  for (std::int64_t first = 0; first < shape.seq; first += kQueryBlock) {
    PENSTOCK_TAKE(block, prepare_block(matmul, operand, shape, first));
    attention.blocks_.push_back(block);
  }
  return attention;
}

Result<Attention::Block> Attention::prepare_block(Matmul& matmul, MatmulType operand,
                                                  const AttentionShape& shape, std::int64_t first) {
  Block block;
  block.first = first;
  block.rows = std::min(kQueryBlock, shape.seq - first);
  block.keys = first + block.rows;
  const std::int64_t d = shape.head_dim, rows = block.rows, keys = block.keys;
  const std::int64_t row_qkv = shape.row_qkv(), row_out = shape.row_out();
  const MatmulShape scores{operand, rows,  keys, d,     row_qkv, row_qkv,
                           keys,    false, true, false, true};
  const MatmulShape out{operand, rows, d, keys, keys, row_qkv, row_out, false, false, false, true};
  const MatmulShape dprob{operand, rows, keys, d, row_out, row_qkv, keys, false, true, false, true};
  const MatmulShape dvalue{operand, keys, d, rows, keys, row_out, row_qkv, true, false, true, true};
  const MatmulShape dquery{operand, rows,  d,     keys,  keys, row_qkv,
                           row_qkv, false, false, false, true};
  const MatmulShape dkey{operand, keys, d, rows, keys, row_qkv, row_qkv, true, false, true, true};
  PENSTOCK_TAKE(scores_id, matmul.prepare(scores));
  PENSTOCK_TAKE(out_id, matmul.prepare(out));
  PENSTOCK_TAKE(dprob_id, matmul.prepare(dprob));
  PENSTOCK_TAKE(dvalue_id, matmul.prepare(dvalue));
  PENSTOCK_TAKE(dquery_id, matmul.prepare(dquery));
  PENSTOCK_TAKE(dkey_id, matmul.prepare(dkey));
  block.scores = scores_id;
  block.out = out_id;
  block.dprob = dprob_id;
  block.dvalue = dvalue_id;
  block.dquery = dquery_id;
  block.dkey = dkey_id;
  return block;
}

void Attention::carve(Carver& carver, MatmulType operand) {
  const std::int64_t count = std::min(kQueryBlock, shape_.seq) * shape_.seq;
  for (Lane& lane : lanes_) {
    lane.scores = carver.take(count);
    lane.dscores = carver.take(count);
    lane.probabilities = carver.take_bytes(size(count) * size_bytes(operand));
    lane.dscores_operand = carver.take_bytes(size(count) * size_bytes(operand));
  }
}

Attention::Place Attention::place(std::int64_t sequence, std::int64_t head) const {
  const std::int64_t d = shape_.head_dim;
  const std::int64_t kv_head = head / (shape_.heads / shape_.kv_heads);
  const std::int64_t row = sequence * shape_.seq;
  Place at;
  at.query = row * shape_.row_qkv() + head * d;
  at.key = row * shape_.row_qkv() + (shape_.heads + kv_head) * d;
  at.value = row * shape_.row_qkv() + (shape_.heads + shape_.kv_heads + kv_head) * d;
  at.out = row * shape_.row_out() + head * d;
  return at;
}

template <class Body>
Status Attention::for_blocks(const Ops& ops, const Body& body) const {
  const std::int64_t heads_per_group = shape_.heads / shape_.kv_heads;
  const auto group = [&](int lane, std::int64_t index) -> Status {
    const FloatModeGuard mode;
    const std::int64_t first = index % shape_.kv_heads * heads_per_group;
    for (std::int64_t head = first; head < first + heads_per_group; ++head) {
      const Place at = place(index / shape_.kv_heads, head);
      for (const Block& block : blocks_) PENSTOCK_CHECK_OK(body(lane, at, block));
    }
    return ok();
  };
  return for_lanes(ops.executor, static_cast<int>(lanes_.size()),
                   shape_.sequences * shape_.kv_heads, group);
}

Status Attention::probabilities(const Ops& ops, int lane, const Block& block, const void* query,
                                const void* key) const {
  const Lane& own = lanes_[size(lane)];
  PENSTOCK_CHECK_OK(ops.matmul.run_on(lane, block.scores, query, key, own.scores));
  ops.math.causal_softmax(size(block.rows), size(block.keys), size(block.first), scale_,
                          own.scores);
  ops.to_operand(size(block.rows * block.keys), own.scores, own.probabilities);
  return ok();
}

Status Attention::forward(const Ops& ops, const void* qkv, float* out) const {
  return for_blocks(ops, [&](int lane, const Place& at, const Block& block) -> Status {
    const void* const query = ops.at(qkv, at.query + block.first * shape_.row_qkv());
    PENSTOCK_CHECK_OK(probabilities(ops, lane, block, query, ops.at(qkv, at.key)));
    return ops.matmul.run_on(lane, block.out, lanes_[size(lane)].probabilities,
                             ops.at(qkv, at.value), out + at.out + block.first * shape_.row_out());
  });
}

Status Attention::backward_block(const Ops& ops, int lane, const Block& block, const Place& at,
                                 const void* qkv, const void* dout, float* dqkv) const {
  const Lane& own = lanes_[size(lane)];
  const std::int64_t query_at = at.query + block.first * shape_.row_qkv();
  const void* const query = ops.at(qkv, query_at);
  const void* const key = ops.at(qkv, at.key);
  const void* const dout_block = ops.at(dout, at.out + block.first * shape_.row_out());
  PENSTOCK_CHECK_OK(probabilities(ops, lane, block, query, key));
  Matmul& matmul = ops.matmul;
  PENSTOCK_CHECK_OK(
      matmul.run_on(lane, block.dvalue, own.probabilities, dout_block, dqkv + at.value));
  PENSTOCK_CHECK_OK(
      matmul.run_on(lane, block.dprob, dout_block, ops.at(qkv, at.value), own.dscores));
  ops.math.softmax_backward(size(block.rows), size(block.keys), size(block.first), scale_,
                            own.scores, own.dscores);
  ops.to_operand(size(block.rows * block.keys), own.dscores, own.dscores_operand);
  PENSTOCK_CHECK_OK(matmul.run_on(lane, block.dquery, own.dscores_operand, key, dqkv + query_at));
  return matmul.run_on(lane, block.dkey, own.dscores_operand, query, dqkv + at.key);
}

Status Attention::backward(const Ops& ops, const void* qkv, const void* dout, float* dqkv) const {
  // Keys and values are summed over query blocks and over the heads that share them.
  zero(ops, shape_.sequences * shape_.seq * shape_.row_qkv(), dqkv);
  return for_blocks(ops, [&](int lane, const Place& at, const Block& block) {
    return backward_block(ops, lane, block, at, qkv, dout, dqkv);
  });
}

}  // namespace penstock
