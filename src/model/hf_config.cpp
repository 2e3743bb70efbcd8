// lint: long because the table of known fields and what reads them are changed together

#include "model/hf_config.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "model/did_you_mean.hpp"
#include "model/strict_json.hpp"

namespace penstock {
namespace {

using nlohmann::json;

constexpr std::int64_t kMaxWidth = std::int64_t{1} << 24;
constexpr std::int64_t kMaxPositions = std::int64_t{1} << 24;
constexpr std::int64_t kMaxLayers = 4096;
constexpr std::int64_t kMaxHeads = 65536;

/// Fields that only concern other programs, or other uses of the model (generation,
/// classification).
constexpr auto kSkipped = std::to_array<std::string_view>({"model_type",
                                                           "architectures",
                                                           "auto_map",
                                                           "torch_dtype",
                                                           "dtype",
                                                           "transformers_version",
                                                           "_name_or_path",
                                                           "name_or_path",
                                                           "_commit_hash",
                                                           "_attn_implementation",
                                                           "_attn_implementation_autoset",
                                                           "use_cache",
                                                           "initializer_range",
                                                           "pretraining_tp",
                                                           "bos_token_id",
                                                           "eos_token_id",
                                                           "pad_token_id",
                                                           "unk_token_id",
                                                           "sep_token_id",
                                                           "decoder_start_token_id",
                                                           "forced_bos_token_id",
                                                           "forced_eos_token_id",
                                                           "suppress_tokens",
                                                           "begin_suppress_tokens",
                                                           "bad_words_ids",
                                                           "return_dict",
                                                           "return_dict_in_generate",
                                                           "output_hidden_states",
                                                           "output_attentions",
                                                           "output_scores",
                                                           "torchscript",
                                                           "use_bfloat16",
                                                           "chunk_size_feed_forward",
                                                           "pruned_heads",
                                                           "tie_encoder_decoder",
                                                           "is_decoder",
                                                           "max_length",
                                                           "min_length",
                                                           "do_sample",
                                                           "early_stopping",
                                                           "num_beams",
                                                           "num_beam_groups",
                                                           "diversity_penalty",
                                                           "temperature",
                                                           "top_k",
                                                           "top_p",
                                                           "typical_p",
                                                           "repetition_penalty",
                                                           "length_penalty",
                                                           "no_repeat_ngram_size",
                                                           "encoder_no_repeat_ngram_size",
                                                           "exponential_decay_length_penalty",
                                                           "num_return_sequences",
                                                           "remove_invalid_values",
                                                           "finetuning_task",
                                                           "id2label",
                                                           "label2id",
                                                           "num_labels",
                                                           "problem_type",
                                                           "tokenizer_class",
                                                           "prefix",
                                                           "task_specific_params",
                                                           "cross_attention_hidden_size",
                                                           "tf_legacy_loss",
                                                           "summary_type",
                                                           "summary_use_proj",
                                                           "summary_activation",
                                                           "summary_first_dropout",
                                                           "summary_proj_to_labels",
                                                           "reorder_and_upcast_attn",
                                                           "gradient_checkpointing",
                                                           "use_sliding_window",
                                                           "max_window_layers"});

/// Fields whose meaning is read below, by family.
constexpr auto kLlamaRead = std::to_array<std::string_view>(
    {"hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
     "intermediate_size", "vocab_size", "rms_norm_eps", "rope_theta", "tie_word_embeddings",
     "max_position_embeddings", "head_dim", "hidden_act", "rope_scaling", "rope_parameters",
     "sliding_window", "layer_types"});
constexpr auto kGpt2Read = std::to_array<std::string_view>(
    {"n_embd", "n_layer", "n_head", "n_positions", "n_ctx", "n_inner", "layer_norm_epsilon",
     "vocab_size", "activation_function", "tie_word_embeddings", "sliding_window", "layer_types"});

/// Not applied, and said so: dropout.
constexpr auto kDropout = std::to_array<std::string_view>(
    {"attention_dropout", "hidden_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop", "dropout"});

/// Values that leave the mathematics as it is here; anything else is refused.
enum class Neutral : std::uint8_t { kNull, kFalse, kTrue, kZero, kOne };
struct NeutralField {
  std::string_view name;
  Neutral neutral;
};
constexpr auto kNeutral = std::to_array<NeutralField>({
    {"attention_bias", Neutral::kFalse},
    {"mlp_bias", Neutral::kFalse},
    {"qkv_bias", Neutral::kFalse},
    {"scale_attn_by_inverse_layer_idx", Neutral::kFalse},
    {"scale_attn_weights", Neutral::kTrue},
    {"add_cross_attention", Neutral::kFalse},
    {"is_encoder_decoder", Neutral::kFalse},
    {"use_qk_norm", Neutral::kFalse},
    {"qk_norm", Neutral::kFalse},
    {"parallel_attn", Neutral::kFalse},
    {"quantization_config", Neutral::kNull},
    {"compression_config", Neutral::kNull},
    {"attn_logit_softcapping", Neutral::kNull},
    {"final_logit_softcapping", Neutral::kNull},
    {"num_experts", Neutral::kZero},
    {"num_local_experts", Neutral::kZero},
    {"partial_rotary_factor", Neutral::kOne},
    {"rotary_pct", Neutral::kOne},
    {"logit_scale", Neutral::kOne},
    {"logits_scaling", Neutral::kOne},
    {"embedding_multiplier", Neutral::kOne},
    {"residual_multiplier", Neutral::kOne},
});

std::string_view wanted(Neutral neutral) {
  switch (neutral) {
    case Neutral::kNull:
      return "null";
    case Neutral::kFalse:
      return "false";
    case Neutral::kTrue:
      return "true";
    case Neutral::kZero:
      return "0";
    case Neutral::kOne:
      return "1";
  }
  return "null";
}

bool is_neutral(const json& value, Neutral neutral) {
  if (value.is_null()) return true;
  switch (neutral) {
    case Neutral::kNull:
      return false;
    case Neutral::kFalse:
      return value == json(false);
    case Neutral::kTrue:
      return value == json(true);
    case Neutral::kZero:
      return value.is_number() && value.get<double>() == 0.0;
    case Neutral::kOne:
      return value.is_number() && value.get<double>() == 1.0;
  }
  return false;
}

/// Reads typed fields of one object; every message names file, field and value.
class Fields {
 public:
  Fields(const json& object, std::string_view source) : object_(object), source_(source) {}

  /// The field, or nullptr where it is missing or null.
  [[nodiscard]] const json* find(std::string_view name) const {
    const auto found = object_.find(std::string(name));
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  [[nodiscard]] Error refuse(std::string_view name, const json& value,
                             std::string_view limit) const {
    return make_error(Errc::kArgument, fmt::format("{}: field \"{}\" is {}; {}", source_, name,
                                                   json_excerpt(value), limit));
  }

  [[nodiscard]] Error missing(std::string_view name) const {
    return make_error(Errc::kArgument,
                      fmt::format("{}: field \"{}\" is missing; add it", source_, name));
  }

  /// A whole number in [1, max]. Missing keeps what is in `into`, if that is not 0.
  Status count(std::string_view name, std::int64_t max, std::int64_t& into) const {
    const json* value = find(name);
    if (value == nullptr) return into != 0 ? ok() : Status(missing(name));
    if (!value->is_number_unsigned() || value->get<std::uint64_t>() < 1 ||
        value->get<std::uint64_t>() > static_cast<std::uint64_t>(max)) {
      return refuse(name, *value, fmt::format("it must be a whole number from 1 to {}", max));
    }
    into = static_cast<std::int64_t>(value->get<std::uint64_t>());
    return ok();
  }

  /// A number above `above` and at most `max`. Missing keeps what is in `into`.
  Status real(std::string_view name, double above, double max, double& into) const {
    const json* value = find(name);
    if (value == nullptr) return ok();
    if (!value->is_number() || !(value->get<double>() > above) || !(value->get<double>() <= max)) {
      return refuse(name, *value,
                    fmt::format("it must be a number above {} and at most {}", above, max));
    }
    into = value->get<double>();
    return ok();
  }

  Status boolean(std::string_view name, bool& into) const {
    const json* value = find(name);
    if (value == nullptr) return ok();
    if (!value->is_boolean()) return refuse(name, *value, "it must be true or false");
    into = value->get<bool>();
    return ok();
  }

  Status one_of(std::string_view name, std::span<const std::string_view> known) const {
    const json* value = find(name);
    if (value == nullptr) return ok();
    if (value->is_string()) {
      const std::string text = value->get<std::string>();
      if (std::find(known.begin(), known.end(), text) != known.end()) return ok();
    }
    return refuse(name, *value, fmt::format("this trainer supports only \"{}\"", known.front()));
  }

  [[nodiscard]] const json& object() const { return object_; }
  [[nodiscard]] std::string_view source() const { return source_; }

 private:
  const json& object_;
  std::string_view source_;
};

Status check_neutral(const Fields& fields) {
  for (const NeutralField& field : kNeutral) {
    const json* value = fields.find(field.name);
    if (value == nullptr || is_neutral(*value, field.neutral)) continue;
    return fields.refuse(
        field.name, *value,
        fmt::format("this trainer supports only {}, and the field changes the mathematics",
                    wanted(field.neutral)));
  }
  return ok();
}

// Attention that does not see everything before a token.
Status check_window(const Fields& fields, std::int64_t max_positions) {
  const json* window = fields.find("sliding_window");
  const json* use = fields.find("use_sliding_window");
  const bool in_use = use == nullptr || *use != json(false);
  if (window != nullptr && in_use) {
    const bool wide = window->is_number_unsigned() &&
                      window->get<std::uint64_t>() >= static_cast<std::uint64_t>(max_positions);
    if (!wide) {
      return fields.refuse("sliding_window", *window,
                           "this trainer supports only attention over the whole sequence (null)");
    }
  }
  const json* layers = fields.find("layer_types");
  if (layers == nullptr) return ok();
  const bool full = layers->is_array() &&
                    std::all_of(layers->begin(), layers->end(),
                                [](const json& type) { return type == json("full_attention"); });
  if (full) return ok();
  return fields.refuse("layer_types", *layers, "this trainer supports only \"full_attention\"");
}

// rope_scaling, and rope_parameters that newer files have in its place.
Status read_rope(const Fields& fields, ModelConfig& config) {
  PENSTOCK_CHECK_OK(fields.real("rope_theta", 1.0, 1e12, config.rope_theta));
  for (const std::string_view name : {"rope_scaling", "rope_parameters"}) {
    const json* rope = fields.find(name);
    if (rope == nullptr) continue;
    const Error refusal =
        fields.refuse(name, *rope, "this trainer supports only plain rotary positions (null)");
    if (!rope->is_object()) return refusal;
    const Fields inner(*rope, fields.source());
    for (const auto& [key, value] : rope->items()) {
      const bool type = key == "rope_type" || key == "type";
      if (type && value != json("default")) return refusal;
      if (!type && key != "rope_theta") return refusal;
    }
    PENSTOCK_CHECK_OK(inner.real("rope_theta", 1.0, 1e12, config.rope_theta));
  }
  return ok();
}

Status read_llama(const Fields& fields, ModelConfig& config) {
  static constexpr auto kActivations = std::to_array<std::string_view>({"silu", "swish"});
  config.family = ModelFamily::kLlama;
  config.norm_eps = 1e-6;
  config.max_positions = 2048;
  PENSTOCK_CHECK_OK(fields.count("hidden_size", kMaxWidth, config.hidden));
  PENSTOCK_CHECK_OK(fields.count("num_hidden_layers", kMaxLayers, config.layers));
  PENSTOCK_CHECK_OK(fields.count("num_attention_heads", kMaxHeads, config.heads));
  config.kv_heads = config.heads;
  PENSTOCK_CHECK_OK(fields.count("num_key_value_heads", kMaxHeads, config.kv_heads));
  PENSTOCK_CHECK_OK(fields.count("intermediate_size", kMaxWidth, config.intermediate));
  PENSTOCK_CHECK_OK(fields.count("vocab_size", kMaxWidth, config.vocab));
  PENSTOCK_CHECK_OK(fields.count("max_position_embeddings", kMaxPositions, config.max_positions));
  PENSTOCK_CHECK_OK(fields.real("rms_norm_eps", 0.0, 1.0, config.norm_eps));
  PENSTOCK_CHECK_OK(fields.boolean("tie_word_embeddings", config.tie_embeddings));
  PENSTOCK_CHECK_OK(fields.one_of("hidden_act", kActivations));
  PENSTOCK_CHECK_OK(read_rope(fields, config));

  if (config.hidden % config.heads == 0) config.head_dim = config.hidden / config.heads;
  if (fields.find("head_dim") == nullptr && config.head_dim == 0) {
    return fields.refuse("hidden_size", config.hidden,
                         fmt::format("it must be a multiple of num_attention_heads ({}), or the "
                                     "file must say head_dim",
                                     config.heads));
  }
  PENSTOCK_CHECK_OK(fields.count("head_dim", kMaxHeads, config.head_dim));
  if (config.head_dim % 2 != 0) {
    return fields.refuse("head_dim", config.head_dim, "rotary positions need an even number");
  }
  if (config.heads % config.kv_heads != 0) {
    return fields.refuse("num_key_value_heads", config.kv_heads,
                         fmt::format("it must divide num_attention_heads ({})", config.heads));
  }
  return ok();
}

Status read_gpt2(const Fields& fields, ModelConfig& config) {
  static constexpr auto kActivations =
      std::to_array<std::string_view>({"gelu_new", "gelu_pytorch_tanh"});
  config.family = ModelFamily::kGpt2;
  config.norm_eps = 1e-5;
  config.tie_embeddings = true;
  config.max_positions = 1024;
  PENSTOCK_CHECK_OK(fields.count("n_embd", kMaxWidth / 4, config.hidden));
  PENSTOCK_CHECK_OK(fields.count("n_layer", kMaxLayers, config.layers));
  PENSTOCK_CHECK_OK(fields.count("n_head", kMaxHeads, config.heads));
  // n_ctx is the old name; where both stand, the model reads n_positions.
  PENSTOCK_CHECK_OK(fields.count("n_ctx", kMaxPositions, config.max_positions));
  PENSTOCK_CHECK_OK(fields.count("n_positions", kMaxPositions, config.max_positions));
  config.intermediate = 4 * config.hidden;
  PENSTOCK_CHECK_OK(fields.count("n_inner", kMaxWidth, config.intermediate));
  PENSTOCK_CHECK_OK(fields.count("vocab_size", kMaxWidth, config.vocab));
  PENSTOCK_CHECK_OK(fields.real("layer_norm_epsilon", 0.0, 1.0, config.norm_eps));
  PENSTOCK_CHECK_OK(fields.boolean("tie_word_embeddings", config.tie_embeddings));
  PENSTOCK_CHECK_OK(fields.one_of("activation_function", kActivations));
  if (!config.tie_embeddings) {
    return fields.refuse("tie_word_embeddings", false,
                         "this trainer supports gpt2 only with tied embeddings (true)");
  }
  if (config.hidden % config.heads != 0) {
    return fields.refuse("n_embd", config.hidden,
                         fmt::format("it must be a multiple of n_head ({})", config.heads));
  }
  config.kv_heads = config.heads;
  config.head_dim = config.hidden / config.heads;
  return ok();
}

template <class List>
bool contains(const List& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

// What is left in the file: dropout, misspelt names, and fields nobody knows.
Status check_others(const Fields& fields, std::span<const std::string_view> read,
                    std::vector<std::string>& notes) {
  std::vector<std::string_view> known(read.begin(), read.end());
  for (const NeutralField& field : kNeutral) known.push_back(field.name);
  for (const auto& [name, value] : fields.object().items()) {
    if (contains(known, name) || contains(kSkipped, name) || value.is_null()) continue;
    if (contains(kDropout, name)) {
      if (is_neutral(value, Neutral::kZero)) continue;
      notes.push_back(fmt::format("{}: field \"{}\" ({}) has no effect: dropout is not applied",
                                  fields.source(), name, json_excerpt(value)));
      continue;
    }
    const std::string_view meant = closest_word(name, known);
    if (!meant.empty() && fields.find(meant) == nullptr && edit_distance(name, meant) <= 2) {
      return make_error(
          Errc::kArgument,
          fmt::format("{}: unknown field {} ({}); did you mean \"{}\"?", fields.source(),
                      json_excerpt(json(name)), json_excerpt(value), meant));
    }
    notes.push_back(fmt::format("{}: field {} is not one of this model type and has no effect",
                                fields.source(), json_excerpt(json(name))));
  }
  return ok();
}

}  // namespace

Result<HfConfig> parse_hf_config(std::string_view text, std::string_view source) {
  json root;
  PENSTOCK_CHECK_OK(parse_strict_json(text, source, JsonLimits{}, root));
  if (!root.is_object()) {
    return make_error(
        Errc::kArgument,
        fmt::format("{}: a config.json must be an object, this is {}", source, json_excerpt(root)));
  }
  const Fields fields(root, source);
  const json* type = fields.find("model_type");
  if (type == nullptr) return fields.missing("model_type");
  const bool llama = *type == json("llama");
  if (!llama && *type != json("gpt2")) {
    return fields.refuse("model_type", *type, "this trainer knows \"llama\" and \"gpt2\"");
  }
  HfConfig result;
  result.model.name = std::string(source);
  PENSTOCK_CHECK_OK(check_neutral(fields));
  PENSTOCK_CHECK_OK(check_others(fields,
                                 llama ? std::span<const std::string_view>(kLlamaRead)
                                       : std::span<const std::string_view>(kGpt2Read),
                                 result.notes));
  PENSTOCK_CHECK_OK(llama ? read_llama(fields, result.model) : read_gpt2(fields, result.model));
  PENSTOCK_CHECK_OK(check_window(fields, result.model.max_positions));
  return result;
}

Result<HfConfig> load_hf_config(const std::string& path) {
  struct stat info {};
  std::string file = path;
  if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    if (!file.ends_with('/')) file += '/';
    file += "config.json";
  }
  PENSTOCK_TAKE(text, read_small_file(file, JsonLimits{}.bytes));
  return parse_hf_config(text, file);
}

}  // namespace penstock
