// config.json of somebody else's model; also the other texts that users write: sizes and names.

#include "base/units.hpp"
#include "fuzz/fuzz.hpp"
#include "model/hf_config.hpp"
#include "model/named_sizes.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using penstock::fuzz::must;
  const std::string_view text = penstock::fuzz::text_of(data, bytes);
  const auto config = penstock::parse_hf_config(text, "config.json");
  if (config) {
    const penstock::ModelConfig& model = config.value().model;
    must(model.layers > 0 && model.hidden > 0 && model.heads > 0 && model.vocab > 0,
         "an accepted model has layers, width, heads and a vocabulary");
    const auto count = penstock::parameter_count(model);
    if (!count) penstock::fuzz::must_be_said(count.error());
  } else {
    penstock::fuzz::must_be_said(config.error());
  }
  constexpr std::size_t kLongestWord = 64;  // longer ones only take time
  if (bytes > kLongestWord) return 0;
  const auto size = penstock::parse_bytes(text);
  if (!size) penstock::fuzz::must_be_said(size.error());
  const auto named = penstock::named_model(text, "", 256);
  if (!named) penstock::fuzz::must_be_said(named.error());
  return 0;
}
