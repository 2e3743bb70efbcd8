#pragma once

/// Hugging Face config.json -> ModelConfig and back, for model_type "llama" and "gpt2".
///
/// Fields that change the mathematics in a way this trainer does not support are refused by name
/// and value; fields that only concern other programs are skipped; dropout is not applied and said
/// so in a note, as is a field that the model's own implementation does not read either. A field
/// that looks like a misspelt known one is refused: its value would silently be the default.
/// Limits:  1 MiB, 32 levels; integers are parsed as such, never through double.
/// Errors:  kArgument, one sentence that names file, field and value.
/// Threads: pure functions, but for reading the file that is named.

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "model/config.hpp"

namespace penstock {

struct HfConfig {
  ModelConfig model;
  std::vector<std::string> notes;  ///< one sentence each
};

/// `source` names the text in messages and becomes ModelConfig::name.
[[nodiscard]] Result<HfConfig> parse_hf_config(std::string_view text, std::string_view source);

/// `path` is the file, or a directory that holds a config.json.
[[nodiscard]] Result<HfConfig> load_hf_config(const std::string& path);

/// The config.json of a model with weights of `torch_dtype` ("bfloat16", "float32"). Parsing it
/// gives the same model, without notes.
[[nodiscard]] std::string write_hf_config(const ModelConfig& config, std::string_view torch_dtype);

}  // namespace penstock
