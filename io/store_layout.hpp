#pragma once

/// Where everything lies in a data file, as a pure function of the geometry.
///
///   0        header, copy 1 (4 KiB)
///   4096     header, copy 2 (4 KiB)
///   2 MiB    slots, `slot_count` of `slot_bytes` each
///   ...      spill extents, each rounded up to 4 KiB (2 MiB where it is at least that long)
/// `slot_bytes` is the largest block with its sums, rounded up to 2 MiB when it is at least that,
/// else to 4 KiB, so that a slot of a large block is a whole 2 MiB-aligned rewrite.
/// Errors: kArgument; names the section or block and the limit.

#include <cstdint>
#include <vector>

#include "base/result.hpp"
#include "io/section.hpp"
#include "io/store.hpp"

namespace penstock {

inline constexpr std::uint64_t kSlotsOffsetBytes = std::uint64_t{2} << 20;

// Limits of a store. Products of them stay far below 2^63.
inline constexpr std::uint64_t kMaxBlocks = std::uint64_t{1} << 24;
inline constexpr std::uint64_t kMaxSpills = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kMaxSectionBytes = std::uint64_t{1} << 40;
inline constexpr std::uint64_t kMaxDataFileBytes = std::uint64_t{1} << 62;
inline constexpr std::uint64_t kMaxSectionNameBytes = 256;
inline constexpr std::uint64_t kMaxDescriptionBytes = std::uint64_t{256} << 20;
inline constexpr std::uint64_t kMaxBlobBytes = std::uint64_t{1} << 20;

struct StoreLayout {
  std::uint64_t slot_bytes = 0;
  std::uint64_t slot_count = 0;
  std::uint64_t slots_offset_bytes = kSlotsOffsetBytes;
  std::uint64_t spill_offset_bytes = 0;
  std::uint64_t spill_bytes = 0;  ///< of all spill extents, rounding included
  std::uint64_t file_bytes = 0;
  std::vector<std::vector<SectionExtent>> extents;  ///< per block, relative to its slot
  std::vector<std::uint64_t> spill_offsets;         ///< absolute
};

/// Checks the geometry against the limits and lays it out. `scratch`: one slot per block.
Result<StoreLayout> plan_layout(const StoreGeometry& geometry, bool scratch);

/// The bits a complete entry of this block has: one per section that is not empty.
[[nodiscard]] std::uint32_t written_mask(const BlockGeometry& block);

}  // namespace penstock
