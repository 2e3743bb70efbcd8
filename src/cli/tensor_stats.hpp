#pragma once

/// Smallest, largest, mean and root mean square of what a store holds of a tensor, per section.
///
/// Sections whose codec is a plain number (bf16, f16, f32, i16) are read as such; where hi and lo
/// are both there, the exact fp32 weight they stand for is one more, named "weight". Sums are fp64
/// in order of element. Values that are not finite are counted and take no part in the rest.
/// Memory:  one section of one block of each kind. Threads: one.
/// Errors:  those of SectionCache, kCancelled (stop).

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "cli/store_reader.hpp"

namespace penstock {

struct SectionStats {
  std::string section;
  std::string codec;
  std::uint64_t count = 0;  ///< of values; the others mean something where it is above non_finite
  std::uint64_t non_finite = 0;
  double min = 0.0, max = 0.0, mean = 0.0, rms = 0.0;
};

/// Called with the bytes read of this tensor.
using StatsProgress = std::function<void(std::uint64_t done_bytes)>;

Result<std::vector<SectionStats>> tensor_stats(StoreReader& reader, const DescribedTensor& tensor,
                                               const std::atomic<bool>& stop,
                                               const StatsProgress& progress = {});

}  // namespace penstock
