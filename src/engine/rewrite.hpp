#pragma once

/// A store written anew: the same state in other blocks, on other drives, with other room.
///
/// Reads the last commit or a checkpoint of one store, checked, and creates another with it.
/// Nothing is changed in the first, which may be open for training meanwhile only if a checkpoint
/// is read. The result has the same bits for every tensor (`inspect --hash` agrees), step and
/// trainer's blob; block versions become those of the newest part.
/// Memory:  about one block of each store.
/// Threads: one.
/// Errors:  those of opening and creating; kCancelled when `progress` says stop. What was begun is
///          an unfinished creation, which may be done again.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "io/store.hpp"

namespace penstock {

struct RewriteOptions {
  StoreDirectories from;
  std::string pin;  ///< which checkpoint; empty: the last commit
  StoreDirectories to;
  std::uint32_t block_elements = 0;     ///< a multiple of kTileElements; 0: as in `from`
  std::uint32_t checkpoints = 0;        ///< room for so many
  std::vector<std::uint32_t> shares{};  ///< of the directories of `to`; empty: measured, or equal
  std::uint64_t uuid_seed = 0;          ///< as StoreOptions::uuid_seed
  double measure_drive_seconds = 0;     ///< for each direction and drive of `to`; 0: equal shares
};

/// Called after each block; false stops.
using RewriteProgress = std::function<bool(std::uint64_t done_bytes, std::uint64_t total_bytes)>;

Status rewrite_store(Storage& storage, const RewriteOptions& options,
                     const RewriteProgress& progress = {});

}  // namespace penstock
