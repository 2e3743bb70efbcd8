#pragma once

/// The shape of a decoder-only transformer, as a Hugging Face config.json states it.
///
/// Plain values; whoever fills them has checked them: every count is >= 1 and
///   heads % kv_heads == 0; llama: head_dim is even; gpt2: kv_heads == heads,
///   heads * head_dim == hidden, tie_embeddings.
/// Units: counts of elements (heads, tokens, features).

#include <cstdint>
#include <string>

namespace penstock {

enum class ModelFamily : std::uint8_t {
  kLlama,  ///< RMSNorm, RoPE, SwiGLU, grouped-query attention, no biases
  kGpt2,   ///< LayerNorm, learned positions, tanh-GELU, biases, tied embeddings
};

struct ModelConfig {
  ModelFamily family = ModelFamily::kLlama;
  std::string name;  ///< a size ("tiny") or where the config came from
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;      ///< heads of keys and values; divides `heads`
  std::int64_t head_dim = 0;      ///< heads * head_dim need not be `hidden` (llama)
  std::int64_t intermediate = 0;  ///< width inside the feed-forward part
  std::int64_t vocab = 0;
  std::int64_t max_positions = 0;  ///< longest sequence; rows of wpe (gpt2)
  double norm_eps = 1e-5;
  double rope_theta = 10000.0;  ///< llama only
  bool tie_embeddings = false;  ///< the embedding is also the matrix of the logits
};

}  // namespace penstock
