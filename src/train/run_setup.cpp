#include "train/run_setup.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>

#include "base/checksum.hpp"
#include "base/clock.hpp"
#include "base/units.hpp"
#include "engine/layout.hpp"
#include "engine/system_drives.hpp"
#include "io/store_pins.hpp"
#include "topo/topology.hpp"

namespace penstock {
namespace {

using nlohmann::json;

/// Of the free memory, what `--ram all` leaves to others.
constexpr std::uint64_t kReservedShare = 5;  // one fifth

std::string family_name(ModelFamily family) {
  return family == ModelFamily::kLlama ? "llama" : "gpt2";
}

json config_json(const ModelConfig& config) {
  return {{"family", family_name(config.family)},
          {"name", config.name},
          {"layers", config.layers},
          {"hidden", config.hidden},
          {"heads", config.heads},
          {"kv_heads", config.kv_heads},
          {"head_dim", config.head_dim},
          {"intermediate", config.intermediate},
          {"vocab", config.vocab},
          {"max_positions", config.max_positions},
          {"norm_eps", config.norm_eps},
          {"rope_theta", config.rope_theta},
          {"tie_embeddings", config.tie_embeddings}};
}

}  // namespace

EngineParts RunParts::engine_parts(Logger logger) const {
  return {*storage, *executor, *communicators[0], [] { return now_ns(); }, std::move(logger)};
}

Result<RunParts> make_run_parts(const RunResources& resources) {
  RunParts parts;
  PENSTOCK_TAKE(isa, choose_isa());
  parts.isa = isa;
  parts.threads = resources.threads;
  if (parts.threads == 0) {
    const auto topology = read_topology();
    parts.threads = topology ? static_cast<std::uint32_t>(topology.value().usable_threads)
                             : std::max(1U, std::thread::hardware_concurrency());
  }
  parts.address_limits = AddressLimits::read();
  parts.address_limits.share_heap();
  PENSTOCK_CHECK_OK(check_address_limits(parts, resources, 0));
  parts.storage = std::make_unique<CountingStorage>(make_posix_storage(system_drive_namer()));
  parts.communicators = make_in_process_group(1);
  parts.executor = make_tbb_executor(static_cast<int>(parts.threads));
  if (parts.executor == nullptr) {
    return make_error(Errc::kUnsupported,
                      fmt::format("the system refuses {} threads; lower --threads", parts.threads));
  }
  return parts;
}

Status check_address_limits(const RunParts& parts, const RunResources& resources,
                            std::uint64_t budget_bytes) {
  return parts.address_limits.check(parts.threads, store_directories(resources).size(),
                                    budget_bytes);
}

std::uint64_t available_memory_bytes() {
  std::ifstream meminfo("/proc/meminfo");
  std::string key, unit;
  std::uint64_t value = 0, available = ~std::uint64_t{0};
  while (meminfo >> key >> value) {
    std::getline(meminfo, unit);
    if (key == "MemAvailable:") available = value * 1024;
  }
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream file(path);
    if (file >> value) available = std::min(available, value);
  }
  return available;
}

Result<MemorySplit> split_memory(const RunResources& resources, const Transformer& model,
                                 EngineOptions options, std::string_view remedy) {
  MemorySplit split;
  split.workspace_bytes = model.workspace_bytes(0);
  options.workspace_bytes = split.workspace_bytes;
  PENSTOCK_TAKE(minimum, minimum_host_bytes(options, model.spec()));
  if (resources.ram == RamBudget::kMinimum) {
    split.ram_bytes = split.used_bytes = minimum;
    return split;
  }
  split.ram_bytes = resources.ram_bytes;
  if (resources.ram == RamBudget::kAll) {
    const std::uint64_t available = available_memory_bytes();
    split.ram_bytes = available - available / kReservedShare;
  }
  if (split.ram_bytes < minimum) {
    return make_error(
        Errc::kNoMemory,
        fmt::format("host memory is short by {}: --ram grants {}, of which the batch needs {}; "
                    "the smallest that works is --ram {} (or --ram min){}",
                    format_bytes(minimum - split.ram_bytes), format_bytes(split.ram_bytes),
                    format_bytes(split.workspace_bytes), minimum, remedy));
  }
  // States first: keeping activations saves a third of the arithmetic, but only what the plan has
  // no use for is spent on them.
  options.host_bytes = split.ram_bytes;
  PENSTOCK_TAKE(plan, preview_plan(options, model.spec()));
  const std::uint64_t spare = split.ram_bytes - plan.host_bytes;
  split.kept_layers = model.kept_layers_within(spare);
  split.workspace_bytes = model.workspace_bytes(split.kept_layers);
  const std::uint64_t used = plan.host_bytes + (split.workspace_bytes - options.workspace_bytes) +
                             (std::uint64_t{2} << 20);
  if (resources.ram == RamBudget::kAll) split.ram_bytes = used;
  split.used_bytes = std::min(split.ram_bytes, used);
  return split;
}

Status check_place(const std::string& flag, const std::string& directory, bool to_read) {
  const auto refuse = [&](int error, const std::string& where, const char* remedy) {
    const std::string place =
        where == directory ? std::string() : fmt::format(" cannot be made in {}", where);
    return make_error(Errc::kArgument,
                      fmt::format("{} {}{}: {}; {}", flag, directory, place,
                                  std::generic_category().message(error), remedy),
                      error);
  };
  const auto may = [](const std::string& path, int mode) {
    return ::faccessat(AT_FDCWD, path.c_str(), mode, AT_EACCESS) == 0 ? 0 : errno;
  };
  constexpr const char* kPermit =
      "choose a directory that you may write to, or change its owner or mode";
  struct stat info {};
  if (::stat(directory.c_str(), &info) == 0) {
    if (!S_ISDIR(info.st_mode)) {
      return refuse(ENOTDIR, directory, "name a directory; one that does not exist is made");
    }
    const int error = may(directory, to_read ? R_OK | X_OK : W_OK | X_OK);
    if (error == 0) return ok();
    return refuse(error, directory, to_read ? "ask its owner for the right to read it" : kPermit);
  }
  const int missing = errno;
  if (to_read || missing != ENOENT) {
    return refuse(missing, directory, "name the directory that was given to train --store");
  }
  std::filesystem::path parent = std::filesystem::path(directory).lexically_normal();
  if (!parent.has_filename()) parent = parent.parent_path();  // a slash at the end
  const std::string above = parent.has_parent_path() ? parent.parent_path().string() : ".";
  const int error = may(above, W_OK | X_OK);
  if (error == 0) return ok();
  return refuse(error, above, error == ENOENT ? "create that directory first" : kPermit);
}

Status check_store_place(const RunResources& resources, bool to_read) {
  const StoreDirectories directories = store_directories(resources);
  for (const std::string& directory : directories.all()) {
    PENSTOCK_CHECK_OK(check_place("--store", directory, to_read));
  }
  return ok();
}

StoreDirectories store_directories(const RunResources& resources) {
  std::vector<std::string> all{resources.store};
  all.insert(all.end(), resources.further_stores.begin(), resources.further_stores.end());
  return StoreDirectories(std::move(all));
}

std::optional<StoredFacts> read_facts(Storage& storage, const StoreDirectories& directories) {
  const auto store = open_store(storage, directories, {}, /*writable=*/false);
  if (!store) return std::nullopt;
  const auto elements =
      block_elements_of(store.value()->geometry().description, directories.text());
  if (!elements) return std::nullopt;
  StoredFacts facts{elements.value(), store.value()->geometry().pins, {}};
  for (const Pin& pin : store.value()->pins()) {
    if (!is_rotating(pin.name)) facts.pinned.push_back(pin.name);
  }
  return facts;
}

Status check_checkpoint_room(const TrainOptions& options, const StoredFacts& facts,
                             std::string& note) {
  const std::string where = store_directories(options.resources).text();
  const std::string copy =
      fmt::format("make a store with more room (penstock checkpoint copy {} --to DIR --keep N)",
                  fmt::join(store_directories(options.resources).all(), " "));
  if (options.keep > facts.room) {
    return make_error(
        Errc::kState,
        fmt::format(
            "--keep {}: the store in {} was made with room for {} checkpoints; "
            "{}, or {}",
            options.keep, where, facts.room,
            facts.room == 0 ? "leave --keep and --checkpoint-every out" : "keep so many at most",
            copy));
  }
  if (options.checkpoint_every == 0 || facts.pinned.empty()) return ok();
  const std::size_t left = facts.room - std::min<std::size_t>(facts.room, facts.pinned.size());
  if (left == 0) {
    return make_error(
        Errc::kState,
        fmt::format(
            "--checkpoint-every {}: the store in {} has room for {} checkpoints, and all of "
            "it is taken by {} that were pinned ({}); drop one (penstock checkpoint drop), "
            "or {}",
            options.checkpoint_every, where, facts.room, facts.pinned.size(),
            fmt::join(facts.pinned, ", "), copy));
  }
  if (left < options.keep) {
    note = fmt::format(
        "--keep {}: {} of the store's room for {} checkpoints is taken by those that "
        "were pinned ({}), so {} of this run's stay",
        options.keep, facts.pinned.size(), facts.room, fmt::join(facts.pinned, ", "), left);
  }
  return ok();
}

std::string describe_run(const TrainOptions& options, const ModelConfig& config,
                         const TokenReader& data, std::uint64_t content,
                         const std::string& matrix_library) {
  const json run = {{"program", "penstock train"},
                    {"model", config_json(config)},
                    {"batch", options.batch},
                    {"micro", options.micro},
                    {"seq", options.seq},
                    {"lr", options.lr},
                    {"warmup", options.warmup},
                    {"steps", options.steps},
                    {"clip", options.clip},
                    {"seed", options.seed},
                    {"compute", options.resources.fp32 ? "fp32" : "bf16"},
                    {"matrix library", matrix_library},
                    {"data", data.fingerprint()},
                    {"data bytes", data.bytes()},
                    {"data content", to_hex(content)},
                    {"bytes", data.kind() == "bytes"}};
  return run.dump();
}

Result<StoredRun> read_stored_run(std::string_view store_description) {
  const auto not_ours = [] {
    return make_error(Errc::kCorrupt,
                      "the store was not made by penstock train, so its model is not known here");
  };
  try {
    const json value = json::parse(store_description);
    const json& run = value.at("trainer");
    if (run.value("program", "") != "penstock train") return not_ours();
    const json& model = run.at("model");
    StoredRun stored;
    ModelConfig& config = stored.config;
    config.family = model.at("family") == "gpt2" ? ModelFamily::kGpt2 : ModelFamily::kLlama;
    config.name = model.at("name").get<std::string>();
    const auto count = [&](const char* key) { return model.at(key).get<std::int64_t>(); };
    config.layers = count("layers");
    config.hidden = count("hidden");
    config.heads = count("heads");
    config.kv_heads = count("kv_heads");
    config.head_dim = count("head_dim");
    config.intermediate = count("intermediate");
    config.vocab = count("vocab");
    config.max_positions = count("max_positions");
    config.norm_eps = model.at("norm_eps").get<double>();
    config.rope_theta = model.at("rope_theta").get<double>();
    config.tie_embeddings = model.at("tie_embeddings").get<bool>();
    stored.seq = run.at("seq").get<std::int64_t>();
    stored.is_bytes = run.at("bytes").get<bool>();
    return stored;
  } catch (const json::exception&) {
    return not_ours();
  }
}

}  // namespace penstock
