#pragma once

/// Sections, tiles and where they lie inside a slot. Lengths only: the store knows no meanings.
///
/// A slot holds the sections of one block version, in order. Each section is
///   [data, zero-padded to 4 KiB][sums: 8 B XXH3-64 per tile, zero-padded to 4 KiB]
/// so one contiguous transfer moves a section with its sums, and one moves several sections.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace penstock {

inline constexpr std::size_t kMaxSections = 8;
inline constexpr std::uint64_t kPageBytes = 4096;
inline constexpr std::uint64_t kTileElements = 16 * 1024;

[[nodiscard]] constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

struct SectionSpec {
  std::string name;   ///< "hi", "lo", "m", "v", ...
  std::string codec;  ///< "bf16", "i16", "f32", ...: meaning is the caller's
  bool is_mutable = true;
  std::uint32_t tile_bytes = 0;  ///< bytes of one full tile of this section
};

/// Where one section of a block lies, relative to the start of its slot.
struct SectionExtent {
  std::uint64_t data_offset = 0;
  std::uint64_t data_bytes = 0;    ///< exact length; any value, 0 included
  std::uint64_t padded_bytes = 0;  ///< data rounded up to 4 KiB
  std::uint64_t sums_offset = 0;   ///< = data_offset + padded_bytes
  std::uint64_t sums_bytes = 0;    ///< rounded up to 4 KiB
  std::uint32_t tiles = 0;
  [[nodiscard]] std::uint64_t total_bytes() const { return padded_bytes + sums_bytes; }
};

/// The extents of a block with these exact section lengths, back to back from offset 0.
inline std::vector<SectionExtent> slot_extents(const std::vector<SectionSpec>& specs,
                                               const std::vector<std::uint64_t>& lengths) {
  std::vector<SectionExtent> extents(specs.size());
  std::uint64_t offset = 0;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    SectionExtent& extent = extents[i];
    extent.data_offset = offset;
    extent.data_bytes = lengths[i];
    extent.padded_bytes = round_up(lengths[i], kPageBytes);
    extent.tiles =
        static_cast<std::uint32_t>((lengths[i] + specs[i].tile_bytes - 1) / specs[i].tile_bytes);
    extent.sums_offset = offset + extent.padded_bytes;
    extent.sums_bytes = round_up(std::uint64_t{extent.tiles} * 8, kPageBytes);
    offset += extent.total_bytes();
  }
  return extents;
}

}  // namespace penstock
