#pragma once

/// Makes and checks the sums of one section of one block version in memory.
///
/// `bytes` is a whole section as it lies on the drive: extent.total_bytes() of data, padding, sums,
/// padding. The fused kernels do the same piece by piece; these are for first versions, tools and
/// sections that no kernel touches.
/// Threads: pure functions over const members of the store.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "io/store.hpp"

namespace penstock {

/// Zeroes both paddings, writes the tile sums, returns the root.
std::uint64_t seal_section(const Store& store, std::size_t block, std::uint64_t version,
                           std::size_t section, std::span<std::byte> bytes);

enum class SectionFaultKind : std::uint8_t {
  kSums,     ///< the sums do not have the entry's root; which tiles are good is unknown
  kTile,     ///< a tile does not have its sum
  kPadding,  ///< a byte that must be zero is not; no data is affected
};

struct SectionFault {
  SectionFaultKind kind = SectionFaultKind::kTile;
  std::uint32_t tile = 0;          ///< of kTile
  std::uint64_t offset_bytes = 0;  ///< from the start of the slot
};

/// What is wrong with the section as `entry` describes it, at most `limit` faults; padding is
/// looked at only when asked for.
std::vector<SectionFault> find_section_faults(const Store& store, std::size_t block,
                                              std::size_t section, const SlotEntry& entry,
                                              std::span<const std::byte> bytes, bool padding_too,
                                              std::size_t limit);

}  // namespace penstock
