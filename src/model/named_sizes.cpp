#include "model/named_sizes.hpp"

#include <sys/stat.h>

#include <array>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "model/did_you_mean.hpp"
#include "model/hf_config.hpp"

namespace penstock {
namespace {

struct NamedSize {
  std::string_view name;
  std::int64_t hidden, heads, kv_heads;
  std::int64_t llama_layers, llama_intermediate;
  bool llama_tied;
  std::int64_t gpt2_layers;
};

constexpr std::array kSizes = {
    // Grouped queries in nano, so that the smallest tests cover them.
    NamedSize{"nano", 64, 4, 2, 4, 176, false, 4},
    NamedSize{"tiny", 384, 6, 6, 14, 1024, false, 14},
    NamedSize{"124M", 768, 12, 12, 12, 2048, true, 12},
    NamedSize{"1B", 2048, 16, 16, 16, 5376, false, 18},
    NamedSize{"4B", 3072, 24, 24, 32, 8448, false, 34},
};

constexpr std::int64_t kLlamaPositions = 4096;
constexpr std::int64_t kGpt2Positions = 1024;
constexpr std::string_view kKnown =
    "known sizes are nano, tiny, 124M, 1B and 4B, each also with -gpt2 behind it";

const NamedSize* find_size(std::string_view name) {
  for (const NamedSize& size : kSizes) {
    if (size.name == name) return &size;
  }
  return nullptr;
}

std::optional<ModelFamily> family_named(std::string_view name) {
  if (name == "llama") return ModelFamily::kLlama;
  if (name == "gpt2") return ModelFamily::kGpt2;
  return std::nullopt;
}

std::string_view name_of(ModelFamily family) {
  return family == ModelFamily::kLlama ? "llama" : "gpt2";
}

Error unknown_size(std::string_view name) {
  std::vector<std::string> names;
  for (const NamedSize& size : kSizes) {
    names.emplace_back(size.name);
    names.push_back(std::string(size.name) + "-gpt2");
  }
  const std::vector<std::string_view> views(names.begin(), names.end());
  std::string hint = did_you_mean(name, views);
  if (hint.empty()) hint = fmt::format("; {}", kKnown);
  return make_error(
      Errc::kArgument,
      fmt::format("model \"{}\" is neither a known size nor a config.json{}", name, hint));
}

/// Sums and products that remember an overflow.
class Tally {
 public:
  void add(std::int64_t count, std::int64_t rows, std::int64_t columns) {
    std::int64_t product = 0;
    bad_ = bad_ || __builtin_mul_overflow(count, rows, &product) ||
           __builtin_mul_overflow(product, columns, &product) ||
           __builtin_add_overflow(total_, product, &total_);
  }
  [[nodiscard]] bool overflowed() const {
    return bad_ || total_ > (std::int64_t{1} << 62) || total_ < 0;
  }
  [[nodiscard]] std::uint64_t total() const { return static_cast<std::uint64_t>(total_); }

 private:
  std::int64_t total_ = 0;
  bool bad_ = false;
};

void tally_llama(const ModelConfig& config, std::int64_t query, std::int64_t keys, Tally& tally) {
  const std::int64_t h = config.hidden;
  tally.add(config.layers, 2, h);                        // two norms
  tally.add(config.layers, h, query);                    // q
  tally.add(2 * config.layers, h, keys);                 // k, v
  tally.add(config.layers, query, h);                    // o
  tally.add(3 * config.layers, h, config.intermediate);  // gate, up, down
  tally.add(1, 1, h);                                    // last norm
}

void tally_gpt2(const ModelConfig& config, Tally& tally) {
  const std::int64_t h = config.hidden;
  const std::int64_t wide = config.intermediate;
  tally.add(1, config.max_positions, h);
  tally.add(config.layers, 4, h);          // two norms, weight and bias
  tally.add(config.layers, 3 * h, h + 1);  // q, k, v
  tally.add(config.layers, h, h + 1);      // projection
  tally.add(config.layers, wide, h + 1);   // into the feed-forward part
  tally.add(config.layers, h, wide + 1);   // out of it
  tally.add(1, 2, h);                      // last norm
}

}  // namespace

std::vector<std::string_view> size_names() {
  std::vector<std::string_view> names;
  for (const NamedSize& size : kSizes) names.push_back(size.name);
  return names;
}

Result<ModelConfig> named_model(std::string_view name, std::string_view family,
                                std::int64_t vocab) {
  if (!family.empty() && !family_named(family)) {
    return make_error(Errc::kArgument,
                      fmt::format("--family \"{}\" is unknown; it is llama or gpt2", family));
  }
  if (vocab < 1) {
    return make_error(Errc::kArgument,
                      fmt::format("model \"{}\" needs a vocabulary of at least 1 token", name));
  }
  std::string_view base = name;
  std::string_view suffix;
  if (const std::size_t dash = name.rfind('-'); dash != std::string_view::npos) {
    base = name.substr(0, dash);
    suffix = name.substr(dash + 1);
  }
  const NamedSize* size = find_size(base);
  if (size == nullptr || (base != name && !family_named(suffix))) return unknown_size(name);
  if (!suffix.empty() && !family.empty() && suffix != family) {
    return make_error(
        Errc::kArgument,
        fmt::format("model \"{}\" and --family {} contradict each other; drop one", name, family));
  }
  if (suffix.empty()) suffix = family.empty() ? "llama" : family;

  ModelConfig config;
  config.family = *family_named(suffix);
  const bool llama = config.family == ModelFamily::kLlama;
  config.name = llama ? std::string(base) : fmt::format("{}-gpt2", base);
  config.hidden = size->hidden;
  config.heads = size->heads;
  config.kv_heads = llama ? size->kv_heads : size->heads;
  config.head_dim = size->hidden / size->heads;
  config.layers = llama ? size->llama_layers : size->gpt2_layers;
  config.intermediate = llama ? size->llama_intermediate : 4 * size->hidden;
  config.vocab = vocab;
  config.max_positions = llama ? kLlamaPositions : kGpt2Positions;
  config.norm_eps = 1e-5;
  config.rope_theta = 10000.0;
  config.tie_embeddings = llama ? size->llama_tied : true;
  return config;
}

Result<std::uint64_t> parameter_count(const ModelConfig& config) {
  // Fields below 2^30, so that sums and products of two of them fit.
  constexpr std::int64_t kMaxField = std::int64_t{1} << 30;
  bool fits = true;
  for (const std::int64_t field :
       {config.layers, config.hidden, config.heads, config.kv_heads, config.head_dim,
        config.intermediate, config.vocab, config.max_positions}) {
    fits = fits && field >= 0 && field <= kMaxField;
  }
  Tally tally;
  if (fits) {
    tally.add(config.tie_embeddings ? 1 : 2, config.vocab, config.hidden);
    if (config.family == ModelFamily::kLlama) {
      tally_llama(config, config.heads * config.head_dim, config.kv_heads * config.head_dim, tally);
    } else {
      tally_gpt2(config, tally);
    }
  }
  if (!fits || tally.overflowed()) {
    return make_error(Errc::kArgument,
                      fmt::format("model \"{}\": its fields multiply to more than 2^62 parameters; "
                                  "correct the sizes in the file",
                                  config.name));
  }
  return tally.total();
}

namespace {

// Whether the user means a file: one is there, or the text can only be a path.
bool means_file(const std::string& model) {
  struct stat info {};
  if (find_size(model) != nullptr) return false;
  return model.find('/') != std::string::npos || model.ends_with(".json") ||
         ::stat(model.c_str(), &info) == 0;
}

}  // namespace

Result<ModelChoice> choose_model(const std::string& model, std::string_view family,
                                 std::int64_t data_vocab) {
  if (model.empty()) {
    return make_error(Errc::kArgument, fmt::format("--model is empty; {}", kKnown));
  }
  if (!means_file(model)) {
    PENSTOCK_TAKE(config, named_model(model, family, data_vocab));
    return ModelChoice{std::move(config), {}};
  }
  PENSTOCK_TAKE(file, load_hf_config(model));
  if (!family.empty() && family != name_of(file.model.family)) {
    return make_error(Errc::kArgument,
                      fmt::format("--family {} contradicts {}, whose model_type is {}; drop it",
                                  family, file.model.name, name_of(file.model.family)));
  }
  if (data_vocab > file.model.vocab) {
    return make_error(
        Errc::kArgument,
        fmt::format("the data has a vocabulary of {}, but vocab_size of {} is {}; use "
                    "data made for this model, or pass its --vocab",
                    data_vocab, file.model.name, file.model.vocab));
  }
  return ModelChoice{std::move(file.model), std::move(file.notes)};
}

}  // namespace penstock
