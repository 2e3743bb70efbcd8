#pragma once

/// What a training with a store writes, from the store's layout alone.
///
/// Threads: pure functions.

#include <cstdint>

#include "io/store.hpp"

namespace penstock {

/// A step at most: every section that changes once, with its sums, and every gradient that may have
/// to be spilled. What stays in memory between commits makes it less; manifests are not counted.
[[nodiscard]] std::uint64_t most_bytes_per_step(const Store& store);

/// All steps that led to the state at most, and the file's first filling. Steps that were given up,
/// by going back to a checkpoint, are not known here.
[[nodiscard]] std::uint64_t most_bytes_so_far(const Store& store);

}  // namespace penstock
