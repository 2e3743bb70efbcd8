#include "model/hf_config.hpp"

#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "model/named_sizes.hpp"

namespace penstock {
namespace {

using nlohmann::json;

// The shape of a published small llama, with the fields such files carry.
json llama() {
  return json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 576,
    "initializer_range": 0.02, "intermediate_size": 1536, "is_llama_config": true,
    "max_position_embeddings": 8192, "mlp_bias": false, "model_type": "llama",
    "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3,
    "pad_token_id": null, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null,
    "rope_theta": 100000, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
    "transformers_version": "4.42.3", "use_cache": true, "vocab_size": 49152})");
}

// The published configuration of the small GPT-2.
json gpt2() {
  return json::parse(R"({
    "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
    "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12,
    "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": null,
    "summary_first_dropout": 0.1, "summary_proj_to_labels": true, "summary_type": "cls_index",
    "summary_use_proj": true,
    "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}},
    "vocab_size": 50257})");
}

std::string error_of(const json& config) {
  const auto result = parse_hf_config(config.dump(), "config.json");
  if (result) return "";
  EXPECT_EQ(result.error().code, Errc::kArgument);
  EXPECT_EQ(result.error().message.find('\n'), std::string::npos);
  return result.error().message;
}

TEST(HfConfigTest, ReadsLlama) {
  const auto result = parse_hf_config(llama().dump(), "config.json");
  ASSERT_TRUE(result) << result.error().message;
  const ModelConfig& config = result.value().model;
  EXPECT_EQ(config.family, ModelFamily::kLlama);
  EXPECT_EQ(config.name, "config.json");
  EXPECT_EQ(config.layers, 30);
  EXPECT_EQ(config.hidden, 576);
  EXPECT_EQ(config.heads, 9);
  EXPECT_EQ(config.kv_heads, 3);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.intermediate, 1536);
  EXPECT_EQ(config.vocab, 49152);
  EXPECT_EQ(config.max_positions, 8192);
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_EQ(config.rope_theta, 100000.0);
  EXPECT_TRUE(config.tie_embeddings);
  // A field that the model's own code does not read is mentioned.
  ASSERT_EQ(result.value().notes.size(), 1U);
  EXPECT_NE(result.value().notes[0].find("is_llama_config"), std::string::npos);
}

TEST(HfConfigTest, ReadsGpt2) {
  const auto result = parse_hf_config(gpt2().dump(), "config.json");
  ASSERT_TRUE(result) << result.error().message;
  const ModelConfig& config = result.value().model;
  EXPECT_EQ(config.family, ModelFamily::kGpt2);
  EXPECT_EQ(config.layers, 12);
  EXPECT_EQ(config.hidden, 768);
  EXPECT_EQ(config.heads, 12);
  EXPECT_EQ(config.kv_heads, 12);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.intermediate, 3072);
  EXPECT_EQ(config.vocab, 50257);
  EXPECT_EQ(config.max_positions, 1024);
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_TRUE(config.tie_embeddings);
  ASSERT_EQ(result.value().notes.size(), 3U);  // three kinds of dropout
  EXPECT_NE(result.value().notes[0].find("dropout is not applied"), std::string::npos);
}

TEST(HfConfigTest, FillsInDefaults) {
  const auto small = parse_hf_config(
      R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
          "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 100})",
      "x");
  ASSERT_TRUE(small) << small.error().message;
  EXPECT_EQ(small.value().model.kv_heads, 4);
  EXPECT_EQ(small.value().model.head_dim, 16);
  EXPECT_EQ(small.value().model.norm_eps, 1e-6);
  EXPECT_EQ(small.value().model.rope_theta, 10000.0);
  EXPECT_EQ(small.value().model.max_positions, 2048);
  EXPECT_FALSE(small.value().model.tie_embeddings);

  json old = gpt2();
  old.erase("n_positions");
  old["n_ctx"] = 512;
  old["n_inner"] = nullptr;
  EXPECT_EQ(parse_hf_config(old.dump(), "x").value().model.max_positions, 512);
  old["n_inner"] = 1000;
  EXPECT_EQ(parse_hf_config(old.dump(), "x").value().model.intermediate, 1000);
}

TEST(HfConfigTest, AcceptsNeutralValuesOfOtherwiseUnsupportedFields) {
  json config = llama();
  config["rope_scaling"] = {{"rope_type", "default"}};
  config["sliding_window"] = 8192;  // as wide as the longest sequence
  config["quantization_config"] = nullptr;
  config["attention_bias"] = nullptr;
  config["head_dim"] = 32;
  config["hidden_act"] = "swish";
  config["layer_types"] = json::array({"full_attention", "full_attention"});
  EXPECT_EQ(error_of(config), "");
  config["sliding_window"] = 128;
  config["use_sliding_window"] = false;
  EXPECT_EQ(error_of(config), "");
  config = llama();
  config.erase("rope_theta");
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 500000.0}};
  EXPECT_EQ(parse_hf_config(config.dump(), "x").value().model.rope_theta, 500000.0);
}

struct Refusal {
  const char* family;
  const char* field;
  const char* value;
  const char* says;  ///< a part of the message beside field and value
};

class RefusedField : public testing::TestWithParam<Refusal> {};

TEST_P(RefusedField, IsNamedWithItsValue) {
  const Refusal& refusal = GetParam();
  json config = std::string_view(refusal.family) == "llama" ? llama() : gpt2();
  const json value = json::parse(refusal.value);
  config[refusal.field] = value;
  const std::string message = error_of(config);
  EXPECT_NE(message.find(refusal.field), std::string::npos) << message;
  EXPECT_NE(message.find(value.dump()), std::string::npos) << message;
  EXPECT_NE(message.find(refusal.says), std::string::npos) << message;
  EXPECT_EQ(message.find("config.json: "), 0U) << message;
}

constexpr Refusal kRefusals[] = {
    {"llama", "model_type", "\"mistral\"", "knows"},
    {"llama", "model_type", "7", "knows"},
    {"llama", "rope_scaling", R"({"factor":8.0,"rope_type":"llama3"})", "rotary"},
    {"llama", "rope_scaling", R"({"factor":2.0,"type":"linear"})", "rotary"},
    {"llama", "rope_scaling", "3", "rotary"},
    {"llama", "rope_parameters", R"({"rope_theta":1e4,"rope_type":"yarn"})", "rotary"},
    {"llama", "attention_bias", "true", "mathematics"},
    {"llama", "attention_bias", "\"no\"", "mathematics"},
    {"llama", "mlp_bias", "true", "mathematics"},
    {"llama", "hidden_act", "\"gelu\"", "silu"},
    {"llama", "sliding_window", "4096", "whole sequence"},
    {"llama", "layer_types", R"(["sliding_attention"])", "full_attention"},
    {"llama", "quantization_config", R"({"bits":4})", "mathematics"},
    {"llama", "partial_rotary_factor", "0.5", "mathematics"},
    {"llama", "num_local_experts", "8", "mathematics"},
    {"llama", "residual_multiplier", "0.22", "mathematics"},
    {"llama", "attn_logit_softcapping", "50.0", "mathematics"},
    {"llama", "hidden_size", "0", "whole number"},
    {"llama", "hidden_size", "-64", "whole number"},
    {"llama", "hidden_size", "576.0", "whole number"},
    {"llama", "hidden_size", "\"576\"", "whole number"},
    {"llama", "hidden_size", "18446744073709551615", "whole number"},
    {"llama", "vocab_size", "100000000000", "whole number"},
    {"llama", "num_hidden_layers", "1000000", "whole number"},
    {"llama", "num_key_value_heads", "4", "divide"},
    {"llama", "head_dim", "63", "even"},
    {"llama", "rms_norm_eps", "0", "above 0"},
    {"llama", "rms_norm_eps", "\"1e-5\"", "number"},
    {"llama", "rope_theta", "0.5", "above 1"},
    {"llama", "tie_word_embeddings", "1", "true or false"},
    {"gpt2", "activation_function", "\"relu\"", "gelu_new"},
    {"gpt2", "activation_function", "\"gelu\"", "gelu_new"},
    {"gpt2", "scale_attn_by_inverse_layer_idx", "true", "mathematics"},
    {"gpt2", "scale_attn_weights", "false", "mathematics"},
    {"gpt2", "add_cross_attention", "true", "mathematics"},
    {"gpt2", "tie_word_embeddings", "false", "tied"},
    {"gpt2", "n_embd", "770", "multiple of n_head"},
    {"gpt2", "n_inner", "-1", "whole number"},
    {"gpt2", "layer_norm_epsilon", "2", "at most 1"},
};
INSTANTIATE_TEST_SUITE_P(Table, RefusedField, testing::ValuesIn(kRefusals), [](const auto& info) {
  return std::string(info.param.family) + "_" + info.param.field + "_" + std::to_string(info.index);
});

TEST(HfConfigTest, NamesMissingFields) {
  for (const char* field : {"model_type", "hidden_size", "num_hidden_layers", "num_attention_heads",
                            "intermediate_size", "vocab_size"}) {
    json config = llama();
    config.erase(field);
    EXPECT_NE(error_of(config).find(std::string(field) + "\" is missing"), std::string::npos);
  }
  json config = llama();
  config["hidden_size"] = 577;
  EXPECT_NE(error_of(config).find("multiple of num_attention_heads"), std::string::npos);
}

TEST(HfConfigTest, RefusesMisspeltFieldsWhoseDefaultWouldCount) {
  json config = llama();
  config.erase("num_key_value_heads");
  config["num_key_value_head"] = 3;
  EXPECT_NE(error_of(config).find("did you mean \"num_key_value_heads\""), std::string::npos);
}

TEST(HfConfigTest, WritesWhatItReads) {
  for (const std::string_view size : size_names()) {
    for (const char* family : {"llama", "gpt2"}) {
      auto named = named_model(size, family, 997);
      ASSERT_TRUE(named) << named.error().message;
      ModelConfig wanted = named.value();
      wanted.norm_eps = 3e-6;
      if (wanted.family == ModelFamily::kLlama) wanted.rope_theta = 123456.5;
      const auto read = parse_hf_config(write_hf_config(wanted, "float32"), "x");
      ASSERT_TRUE(read) << read.error().message;
      EXPECT_TRUE(read.value().notes.empty()) << read.value().notes[0];
      const ModelConfig& got = read.value().model;
      EXPECT_EQ(got.family, wanted.family);
      EXPECT_EQ(got.layers, wanted.layers);
      EXPECT_EQ(got.hidden, wanted.hidden);
      EXPECT_EQ(got.heads, wanted.heads);
      EXPECT_EQ(got.kv_heads, wanted.kv_heads);
      EXPECT_EQ(got.head_dim, wanted.head_dim);
      EXPECT_EQ(got.intermediate, wanted.intermediate);
      EXPECT_EQ(got.vocab, wanted.vocab);
      EXPECT_EQ(got.max_positions, wanted.max_positions);
      EXPECT_EQ(got.norm_eps, wanted.norm_eps);
      EXPECT_EQ(got.rope_theta, wanted.rope_theta);
      EXPECT_EQ(got.tie_embeddings, wanted.tie_embeddings);
    }
  }
}

TEST(HfConfigTest, RefusesWhatIsNoConfig) {
  EXPECT_NE(parse_hf_config("[]", "x").error().message.find("must be an object"),
            std::string::npos);
  EXPECT_FALSE(parse_hf_config("", "x"));
  EXPECT_FALSE(parse_hf_config(R"({"model_type": "llama", "model_type": "gpt2"})", "x"));
}

}  // namespace
}  // namespace penstock
