#pragma once

/// Where tiles of a block begin and end, and the bytes of their elements.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "io/section.hpp"
#include "plan/plan.hpp"

namespace penstock {

inline std::uint32_t tiles_of(std::uint32_t elements) {
  constexpr auto kTile = static_cast<std::uint32_t>(kTileElements);
  return (elements + kTile - 1) / kTile;
}

struct TileSpan {
  std::uint32_t first = 0, elements = 0;
};
inline TileSpan tile_span(std::uint32_t block_elements, std::uint32_t tile) {
  constexpr auto kTile = static_cast<std::uint32_t>(kTileElements);
  const std::uint32_t first = tile * kTile;
  return {first, std::min(kTile, block_elements - first)};
}

/// Bytes of one element in a section of the fp32 ladder.
inline std::uint32_t element_bytes(std::size_t section) {
  return section == kHiSection || section == kLoSection ? kHiBytes : kMomentBytes;
}

}  // namespace penstock
