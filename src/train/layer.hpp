#pragma once

/// One transformer layer, forward and backward, over one micro-batch at a time.
///
/// x: [rows, hidden] f32, the residual stream that enters the layer; it is all that must be kept of
///   a forward. The backward wants the layer's activations besides: either kept since the forward,
///   or made again by a forward without output; the bits are the same.
/// Memory: weights, gradients, activations and scratch are the caller's.

#include <array>
#include <cstdint>
#include <memory>

#include "train/attention.hpp"
#include "train/norm.hpp"
#include "train/ops.hpp"
#include "train/shape.hpp"
#include "train/workspace.hpp"

namespace penstock {

/// Weights of a group by tensor: matrices as operands, the others as f32.
struct GroupWeights {
  std::array<const void*, kMaxLayerTensors> matrix{};
  std::array<const float*, kMaxLayerTensors> vector{};
};
/// Accumulators of a group's gradients by tensor, f32 in the tensors' shapes.
using GroupGradients = std::array<float*, kMaxLayerTensors>;

struct LayerShape {
  ModelConfig config;
  BatchShape batch;
  [[nodiscard]] std::int64_t rows() const { return batch.rows(); }
  [[nodiscard]] AttentionShape attention() const {
    return {batch.micro, batch.seq, config.heads, config.kv_heads, config.head_dim};
  }
};

/// What a forward leaves for the backward, of one layer and micro-batch.
struct Activations {
  void* qkv = nullptr;      ///< operand [rows, row_qkv], rotated
  void* heads = nullptr;    ///< operand [rows, row_out], the attention's output
  float* middle = nullptr;  ///< [rows, hidden], the residual stream between the two halves
  float* gate = nullptr;    ///< [rows, intermediate]; gpt2: the only one
  float* up = nullptr;      ///< [rows, intermediate]; llama
};
Activations carve_activations(Carver& carver, const LayerShape& shape, MatmulType operand);

/// Scratch that every layer and micro-batch uses in turn.
struct LayerScratch {
  NormStatistics statistics;     // [rows]
  float* narrow[2] = {};         // [rows, hidden]
  float* qkv = nullptr;          // [rows, row_qkv]
  float* heads = nullptr;        // [rows, row_out]
  float* wide[3] = {};           // [rows, intermediate]
  void* narrow_operand[2] = {};  // operands of the same shapes
  void* qkv_operand = nullptr;
  void* heads_operand = nullptr;
  void* wide_operand[2] = {};
  float* partials = nullptr;  // [kMaxRowParts, the longest row that is summed]
  float* cosine = nullptr;    // [seq, head_dim / 2]; llama
  float* sine = nullptr;
};
[[nodiscard]] LayerScratch carve_scratch(Carver& carver, const LayerShape& shape,
                                         MatmulType operand);
/// Fills cosine and sine.
void fill_rotations(const LayerShape& shape, const LayerScratch& scratch);

class Layer {
 public:
  virtual ~Layer() = default;
  /// Assigns scratch; `attention` stays the layer's.
  virtual void carve(Carver& carver) = 0;
  virtual void prepare_tables() = 0;
  /// out: [rows, hidden], may be null to make the activations only.
  virtual Status forward(const Ops& ops, const GroupWeights& weights, const float* x,
                         const Activations& kept, float* out) = 0;
  /// d: [rows, hidden], the gradient of the layer's output on entry, of its input on return.
  virtual Status backward(const Ops& ops, const GroupWeights& weights, const float* x,
                          const Activations& kept, float* d, const GroupGradients& gradients) = 0;
};

Result<std::unique_ptr<Layer>> make_llama_layer(Matmul& matmul, MatmulType operand,
                                                const LayerShape& shape);
Result<std::unique_ptr<Layer>> make_gpt2_layer(Matmul& matmul, MatmulType operand,
                                               const LayerShape& shape);

}  // namespace penstock
