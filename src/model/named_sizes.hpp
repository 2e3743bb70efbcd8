#pragma once

/// Model shapes with a name, and what --model may say.
///
///   name    layers x hidden   parameters (llama)            for
///   nano    4 x 64            about 0.2 M at vocabulary 256   tests
///   tiny    14 x 384          25 M at vocabulary 256          a first run
///   124M    12 x 768          124 M at vocabulary 50257       the small GPT-2 shape
///   1B      16 x 2048         1.00e9 at vocabulary 50257      12 GB of state
///   4B      32 x 3072         4.01e9 at vocabulary 50257      48 GB of state
///
/// Each is a llama; "-gpt2" behind the name gives the GPT-2 of that size (other layer counts where
/// that keeps the parameters), "-llama" says the default. The vocabulary is that of the data.
/// Errors:  kArgument, with the names that exist.
/// Threads: pure functions, but for reading the file that is named.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "model/config.hpp"

namespace penstock {

/// The names above, without family.
[[nodiscard]] std::vector<std::string_view> size_names();

/// The shape of that name ("tiny", "nano-gpt2"). `family` is "", "llama" or "gpt2"; a family in the
/// name must agree with it.
[[nodiscard]] Result<ModelConfig> named_model(std::string_view name, std::string_view family,
                                              std::int64_t vocab);

/// All weights, tied ones once. kArgument when that is more than 2^62.
[[nodiscard]] Result<std::uint64_t> parameter_count(const ModelConfig& config);

/// A model and what its user should be told about it.
struct ModelChoice {
  ModelConfig config;
  std::vector<std::string> notes;  ///< one sentence each: fields of the file without effect here
};

/// What --model says: a size, a config.json, or a directory that holds one. `data_vocab` is the
/// vocabulary of the data: that of a named size, at most that of a config.json.
[[nodiscard]] Result<ModelChoice> choose_model(const std::string& model, std::string_view family,
                                               std::int64_t data_vocab);

}  // namespace penstock
