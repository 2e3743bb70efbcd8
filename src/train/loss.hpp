#pragma once

/// Logits, cross entropy and its gradient, in chunks of the vocabulary.
///
/// Only the logits of one chunk and one micro-batch exist. The forward folds the chunks into the
///   running maximum and sum of each token; the backward makes each chunk again. Chunks are cut by
///   model and batch alone.
/// The matrix is W: [vocab, hidden] bf16 as leased; where operands are fp32 a chunk is widened.

#include <cstdint>
#include <span>
#include <vector>

#include "train/ops.hpp"
#include "train/shape.hpp"
#include "train/workspace.hpp"

namespace penstock {

/// The micro-batches first .. first + count of a step.
struct MicroRange {
  std::int64_t first = 0, count = 0;
};

class LossHead {
 public:
  /// chunk_bytes: of the fp32 logits of a chunk, about.
  static Result<LossHead> prepare(Matmul& matmul, MatmulType operand, const ModelConfig& config,
                                  const BatchShape& batch, std::int64_t chunk_bytes);
  void carve(Carver& carver, MatmulType operand);

  /// normed: [tokens, hidden] operand; targets: [tokens], each below the vocabulary.
  Status forward(const Ops& ops, const std::uint16_t* w, const void* normed,
                 const std::uint32_t* targets, MicroRange range);
  /// Sum over the tokens of the range of their cross entropy, in token order.
  [[nodiscard]] double loss_sum(const Ops& ops, MicroRange range);
  /// factor: the weight of one token. dnormed: [tokens, hidden] f32, overwritten; dw: [vocab,
  /// hidden] f32, added to.
  Status backward(const Ops& ops, const std::uint16_t* w, const void* normed,
                  const std::uint32_t* targets, MicroRange range, float factor, float* dnormed,
                  float* dw);
  /// The logits of one row. normed: [hidden] operand; out: [vocab].
  Status logits(const Ops& ops, const std::uint16_t* w, const void* normed, float* out);

  [[nodiscard]] std::size_t chunk_count() const { return chunks_.size(); }

 private:
  struct Chunk {
    std::int64_t first = 0, count = 0;
    MatmulId logits = 0;   // N W'
    MatmulId dnormed = 0;  // dN += dlogits W
    MatmulId dweight = 0;  // dW += dlogits' N
    MatmulId row = 0;      // logits of one row
  };
  /// W of a chunk as operand.
  const void* chunk_weights(const Ops& ops, const std::uint16_t* w, const Chunk& chunk);

  std::int64_t hidden_ = 0, vocab_ = 0, rows_ = 0, tokens_ = 0;
  std::vector<Chunk> chunks_;
  float* logits_ = nullptr;        // [rows, chunk]
  void* dlogits_ = nullptr;        // operand of the same
  float* widened_ = nullptr;       // [chunk, hidden]; fp32 operands only
  float* maximum_ = nullptr;       // [tokens]
  float* sum_ = nullptr;           // [tokens]
  float* target_logit_ = nullptr;  // [tokens]
  float* log_sum_ = nullptr;       // [rows]
};

}  // namespace penstock
