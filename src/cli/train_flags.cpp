#include "cli/train_flags.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/units.hpp"
#include "io/store_layout.hpp"

namespace penstock {
namespace {

constexpr std::uint64_t kMaxCount = std::uint64_t{1} << 40;
constexpr std::uint64_t kMaxSequences = std::uint64_t{1} << 20;
constexpr std::uint64_t kMaxSeq = std::uint64_t{1} << 20;
constexpr std::uint32_t kMaxBlock = 4U << 20;

void declare_resources(Flags& flags, RunResources& resources, std::vector<std::string>& stores) {
  flags.texts("--store", stores,
              "Directory of the store: weights, moments, position (required); once for each drive",
              "DIR");
  flags.custom(
      "--ram", "SIZE|min|all",
      [&resources](const std::string& value) -> Status {
        if (value == "min" || value == "all") {
          resources.ram = value == "min" ? RamBudget::kMinimum : RamBudget::kAll;
          return ok();
        }
        auto bytes = parse_bytes(value);
        if (!bytes) {
          return make_error(bytes.error().code, fmt::format("--ram {}", bytes.error().message));
        }
        resources.ram = RamBudget::kBytes;
        resources.ram_bytes = bytes.value();
        return ok();
      },
      "Memory for everything that is allocated: 60MiB, 2GB, the smallest that works, or as "
      "much as there is use for (default)");
  flags.count("--threads", resources.threads, 1, 4096,
              "Threads (default: all that this process may use)");
  flags.choice(
      "--compute", {"bf16", "fp32"},
      [&resources](std::size_t index) { resources.fp32 = index == 1; },
      "Type of the matrix products' operands (default bf16)");
  flags.choice(
      "--queue", {"auto", "uring", "threads"},
      [&resources](std::size_t index) { resources.queue = static_cast<QueueBackend>(index); },
      "How the drive is reached (default auto)");
}

void declare_commits(Flags& flags, TrainOptions& options) {
  flags.count("--commit-every", options.commit_every, 1, 1U << 30,
              "Steps between commits (default: chosen by the plan)");
  flags.count(
      "--checkpoint-every", options.checkpoint_every, 1, kMaxCount,
      "Steps between checkpoints inside the store, which `checkpoint restore` goes back to");
  flags.count("--keep", options.keep, 1, kMaxPins,
              "Checkpoints that stay, the newest (default 1); a new store has room for so many");
  flags.texts("--copy-to", options.copy_to,
              "Directory, best on another drive, for copies of the store: the last two, each whole "
              "or not there; once for each drive",
              "DIR");
  flags.count("--copy-every", options.copy_every, 1, kMaxCount,
              "Steps between these copies (required with --copy-to)");
}

/// "4,1": whole numbers, one for each directory.
Status take_shares(const std::string& value, std::vector<std::uint32_t>& shares) {
  shares.clear();
  for (std::size_t at = 0; at <= value.size();) {
    const std::size_t end = std::min(value.find(',', at), value.size());
    std::uint32_t share = 0;
    const auto parsed = std::from_chars(value.data() + at, value.data() + end, share);
    if (parsed.ec != std::errc() || parsed.ptr != value.data() + end || share == 0 ||
        share > kMaxShare) {
      return make_error(Errc::kArgument,
                        fmt::format("--shares \"{}\" is not a list of whole numbers from 1 to {}, "
                                    "such as 4,1",
                                    value, kMaxShare));
    }
    shares.push_back(share);
    at = end + 1;
  }
  return ok();
}

/// The first directory and the others, in the order given.
Status take_stores(const std::vector<std::string>& stores, RunResources& resources,
                   const char* command) {
  if (stores.empty() || std::find(stores.begin(), stores.end(), "") != stores.end()) {
    return make_error(Errc::kArgument,
                      fmt::format("--store is missing; name a directory on the drive to use, for "
                                  "example: penstock {} --store run1",
                                  command));
  }
  resources.store = stores.front();
  resources.further_stores.assign(stores.begin() + 1, stores.end());
  return ok();
}

Status take_block(const std::string& value, std::uint32_t& block) {
  auto elements = parse_bytes(value);
  const bool right = elements && elements.value() >= kTileElements &&
                     elements.value() <= kMaxBlock && elements.value() % kTileElements == 0;
  if (!right) {
    return make_error(Errc::kArgument,
                      fmt::format("--block \"{}\" is not a multiple of {} elements from {} to {}",
                                  value, kTileElements, kTileElements, kMaxBlock));
  }
  block = static_cast<std::uint32_t>(elements.value());
  return ok();
}

Status check_copies(const TrainOptions& options) {
  const bool places = !options.copy_to.empty();
  if (places != (options.copy_every != 0)) {
    return make_error(Errc::kArgument,
                      places ? "--copy-to needs --copy-every N: the steps between copies"
                             : "--copy-every needs --copy-to DIR: where the copies go");
  }
  if (std::find(options.copy_to.begin(), options.copy_to.end(), "") != options.copy_to.end()) {
    return make_error(Errc::kArgument, "--copy-to \"\" names no directory; name one");
  }
  if (places && options.scratch) {
    return make_error(
        Errc::kArgument,
        "--scratch and --copy-to contradict each other: a scratch run has no state to "
        "copy; drop one");
  }
  return ok();
}

}  // namespace

void TrainFlags::declare(Flags& flags) {
  flags.text("--model", model_,
             "nano, tiny, 124M, 1B, 4B (each also with -gpt2), or the path of a config.json or of "
             "its directory (default tiny)",
             "SIZE|PATH");
  flags.text("--config", config_, "A config.json, also where its name alone looks like a size",
             "FILE");
  flags.choice(
      "--family", {"llama", "gpt2"},
      [this](std::size_t index) { options_.family = index == 0 ? "llama" : "gpt2"; },
      "Family of a named size (default llama)");
  flags.text("--data", options_.data.path,
             "Any file (its bytes are the tokens), a token file with --vocab, or random:VOCAB "
             "(required)",
             "FILE");
  flags.count("--vocab", options_.data.vocab, 2, std::uint64_t{1} << 24,
              "Vocabulary of a token file");
  flags.choice(
      "--data-type", {"auto", "bytes", "u16", "u32"},
      [this](std::size_t index) { options_.data.type = static_cast<DataType>(index); },
      "How to read --data (default: bytes, or with --vocab what header and vocabulary say)");
  declare_resources(flags, options_.resources, stores_);
  flags.count("--steps", options_.steps, 1, kMaxCount,
              "Steps of the whole run; a resumed one does what is left (default 1000)");
  flags.count("--batch", options_.batch, 1, kMaxSequences, "Sequences per step (default 8)");
  flags.custom(
      "--micro", "N",
      [this](const std::string& value) -> Status {
        micro_given_ = true;
        const std::string_view digits = "0123456789";
        if (value.empty() || value.size() > 7 ||
            value.find_first_not_of(digits) != std::string::npos || value == "0") {
          return make_error(Errc::kArgument,
                            fmt::format("--micro \"{}\" is not a whole number from 1 to {}", value,
                                        kMaxSequences));
        }
        options_.micro = std::stoull(value);
        return ok();
      },
      "Sequences per micro-batch; divides --batch (default: all)");
  flags.count("--seq", options_.seq, 1, kMaxSeq - 1, "Tokens per sequence (default 256)");
  flags.real("--lr", options_.lr, 0.0, 1e3, "Peak learning rate (default 1e-3)");
  flags.count("--warmup", options_.warmup, 0, kMaxCount, "Steps of warm-up (default 100)");
  flags.real("--clip", options_.clip, 0.0, 1e30, "Largest gradient norm, 0: none (default 1)");
  flags.count("--seed", options_.seed, 0, std::numeric_limits<std::uint64_t>::max(),
              "Seed of weights and data order (default 1)");
  declare_commits(flags, options_);
  flags.custom(
      "--block", "N",
      [this](const std::string& value) { return take_block(value, options_.block_elements); },
      "Elements of a block, the unit of transfers (default: chosen by the plan)");
  flags.custom(
      "--shares", "N,N,...",
      [this](const std::string& value) { return take_shares(value, options_.drive_shares); },
      "What part of a new store's blocks each --store gets (default: as their drives measure)");
  flags.count("--eval-every", options_.eval_every, 0, kMaxCount,
              "Steps between evaluations, 0: first and last only (default)");
  flags.count("--eval-tokens", options_.eval_tokens, 0, kMaxCount,
              "Held-out tokens per evaluation, 0: all (default 65536)");
  flags.on("--resume", options_.resume,
           "Go on from the last commit in --store; other flags as before");
  flags.on("--scratch", options_.scratch,
           "Half the drive space, but nothing is committed: the model ends with the run");
}

Result<TrainOptions> TrainFlags::finish() const {
  TrainOptions options = options_;
  if (!model_.empty() && !config_.empty()) {
    return make_error(Errc::kArgument, fmt::format("--model {} and --config {} say two models; "
                                                   "drop one",
                                                   model_, config_));
  }
  if (!config_.empty()) {
    // Such a path is never taken for the name of a size.
    options.model = config_.find('/') == std::string::npos ? std::string("./") + config_ : config_;
  } else if (!model_.empty()) {
    options.model = model_;
  }
  if (options.data.path.empty()) {
    return make_error(Errc::kArgument,
                      "--data is missing; name any file (its bytes are the tokens), a token file "
                      "with --vocab, or random:50257");
  }
  PENSTOCK_CHECK_OK(take_stores(stores_, options.resources, "train"));
  if (!options.drive_shares.empty() && options.drive_shares.size() != stores_.size()) {
    return make_error(Errc::kArgument,
                      fmt::format("--shares gives {} numbers for {} --store; give one for each",
                                  options.drive_shares.size(), stores_.size()));
  }
  if (!micro_given_) options.micro = options.batch;
  if (options.micro == 0 || options.batch % options.micro != 0) {
    return make_error(Errc::kArgument, fmt::format("--micro {} does not divide --batch {}; choose "
                                                   "one that does",
                                                   options.micro, options.batch));
  }
  if (options.scratch && options.resume) {
    return make_error(Errc::kArgument,
                      "--scratch and --resume contradict each other: a scratch run leaves nothing "
                      "to resume; drop one");
  }
  if (options.scratch && options.commit_every != 0) {
    return make_error(Errc::kArgument,
                      "--scratch and --commit-every contradict each other: a scratch run does not "
                      "commit; drop one");
  }
  if (options.scratch && (options.keep != 0 || options.checkpoint_every != 0)) {
    return make_error(Errc::kArgument,
                      "--scratch and --keep or --checkpoint-every contradict each other: a scratch "
                      "run keeps nothing; drop one");
  }
  PENSTOCK_CHECK_OK(check_copies(options));
  if (options.checkpoint_every != 0 && options.keep == 0) options.keep = 1;
  return options;
}

void GenerateFlags::declare(Flags& flags) {
  declare_resources(flags, options_.resources, stores_);
  flags.text("--prompt", options_.prompt,
             "Text to go on from; token numbers with spaces if the model was trained on tokens");
  flags.count("--tokens", options_.tokens, 1, kMaxCount, "Tokens to generate (default 200)");
  flags.real("--temperature", options_.temperature, 0.0, 100.0,
             "0: always the likeliest token (default 0.8)");
  flags.count("--seed", options_.seed, 0, std::numeric_limits<std::uint64_t>::max(),
              "Seed of the sampling (default 1)");
}

Result<GenerateOptions> GenerateFlags::finish() const {
  GenerateOptions options = options_;
  PENSTOCK_CHECK_OK(take_stores(stores_, options.resources, "generate"));
  return options;
}

}  // namespace penstock
