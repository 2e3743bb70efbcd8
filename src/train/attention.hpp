#pragma once

/// Causal attention with grouped key-value heads, one block of queries at a time.
///
/// Shared out by sequences and key-value heads; the heads of a group follow each other, since they
///   add to the same gradients. Of each lane only the scores of one block exist: [at most
///   kQueryBlock queries, the keys they see] of one head. The backward computes them again. Blocks
///   and order of sums are functions of the shape alone.
/// A row of qkv is [heads queries | kv_heads keys | kv_heads values] of head_dim each; a row of the
///   output is [heads, head_dim]. Rows are those of one micro-batch: sequences one after another.

#include <cstdint>
#include <vector>

#include "train/ops.hpp"
#include "train/workspace.hpp"

namespace penstock {

struct AttentionShape {
  std::int64_t sequences = 0, seq = 0, heads = 0, kv_heads = 0, head_dim = 0;
  [[nodiscard]] std::int64_t row_qkv() const { return (heads + 2 * kv_heads) * head_dim; }
  [[nodiscard]] std::int64_t row_out() const { return heads * head_dim; }
};

class Attention {
 public:
  static constexpr std::int64_t kQueryBlock = 256;

  static Result<Attention> prepare(Matmul& matmul, MatmulType operand, const AttentionShape& shape);
  void carve(Carver& carver, MatmulType operand);

  /// qkv: operand; out: f32, overwritten.
  Status forward(const Ops& ops, const void* qkv, float* out) const;
  /// dout: operand; dqkv: f32, overwritten.
  Status backward(const Ops& ops, const void* qkv, const void* dout, float* dqkv) const;

 private:
  /// Queries first .. first + rows of a sequence, which see keys 0 .. first + rows.
  struct Block {
    std::int64_t first = 0, rows = 0, keys = 0;
    MatmulId scores = 0;  // S = Q K'
    MatmulId out = 0;     // O = P V
    MatmulId dprob = 0;   // dP = dO V'
    MatmulId dvalue = 0;  // dV += P' dO
    MatmulId dquery = 0;  // dQ = dS K
    MatmulId dkey = 0;    // dK += dS' Q
  };
  /// Offsets of one head of one sequence, in elements.
  struct Place {
    std::int64_t query = 0, key = 0, value = 0, out = 0;
  };

  static Result<Block> prepare_block(Matmul& matmul, MatmulType operand,
                                     const AttentionShape& shape, std::int64_t first);
  [[nodiscard]] Place place(std::int64_t sequence, std::int64_t head) const;
  /// Scratch of one lane.
  struct Lane {
    float* scores = nullptr;        // [block, keys]
    float* dscores = nullptr;       // [block, keys]
    void* probabilities = nullptr;  // operand of the same
    void* dscores_operand = nullptr;
  };
  /// body(lane, place, block) for every block of every head of every sequence.
  template <class Body>
  Status for_blocks(const Ops& ops, const Body& body) const;
  /// P of one block into the lane's scores and, rounded, probabilities.
  Status probabilities(const Ops& ops, int lane, const Block& block, const void* query,
                       const void* key) const;
  Status backward_block(const Ops& ops, int lane, const Block& block, const Place& at,
                        const void* qkv, const void* dout, float* dqkv) const;

  AttentionShape shape_;
  float scale_ = 1.0F;
  std::vector<Block> blocks_;
  std::vector<Lane> lanes_;
};

}  // namespace penstock
