// Text from a store: the model as trained, one token after another.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "base/random.hpp"
#include "engine/tuned_queue.hpp"
#include "kernels/cpu/transformer.hpp"
#include "train/run.hpp"
#include "train/run_setup.hpp"
#include "train/trainer.hpp"

namespace penstock {
namespace {

Result<std::vector<std::uint32_t>> read_prompt(const std::string& prompt, const StoredRun& stored) {
  std::vector<std::uint32_t> tokens;
  if (stored.is_bytes) {
    for (const char c : prompt) tokens.push_back(static_cast<unsigned char>(c));
    if (tokens.empty()) tokens.push_back('\n');
    return tokens;
  }
  std::istringstream text(prompt);
  std::string word;
  while (text >> word) {
    if (word.find_first_not_of("0123456789") != std::string::npos || word.size() > 9 ||
        std::stoll(word) >= stored.config.vocab) {
      return make_error(Errc::kArgument,
                        fmt::format("\"{}\" in --prompt is not a token below {}; the model was "
                                    "trained on tokens, so the prompt is token numbers with spaces",
                                    word, stored.config.vocab));
    }
    tokens.push_back(static_cast<std::uint32_t>(std::stoll(word)));
  }
  if (tokens.empty()) tokens.push_back(0);
  return tokens;
}

/// The likeliest token, or one drawn with the temperature.
std::uint32_t choose(std::vector<float>& logits, double temperature, Isa isa, double uniform) {
  const auto best = std::max_element(logits.begin(), logits.end());
  const auto likeliest = static_cast<std::uint32_t>(best - logits.begin());
  if (temperature <= 0.0) return likeliest;
  const float maximum = *best;
  for (float& x : logits) x = (x - maximum) / static_cast<float>(temperature);
  transformer_kernels(isa).exp(logits.size(), logits.data(), logits.data());
  double sum = 0.0;
  for (const float x : logits) sum += x;
  double left = uniform * sum;
  for (std::uint32_t i = 0; i < logits.size(); ++i) {
    left -= logits[i];
    if (left < 0.0) return i;
  }
  return likeliest;
}

/// The model as the store has it, and which commit that is.
struct Source {
  StoredRun run;
  std::uint64_t sequence = 0;
};

Result<Source> read_source(Storage& storage, const StoreDirectories& directories) {
  PENSTOCK_TAKE(store, open_store(storage, directories, {}, /*writable=*/false));
  PENSTOCK_TAKE(run, read_stored_run(store->geometry().description));
  return Source{run, store->sequence()};
}

/// Bytes that are not right may be those of a training that began meanwhile.
Status explain(Status done, Storage& storage, const StoreDirectories& directories,
               std::uint64_t sequence) {
  if (done || done.error().code != Errc::kCorrupt) return done;
  const auto now = open_store(storage, directories, {}, /*writable=*/false);
  if (!now || now.value()->sequence() == sequence) return done;
  return make_error(Errc::kState,
                    fmt::format("a training began in {} while its weights were read; generate "
                                "again when it has ended, or from a copy (penstock checkpoint "
                                "copy)",
                                directories.text()));
}

Status generate(const GenerateOptions& options, const RunParts& parts, const StoredRun& stored,
                GenerateObserver& observer, const std::atomic<bool>& stop) {
  const StoreDirectories directories = store_directories(options.resources);
  PENSTOCK_TAKE(tokens, read_prompt(options.prompt, stored));
  TransformerOptions model_options;
  model_options.config = stored.config;
  model_options.batch = {1, 1, stored.seq};
  model_options.compute = options.resources.fp32 ? ComputeMode::kF32 : ComputeMode::kBf16;
  model_options.matmul.threads = static_cast<int>(parts.threads);
  model_options.isa = parts.isa;
  PENSTOCK_TAKE(model, Transformer::create(model_options, *parts.executor));

  EngineOptions engine_options;
  engine_options.directory = options.resources.store;
  engine_options.further_directories = options.resources.further_stores;
  engine_options.mode = OpenMode::kRead;
  engine_options.isa = parts.isa;
  const Logger logger(LogLevel::kWarning,
                      [&observer](LogLevel level, const char*, int, std::string_view message) {
                        if (level < LogLevel::kError) observer.on_note(message);
                      });
  engine_options.queue.backend = options.resources.queue;
  (void)tune_queue(engine_options.queue, directories.all(), profile_place(), logger);
  if (const auto facts = read_facts(*parts.storage, directories)) {
    engine_options.block_elements = facts->block_elements;
  }
  PENSTOCK_TAKE(memory, split_memory(options.resources, *model, engine_options, ""));
  PENSTOCK_CHECK_OK(check_address_limits(parts, options.resources, memory.used_bytes));
  engine_options.host_bytes = memory.ram_bytes;
  engine_options.workspace_bytes = memory.workspace_bytes;
  PENSTOCK_TAKE(engine, make_engine(parts.engine_parts(logger), engine_options, model->spec()));
  PENSTOCK_TAKE(trainer, Trainer::create(*engine, *model, memory.kept_layers));

  std::vector<float> logits(static_cast<std::size_t>(stored.config.vocab));
  const auto window = static_cast<std::size_t>(stored.seq);
  PENSTOCK_CHECK_OK(engine->eval_begin());
  for (std::uint64_t i = 0; i < options.tokens && !stop.load(); ++i) {
    const std::size_t used = std::min(tokens.size(), window);
    PENSTOCK_CHECK_OK(trainer->next_token_logits(std::span(tokens).last(used), std::span(logits)));
    const std::uint32_t token =
        choose(logits, options.temperature, parts.isa, uniform01(options.seed, 0x7061, i));
    observer.on_token(token, stored.is_bytes);
    tokens.push_back(token);
  }
  return engine->eval_end();
}

}  // namespace

Status run_generate(const GenerateOptions& options, GenerateObserver& observer,
                    const std::atomic<bool>& stop) {
  PENSTOCK_CHECK_OK(check_store_place(options.resources, /*to_read=*/true));
  PENSTOCK_TAKE(parts, make_run_parts(options.resources));
  const StoreDirectories directories = store_directories(options.resources);
  PENSTOCK_TAKE(source, read_source(*parts.storage, directories));
  return explain(generate(options, parts, source.run, observer, stop), *parts.storage, directories,
                 source.sequence);
}

}  // namespace penstock
