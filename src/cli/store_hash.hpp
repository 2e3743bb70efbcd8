#pragma once

/// One hash of the state of a training, the same for every block size, placement and drive.
///
/// XXH3-128 over, for each tensor in order of name: the bytes of its elements of section hi, then
/// lo, m, v (frozen tensors: hi only), in order of element, without what pads a group; then the
/// trainer's blob. Every section read is checked against its sums.
/// Memory:  one section of one block of each kind (at most 14 bytes x the block's elements).
/// Threads: one.
/// Errors:  kState (nothing committed, overtaken), kCorrupt and kIo of the sections, kCancelled
///          (stop).

#include <atomic>
#include <cstdint>
#include <functional>

#include "base/checksum.hpp"
#include "base/result.hpp"
#include "cli/store_reader.hpp"

namespace penstock {

/// Called with the bytes hashed so far and in all.
using HashProgress = std::function<void(std::uint64_t done_bytes, std::uint64_t total_bytes)>;

Result<Hash128> hash_store(StoreReader& reader, const std::atomic<bool>& stop,
                           const HashProgress& progress = {});

}  // namespace penstock
