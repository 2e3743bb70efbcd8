#pragma once

/// Reads all that a store's last commit and its checkpoints name, and tells each bad tile as it is
/// found.
///
/// While a training goes on, the newest commit is followed: a block that fails its sums is looked
/// at again as the newest commit describes it, and called bad only if that names the same bytes. So
/// each block was right in some commit since the scrub began. A checkpoint that is dropped
/// meanwhile is left out. Memory:  the largest section of a block; nothing is kept of what was
/// found. Threads: one. Errors:  those of StoreReader. Damage is told to the observer, not an
/// error.

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/block_parts.hpp"
#include "cli/store_reader.hpp"
#include "cli/throttle.hpp"
#include "io/store_verify.hpp"

namespace penstock {

/// A bad tile, and what it holds.
struct Damage {
  BadTile bad;
  std::string checkpoint;          ///< that names it; empty: the last commit does
  std::string group;               ///< empty where the block belongs to none
  std::string section;             ///< its name
  std::vector<TensorRun> tensors;  ///< whose elements are lost; none for padding
  std::string message;             ///< one sentence: tensors and elements, section, file, offset
};

class ScrubObserver {
 public:
  virtual ~ScrubObserver() = default;
  virtual void on_damage(const Damage& damage) = 0;
  /// After each block, with the bytes read so far and in all.
  virtual void on_progress(std::uint64_t done_bytes, std::uint64_t total_bytes) = 0;
};

struct ScrubResult {
  std::uint64_t bytes = 0;          ///< that were read
  std::uint64_t total_bytes = 0;    ///< of the last commit, and of each checkpoint once begun
  std::uint64_t damaged = 0;        ///< places
  std::uint64_t reread_blocks = 0;  ///< that a training wrote anew meanwhile
  std::uint64_t checkpoints = 0;    ///< that were read, too
  bool complete = false;            ///< false: stopped
};

/// The sentence about a store in which so many places are damaged.
[[nodiscard]] std::string damaged_store(const Store& store, std::uint64_t places);

/// A reader of the last commit: that and all checkpoints; of a checkpoint: that one.
Result<ScrubResult> scrub_store(StoreReader& reader, Throttle& throttle, ScrubObserver& observer,
                                const std::atomic<bool>& stop);

}  // namespace penstock
