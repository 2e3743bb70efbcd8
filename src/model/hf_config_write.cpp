#include <nlohmann/json.hpp>

#include "model/hf_config.hpp"

namespace penstock {
namespace {

using nlohmann::ordered_json;

/// No token of ours begins or ends a text, and the defaults of other programs may lie beyond the
/// vocabulary.
void add_common(ordered_json& value, const ModelConfig& config, std::string_view torch_dtype) {
  value["vocab_size"] = config.vocab;
  value["tie_word_embeddings"] = config.tie_embeddings;
  value["bos_token_id"] = nullptr;
  value["eos_token_id"] = nullptr;
  value["initializer_range"] = 0.02;
  value["torch_dtype"] = torch_dtype;
}

ordered_json llama(const ModelConfig& config) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_size", config.hidden},
          {"intermediate_size", config.intermediate},
          {"num_hidden_layers", config.layers},
          {"num_attention_heads", config.heads},
          {"num_key_value_heads", config.kv_heads},
          {"head_dim", config.head_dim},
          {"hidden_act", "silu"},
          {"max_position_embeddings", config.max_positions},
          {"rms_norm_eps", config.norm_eps},
          {"rope_theta", config.rope_theta},
          {"attention_bias", false},
          {"mlp_bias", false},
          {"attention_dropout", 0.0}};
}

ordered_json gpt2(const ModelConfig& config) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"n_embd", config.hidden},
          {"n_inner", config.intermediate},
          {"n_layer", config.layers},
          {"n_head", config.heads},
          {"n_positions", config.max_positions},
          {"n_ctx", config.max_positions},
          {"activation_function", "gelu_new"},
          {"layer_norm_epsilon", config.norm_eps},
          {"scale_attn_weights", true},
          {"resid_pdrop", 0.0},
          {"embd_pdrop", 0.0},
          {"attn_pdrop", 0.0}};
}

}  // namespace

std::string write_hf_config(const ModelConfig& config, std::string_view torch_dtype) {
  ordered_json value = config.family == ModelFamily::kLlama ? llama(config) : gpt2(config);
  add_common(value, config, torch_dtype);
  return value.dump(2) + "\n";
}

}  // namespace penstock
