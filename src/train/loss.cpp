#include "train/loss.hpp"

#include <limits>

#include <fmt/format.h>

namespace penstock {
namespace {

constexpr std::int64_t kChunkMultiple = 64;  // columns; whole vectors in every ISA

/// Equal chunks of about `bytes` of logits, the last one shorter.
std::int64_t chunk_columns(std::int64_t rows, std::int64_t vocab, std::int64_t bytes) {
  const std::int64_t most = std::max<std::int64_t>(256, bytes / (4 * rows));
  const std::int64_t chunks = (vocab + most - 1) / most;
  const std::int64_t even = (vocab + chunks - 1) / chunks;
  return std::min(vocab, (even + kChunkMultiple - 1) / kChunkMultiple * kChunkMultiple);
}

}  // namespace

Result<LossHead> LossHead::prepare(Matmul& matmul, MatmulType operand, const ModelConfig& config,
                                   const BatchShape& batch, std::int64_t chunk_bytes) {
  LossHead head;
  head.hidden_ = config.hidden;
  head.vocab_ = config.vocab;
  head.rows_ = batch.rows();
  head.tokens_ = batch.tokens();
  const std::int64_t rows = head.rows_, hidden = head.hidden_;
  const std::int64_t columns = chunk_columns(rows, head.vocab_, chunk_bytes);
  for (std::int64_t first = 0; first < head.vocab_; first += columns) {
    Chunk chunk;
    chunk.first = first;
    chunk.count = std::min(columns, head.vocab_ - first);
    const std::int64_t n = chunk.count;
    const MatmulShape logits{operand, rows, n, hidden, hidden, hidden, n, false, true, false};
    const MatmulShape dnormed{operand, rows, hidden, n, n, hidden, hidden, false, false, true};
    const MatmulShape dweight{operand, n, hidden, rows, n, hidden, hidden, true, false, true};
    const MatmulShape row{operand, 1, n, hidden, hidden, hidden, n, false, true, false};
    PENSTOCK_TAKE(logits_id, matmul.prepare(logits));
    PENSTOCK_TAKE(dnormed_id, matmul.prepare(dnormed));
    PENSTOCK_TAKE(dweight_id, matmul.prepare(dweight));
    PENSTOCK_TAKE(row_id, matmul.prepare(row));
    chunk.logits = logits_id;
    chunk.dnormed = dnormed_id;
    chunk.dweight = dweight_id;
    chunk.row = row_id;
    head.chunks_.push_back(chunk);
  }
  return head;
}

void LossHead::carve(Carver& carver, MatmulType operand) {
  const std::int64_t columns = chunks_.front().count;
  logits_ = carver.take(rows_ * columns);
  dlogits_ = carver.take_bytes(size(rows_ * columns) * size_bytes(operand));
  if (operand == MatmulType::kF32) widened_ = carver.take(columns * hidden_);
  maximum_ = carver.take(tokens_);
  sum_ = carver.take(tokens_);
  target_logit_ = carver.take(tokens_);
  log_sum_ = carver.take(rows_);
}

const void* LossHead::chunk_weights(const Ops& ops, const std::uint16_t* w, const Chunk& chunk) {
  const std::uint16_t* const start = w + chunk.first * hidden_;
  if (ops.operand == MatmulType::kBf16) return start;
  widen(ops, chunk.count * hidden_, start, widened_);
  return widened_;
}

Status LossHead::forward(const Ops& ops, const std::uint16_t* w, const void* normed,
                         const std::uint32_t* targets, MicroRange range) {
  const std::int64_t start = range.first * rows_, tokens = range.count * rows_;
  std::fill_n(maximum_ + start, tokens, -std::numeric_limits<float>::infinity());
  std::fill_n(sum_ + start, tokens, 0.0F);
  std::fill_n(target_logit_ + start, tokens, 0.0F);
  for (const Chunk& chunk : chunks_) {
    const void* const weights = chunk_weights(ops, w, chunk);
    for (std::int64_t at = start; at < start + tokens; at += rows_) {
      PENSTOCK_CHECK_OK(
          ops.matmul.run(chunk.logits, ops.at(normed, at * hidden_), weights, logits_));
      for_rows(ops, rows_, chunk.count, [&](std::int64_t first, std::int64_t count) {
        const std::int64_t token = at + first;
        ops.math.loss_fold(size(count), size(chunk.count), size(chunk.first),
                           logits_ + first * chunk.count, targets + token, maximum_ + token,
                           sum_ + token, target_logit_ + token);
      });
    }
  }
  return ok();
}

double LossHead::loss_sum(const Ops& ops, MicroRange range) {
  const FloatModeGuard mode;
  double total = 0.0;
  for (std::int64_t micro = range.first; micro < range.first + range.count; ++micro) {
    const std::int64_t start = micro * rows_;
    ops.math.log(size(rows_), sum_ + start, log_sum_);
    for (std::int64_t row = 0; row < rows_; ++row) {
      const std::int64_t token = start + row;
      total += static_cast<double>(log_sum_[row]) + static_cast<double>(maximum_[token]) -
               static_cast<double>(target_logit_[token]);
    }
  }
  return total;
}

Status LossHead::backward(const Ops& ops, const std::uint16_t* w, const void* normed,
                          const std::uint32_t* targets, MicroRange range, float factor,
                          float* dnormed, float* dw) {
  const std::int64_t start = range.first * rows_, tokens = range.count * rows_;
  zero(ops, tokens * hidden_, dnormed + start * hidden_);
  for (const Chunk& chunk : chunks_) {
    const void* const weights = chunk_weights(ops, w, chunk);
    for (std::int64_t at = start; at < start + tokens; at += rows_) {
      const void* const rows = ops.at(normed, at * hidden_);
      PENSTOCK_CHECK_OK(ops.matmul.run(chunk.logits, rows, weights, logits_));
      for_rows(ops, rows_, chunk.count, [&](std::int64_t first, std::int64_t count) {
        const std::int64_t token = at + first;
        float* const logits = logits_ + first * chunk.count;
        ops.math.loss_backward(size(count), size(chunk.count), size(chunk.first), factor,
                               targets + token, maximum_ + token, sum_ + token, logits);
        ops.to_operand(size(count * chunk.count), logits, ops.at(dlogits_, first * chunk.count));
      });
      PENSTOCK_CHECK_OK(ops.matmul.run(chunk.dnormed, dlogits_, weights, dnormed + at * hidden_));
      PENSTOCK_CHECK_OK(ops.matmul.run(chunk.dweight, dlogits_, rows, dw + chunk.first * hidden_));
    }
  }
  return ok();
}

Status LossHead::logits(const Ops& ops, const std::uint16_t* w, const void* normed, float* out) {
  for (const Chunk& chunk : chunks_) {
    PENSTOCK_CHECK_OK(
        ops.matmul.run(chunk.row, normed, chunk_weights(ops, w, chunk), out + chunk.first));
  }
  return ok();
}

}  // namespace penstock
