#include "train/shape.hpp"

#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace penstock {
namespace {

constexpr float kDeviation = 0.02F;

/// Appends tensors to one group after another.
class SpecBuilder {
 public:
  void group(std::string name) { spec_.groups.push_back(std::move(name)); }

  TensorSpec& matrix(std::string name, std::int64_t rows, std::int64_t columns,
                     float deviation = kDeviation) {
    TensorSpec& tensor = add(std::move(name), {rows, columns});
    tensor.init.kind = Init::Kind::kNormal;
    tensor.init.deviation = deviation;
    return tensor;
  }

  void norm_weight(std::string name, std::int64_t n) {
    TensorSpec& tensor = add(std::move(name), {n});
    tensor.init.kind = Init::Kind::kConstant;
    tensor.init.constant = 1.0F;
  }

  void bias(std::string name, std::int64_t n) { add(std::move(name), {n}); }

  ModelSpec finish() && { return std::move(spec_); }

 private:
  TensorSpec& add(std::string name, std::vector<std::int64_t> shape) {
    TensorSpec tensor;
    tensor.name = std::move(name);
    tensor.shape = std::move(shape);
    tensor.group = static_cast<GroupId>(spec_.groups.size() - 1);
    tensor.decay = is_matrix(tensor);
    spec_.tensors.push_back(std::move(tensor));
    return spec_.tensors.back();
  }

  ModelSpec spec_;
};

float residual_deviation(const ModelConfig& config) {
  return static_cast<float>(0.02 / std::sqrt(2.0 * static_cast<double>(config.layers)));
}

// The order of the two functions below is that of LlamaTensor and Gpt2Tensor.

void add_llama_layer(SpecBuilder& builder, const ModelConfig& c, std::int64_t layer) {
  const std::string at = fmt::format("model.layers.{}.", layer);
  const float residual = residual_deviation(c);
  const std::int64_t q = c.heads * c.head_dim;
  const std::int64_t kv = c.kv_heads * c.head_dim;
  builder.norm_weight(at + "input_layernorm.weight", c.hidden);
  builder.matrix(at + "self_attn.q_proj.weight", q, c.hidden);
  builder.matrix(at + "self_attn.k_proj.weight", kv, c.hidden);
  builder.matrix(at + "self_attn.v_proj.weight", kv, c.hidden);
  builder.matrix(at + "self_attn.o_proj.weight", c.hidden, q, residual);
  builder.norm_weight(at + "post_attention_layernorm.weight", c.hidden);
  builder.matrix(at + "mlp.gate_proj.weight", c.intermediate, c.hidden);
  builder.matrix(at + "mlp.up_proj.weight", c.intermediate, c.hidden);
  builder.matrix(at + "mlp.down_proj.weight", c.hidden, c.intermediate, residual);
}

void add_gpt2_layer(SpecBuilder& builder, const ModelConfig& c, std::int64_t layer) {
  const std::string at = fmt::format("transformer.h.{}.", layer);
  const float residual = residual_deviation(c);
  builder.norm_weight(at + "ln_1.weight", c.hidden);
  builder.bias(at + "ln_1.bias", c.hidden);
  builder.matrix(at + "attn.c_attn.weight", c.hidden, 3 * c.hidden);
  builder.bias(at + "attn.c_attn.bias", 3 * c.hidden);
  builder.matrix(at + "attn.c_proj.weight", c.hidden, c.hidden, residual);
  builder.bias(at + "attn.c_proj.bias", c.hidden);
  builder.norm_weight(at + "ln_2.weight", c.hidden);
  builder.bias(at + "ln_2.bias", c.hidden);
  builder.matrix(at + "mlp.c_fc.weight", c.hidden, c.intermediate);
  builder.bias(at + "mlp.c_fc.bias", c.intermediate);
  builder.matrix(at + "mlp.c_proj.weight", c.intermediate, c.hidden, residual);
  builder.bias(at + "mlp.c_proj.bias", c.hidden);
}

}  // namespace

bool is_matrix(const TensorSpec& tensor) {
  return tensor.shape.size() >= 2;
}

std::uint64_t element_count(const TensorSpec& tensor) {
  std::uint64_t count = 1;
  for (const std::int64_t length : tensor.shape) count *= static_cast<std::uint64_t>(length);
  return count;
}

ModelIndex make_model_index(const ModelConfig& config) {
  const bool llama = config.family == ModelFamily::kLlama;
  ModelIndex index;
  TensorId next = 0;
  index.token_embedding = next++;
  if (!llama) index.position_embedding = next++;
  index.first_layer = next;
  index.layer_tensors = llama ? std::uint32_t{kLlamaTensors} : std::uint32_t{kGpt2Tensors};
  next += static_cast<TensorId>(config.layers) * index.layer_tensors;
  index.final_norm = next++;
  if (!llama) index.final_norm_bias = next++;
  index.logits = config.tie_embeddings ? index.token_embedding : next++;
  index.head_group = index.first_layer_group + static_cast<GroupId>(config.layers);
  return index;
}

ModelSpec make_model_spec(const ModelConfig& config) {
  const bool llama = config.family == ModelFamily::kLlama;
  SpecBuilder builder;
  builder.group("embed");
  TensorSpec& tokens = builder.matrix(
      llama ? "model.embed_tokens.weight" : "transformer.wte.weight", config.vocab, config.hidden);
  tokens.contributions = config.tie_embeddings ? 2 : 1;
  if (!llama) builder.matrix("transformer.wpe.weight", config.max_positions, config.hidden);
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    builder.group(fmt::format("layer.{}", layer));
    if (llama) {
      add_llama_layer(builder, config, layer);
    } else {
      add_gpt2_layer(builder, config, layer);
    }
  }
  builder.group("head");
  builder.norm_weight(llama ? "model.norm.weight" : "transformer.ln_f.weight", config.hidden);
  if (!llama) builder.bias("transformer.ln_f.bias", config.hidden);
  if (!config.tie_embeddings) builder.matrix("lm_head.weight", config.vocab, config.hidden);

  ModelSpec spec = std::move(builder).finish();
  spec.level = Level::kWeights;
  for (GroupId group = 0; group < spec.groups.size(); ++group) spec.forward.push_back(group);
  if (config.tie_embeddings) spec.forward.push_back(0);
  spec.backward.assign(spec.forward.rbegin(), spec.forward.rend());
  return spec;
}

Status check_shape(const ModelConfig& c, const BatchShape& batch) {
  const auto refuse = [&](std::string why) -> Status {
    return make_error(Errc::kArgument, fmt::format("model {}: {}", c.name, why));
  };
  for (const std::int64_t count : {c.layers, c.hidden, c.heads, c.kv_heads, c.head_dim,
                                   c.intermediate, c.vocab, c.max_positions}) {
    if (count < 1) return refuse("every size must be at least 1; correct its config.json");
  }
  if (c.vocab > std::int64_t{1} << 31) return refuse("the vocabulary is above 2^31 tokens");
  if (c.heads % c.kv_heads != 0) {
    return refuse(
        fmt::format("{} heads cannot share {} key-value heads evenly; the first must be "
                    "a multiple of the second",
                    c.heads, c.kv_heads));
  }
  if (c.family == ModelFamily::kLlama && c.head_dim % 2 != 0) {
    return refuse(fmt::format("head_dim {} is odd, but positions rotate pairs", c.head_dim));
  }
  if (c.family == ModelFamily::kGpt2 &&
      (c.kv_heads != c.heads || c.heads * c.head_dim != c.hidden || !c.tie_embeddings)) {
    return refuse(
        "gpt2 needs as many key-value heads as heads, heads * head_dim = hidden, and "
        "tied embeddings");
  }
  if (batch.micro_batches < 1 || batch.micro < 1 || batch.seq < 1) {
    return refuse("micro-batches, their size and the sequence length must be at least 1");
  }
  if (batch.seq > c.max_positions) {
    return refuse(
        fmt::format("sequences of {} tokens are longer than its {} positions; give "
                    "--seq {} or less",
                    batch.seq, c.max_positions, c.max_positions));
  }
  return ok();
}

}  // namespace penstock
