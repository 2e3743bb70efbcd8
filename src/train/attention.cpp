#include "train/attention.hpp"

#include <cmath>

namespace penstock {
namespace {
std::size_t size(std::int64_t count) {
  return static_cast<std::size_t>(count);
}
}  // namespace

Result<Attention> Attention::prepare(Matmul& matmul, MatmulType operand,
                                     const AttentionShape& shape) {
  Attention attention;
  attention.shape_ = shape;
  attention.scale_ = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_dim)));
  for (std::int64_t first = 0; first < shape.seq; first += kQueryBlock) {
    PENSTOCK_TRY(block, prepare_block(matmul, operand, shape, first), "attention");
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
  const MatmulShape scores{operand, rows, keys, d, row_qkv, row_qkv, keys, false, true, false};
  const MatmulShape out{operand, rows, d, keys, keys, row_qkv, row_out, false, false, false};
  const MatmulShape dprob{operand, rows, keys, d, row_out, row_qkv, keys, false, true, false};
  const MatmulShape dvalue{operand, keys, d, rows, keys, row_out, row_qkv, true, false, true};
  const MatmulShape dquery{operand, rows, d, keys, keys, row_qkv, row_qkv, false, false, false};
  const MatmulShape dkey{operand, keys, d, rows, keys, row_qkv, row_qkv, true, false, true};
  PENSTOCK_TRY(scores_id, matmul.prepare(scores), "scores");
  PENSTOCK_TRY(out_id, matmul.prepare(out), "output");
  PENSTOCK_TRY(dprob_id, matmul.prepare(dprob), "gradient of probabilities");
  PENSTOCK_TRY(dvalue_id, matmul.prepare(dvalue), "gradient of values");
  PENSTOCK_TRY(dquery_id, matmul.prepare(dquery), "gradient of queries");
  PENSTOCK_TRY(dkey_id, matmul.prepare(dkey), "gradient of keys");
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
  scores_ = carver.take(count);
  dscores_ = carver.take(count);
  probabilities_ = carver.take_bytes(size(count) * size_bytes(operand));
  dscores_operand_ = carver.take_bytes(size(count) * size_bytes(operand));
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

Status Attention::probabilities(const Ops& ops, const Block& block, const void* query,
                                const void* key) const {
  PENSTOCK_CHECK_OK(ops.matmul.run(block.scores, query, key, scores_));
  for_rows(ops, block.rows, block.keys, [&](std::int64_t first, std::int64_t count) {
    float* const rows = scores_ + first * block.keys;
    ops.math.causal_softmax(size(count), size(block.keys), size(block.first + first), scale_, rows);
    ops.to_operand(size(count * block.keys), rows, ops.at(probabilities_, first * block.keys));
  });
  return ok();
}

Status Attention::forward(const Ops& ops, const void* qkv, float* out) const {
  for (std::int64_t sequence = 0; sequence < shape_.sequences; ++sequence) {
    for (std::int64_t head = 0; head < shape_.heads; ++head) {
      const Place at = place(sequence, head);
      for (const Block& block : blocks_) {
        const void* const query = ops.at(qkv, at.query + block.first * shape_.row_qkv());
        PENSTOCK_CHECK_OK(probabilities(ops, block, query, ops.at(qkv, at.key)));
        PENSTOCK_CHECK_OK(ops.matmul.run(block.out, probabilities_, ops.at(qkv, at.value),
                                         out + at.out + block.first * shape_.row_out()));
      }
    }
  }
  return ok();
}

Status Attention::backward_block(const Ops& ops, const Block& block, const Place& at,
                                 const void* qkv, const void* dout, float* dqkv) const {
  const std::int64_t query_at = at.query + block.first * shape_.row_qkv();
  const void* const query = ops.at(qkv, query_at);
  const void* const key = ops.at(qkv, at.key);
  const void* const dout_block = ops.at(dout, at.out + block.first * shape_.row_out());
  PENSTOCK_CHECK_OK(probabilities(ops, block, query, key));
  PENSTOCK_CHECK_OK(ops.matmul.run(block.dvalue, probabilities_, dout_block, dqkv + at.value));
  PENSTOCK_CHECK_OK(ops.matmul.run(block.dprob, dout_block, ops.at(qkv, at.value), dscores_));
  for_rows(ops, block.rows, block.keys, [&](std::int64_t first, std::int64_t count) {
    const std::int64_t start = first * block.keys;
    ops.math.softmax_backward(size(count), size(block.keys), size(block.first + first), scale_,
                              scores_ + start, dscores_ + start);
    ops.to_operand(size(count * block.keys), dscores_ + start, ops.at(dscores_operand_, start));
  });
  PENSTOCK_CHECK_OK(ops.matmul.run(block.dquery, dscores_operand_, key, dqkv + query_at));
  return ops.matmul.run(block.dkey, dscores_operand_, query, dqkv + at.key);
}

Status Attention::backward(const Ops& ops, const void* qkv, const void* dout, float* dqkv) const {
  // Keys and values are summed over query blocks and over the heads that share them.
  zero(ops, shape_.sequences * shape_.seq * shape_.row_qkv(), dqkv);
  for (std::int64_t sequence = 0; sequence < shape_.sequences; ++sequence) {
    for (std::int64_t head = 0; head < shape_.heads; ++head) {
      const Place at = place(sequence, head);
      for (const Block& block : blocks_) {
        PENSTOCK_CHECK_OK(backward_block(ops, block, at, qkv, dout, dqkv));
      }
    }
  }
  return ok();
}

}  // namespace penstock
