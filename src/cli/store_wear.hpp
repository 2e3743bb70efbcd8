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

/// All steps up to the last commit at most, and the file's first filling.
[[nodiscard]] std::uint64_t most_bytes_so_far(const Store& store);

}  // namespace penstock
