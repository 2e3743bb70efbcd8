#pragma once

/// What training and generating share: the machine's parts, the memory split, what the store says
/// about the run that made it.
///
/// Errors: kArgument and kNoMemory in words a user can act on. Threads: one.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/executor.hpp"
#include "comm/communicator.hpp"
#include "engine/engine.hpp"
#include "io/counting_storage.hpp"
#include "model/config.hpp"
#include "train/address_limits.hpp"
#include "train/run.hpp"
#include "train/transformer.hpp"

namespace penstock {

/// Real parts of one process, in an order in which they may die.
struct RunParts {
  std::unique_ptr<CountingStorage> storage;
  std::vector<std::unique_ptr<Communicator>> communicators;
  std::unique_ptr<Executor> executor;
  AddressLimits address_limits;  ///< before there were threads
  std::uint32_t threads = 1;
  Isa isa = Isa::kScalar;

  [[nodiscard]] EngineParts engine_parts(Logger logger) const;
};

/// kUnsupported where limits of this process leave no room for the threads.
Result<RunParts> make_run_parts(const RunResources& resources);
/// Whether those limits leave room for the budget, too.
[[nodiscard]] Status check_address_limits(const RunParts& parts, const RunResources& resources,
                                          std::uint64_t budget_bytes);

/// The budget in bytes, and how many layers keep their activations.
struct MemorySplit {
  std::uint64_t ram_bytes = 0;
  std::uint64_t used_bytes = 0;  ///< of these at most: a small model has no use for a large budget
  std::uint64_t workspace_bytes = 0;
  std::int64_t kept_layers = 0;
};

/// `options` without host_bytes and workspace_bytes; kAll is limited to what the machine has free.
/// `remedy` ends the message when the budget is too small: what else would need less.
Result<MemorySplit> split_memory(const RunResources& resources, const Transformer& model,
                                 EngineOptions options, std::string_view remedy);

/// Whether a store can be at that place, as far as can be told without writing: kArgument where the
/// path is a file, its parent is missing, or one of them may not be written to. `to_read`: it must
/// be there, and is not written to.
[[nodiscard]] Status check_store_place(const RunResources& resources, bool to_read);
/// The same of one directory; `flag` is what named it.
[[nodiscard]] Status check_place(const std::string& flag, const std::string& directory,
                                 bool to_read);

/// What is to be known of an existing store before it is opened for a run.
struct StoredFacts {
  std::uint32_t block_elements = 0;  ///< its blocks keep their size
  std::uint32_t room = 0;            ///< for checkpoints
  std::vector<std::string> pinned;   ///< those that no rotation drops
};
/// Nothing where the store cannot be read: opening it will say why.
[[nodiscard]] std::optional<StoredFacts> read_facts(Storage& storage,
                                                    const StoreDirectories& directories);

/// Whether the run's checkpoints fit beside those that its user made; `note` says so where they do,
/// but are fewer than --keep.
Status check_checkpoint_room(const TrainOptions& options, const StoredFacts& facts,
                             std::string& note);

/// All directories of the store.
[[nodiscard]] StoreDirectories store_directories(const RunResources& resources);

/// What a run must keep to be continued with the same bits, as JSON for EngineOptions. `content`:
/// TokenReader::content() of the data.
[[nodiscard]] std::string describe_run(const TrainOptions& options, const ModelConfig& config,
                                       const TokenReader& data, std::uint64_t content,
                                       const std::string& matrix_library);

/// What a later program needs of it.
struct StoredRun {
  ModelConfig config;
  std::int64_t seq = 0;
  bool is_bytes = false;  ///< tokens are bytes
};
/// kCorrupt when the store was not made by `penstock train`.
Result<StoredRun> read_stored_run(std::string_view store_description);

/// Bytes the system can still give this process.
[[nodiscard]] std::uint64_t available_memory_bytes();

}  // namespace penstock
