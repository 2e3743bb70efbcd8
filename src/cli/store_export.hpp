#pragma once

/// The weights of a store as safetensors, for other programs.
///
/// A directory gets model.safetensors, or shards with model.safetensors.index.json, and, of a model
/// of `penstock train`, a config.json, all named and laid out as Hugging Face does. The weights are
/// those of one commit: bf16 is `hi` as forward and backward read it, f32 the exact master weight
/// from `hi` and `lo`. Works while a training goes on; where it overtakes the export, that begins
/// again with the newest commit.
/// Memory:  one section of one block of each kind, and 5 MiB; never a whole tensor.
/// Threads: one.
/// Errors:  kArgument and kState (the place, the step), kUnsupported (the store's sections),
///          kCancelled (stop), and those of StoreReader and OutputFile. Nothing is left behind.

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "cli/export_target.hpp"
#include "cli/store_reader.hpp"

namespace penstock {

struct ExportOptions {
  std::string place;
  bool single_file = false;                       ///< `place` is the safetensors file itself
  bool f32 = false;                               ///< else bf16
  std::uint64_t max_shard_bytes = 5'000'000'000;  ///< of tensor data; a larger tensor stands alone
  std::optional<std::uint64_t> step{};            ///< only this one; else the last commit
};

struct ExportResult {
  std::uint64_t step = 0, updates = 0;
  std::uint64_t tensors = 0, tensor_bytes = 0;
  std::vector<ExportFile> files;
  bool has_config = false;
};

/// Called with the bytes written so far and in all.
using ExportProgress = std::function<void(std::uint64_t done_bytes, std::uint64_t total_bytes)>;

Result<ExportResult> export_store(StoreReader& reader, const ExportOptions& options,
                                  const std::atomic<bool>& stop,
                                  const ExportProgress& progress = {});

/// Cuts tensors of these sizes into runs that follow one another: each at most `max_bytes`, or one
/// tensor. The lengths of the runs, in tensors.
[[nodiscard]] std::vector<std::size_t> plan_shards(const std::vector<std::uint64_t>& tensor_bytes,
                                                   std::uint64_t max_bytes);

}  // namespace penstock
