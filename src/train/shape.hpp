#pragma once

/// The built-in trainer's model as tensors and groups: names, shapes, first values, visits.
///
/// Groups in execution order: "embed" (token and, gpt2, position embeddings), "layer.0" ..,
///   "head" (final norm and, untied, the matrix of the logits). A tied token embedding is visited
///   again for the logits, after the head, and has two gradient contributions: 0 as the embedding,
///   1 as the matrix of the logits. The backward order is the reverse of the forward order.
/// Names and layouts are those of Hugging Face checkpoints: llama matrices are [out, in], gpt2
///   matrices [in, out].

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/engine.hpp"
#include "model/config.hpp"

namespace penstock {

/// How a step's tokens are cut: micro_batches x micro sequences x seq tokens.
struct BatchShape {
  std::int64_t micro_batches = 1;
  std::int64_t micro = 1;
  std::int64_t seq = 0;
  [[nodiscard]] std::int64_t rows() const { return micro * seq; }  ///< tokens of one micro-batch
  [[nodiscard]] std::int64_t tokens() const { return micro_batches * rows(); }
};

/// Tensors of a layer, in their order within the group.
enum LlamaTensor : std::uint32_t {
  kLlamaInputNorm,
  kLlamaQ,
  kLlamaK,
  kLlamaV,
  kLlamaO,
  kLlamaPostNorm,
  kLlamaGate,
  kLlamaUp,
  kLlamaDown,
  kLlamaTensors
};
enum Gpt2Tensor : std::uint32_t {
  kGpt2Norm1,
  kGpt2Norm1Bias,
  kGpt2Qkv,
  kGpt2QkvBias,
  kGpt2Proj,
  kGpt2ProjBias,
  kGpt2Norm2,
  kGpt2Norm2Bias,
  kGpt2Fc,
  kGpt2FcBias,
  kGpt2Down,
  kGpt2DownBias,
  kGpt2Tensors
};
inline constexpr std::size_t kMaxLayerTensors = kGpt2Tensors;

/// Where the model's tensors are in ModelSpec::tensors. Absent ones are kNoTensor.
inline constexpr TensorId kNoTensor = ~TensorId{0};
struct ModelIndex {
  TensorId token_embedding = 0;
  TensorId position_embedding = kNoTensor;  ///< gpt2
  TensorId first_layer = 0;                 ///< tensor 0 of layer 0; layers follow each other
  std::uint32_t layer_tensors = 0;
  TensorId final_norm = 0;
  TensorId final_norm_bias = kNoTensor;  ///< gpt2
  TensorId logits = 0;                   ///< the token embedding when tied
  GroupId embed_group = 0;
  GroupId first_layer_group = 1;
  GroupId head_group = 0;
};

/// Rank, and with it weight decay and whether the trainer multiplies with it.
[[nodiscard]] bool is_matrix(const TensorSpec& tensor);
[[nodiscard]] std::uint64_t element_count(const TensorSpec& tensor);

[[nodiscard]] ModelIndex make_model_index(const ModelConfig& config);

/// The tensors of make_model_index, at level 2. Matrices start normal with deviation 0.02, those
/// that write to the residual stream with 0.02 / sqrt(2 layers); norm weights 1, biases 0.
[[nodiscard]] ModelSpec make_model_spec(const ModelConfig& config);

/// kArgument when the config contradicts itself or the batch does not fit it.
Status check_shape(const ModelConfig& config, const BatchShape& batch);

}  // namespace penstock
