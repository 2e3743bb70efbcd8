#pragma once

/// Where everything lies in the data files, as a pure function of the geometry.
///
///   0        header, copy 1 (4 KiB)
///   4096     header, copy 2 (4 KiB)
///   2 MiB    slots, `slot_count` of `slot_bytes` each
///   ...      spill extents, each rounded up to 4 KiB (2 MiB where it is at least that long)
/// `slot_bytes` is the largest block with its sums, rounded up to 2 MiB when it is at least that,
/// else to 4 KiB, so that a slot of a large block is a whole 2 MiB-aligned rewrite.
/// Slots and spill extents are dealt to the files in turn, by their shares: a file with share 2
/// gets two of every three where the other has share 1. Blocks written in order thus keep all
/// drives busy.
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
inline constexpr std::uint32_t kMaxDataFiles = 64;
inline constexpr std::uint32_t kMaxShare = 256;  // of one data file
inline constexpr std::uint32_t kMaxPins = 64;    // so that slots are counted in 32 bits

/// How slots, or spill extents, are dealt to files of given shares.
class Deal {
 public:
  struct Place {
    std::uint32_t file = 0;
    std::uint64_t index = 0;  ///< among those of its file
  };
  Deal() = default;
  explicit Deal(const std::vector<std::uint32_t>& shares);

  [[nodiscard]] Place place(std::uint64_t number) const;
  /// How many of the first `count` lie in the file.
  [[nodiscard]] std::uint64_t share_of(std::uint32_t file, std::uint64_t count) const;

 private:
  std::vector<std::uint32_t> shares_;
  std::vector<Place> round_;  // one round of sum(shares) numbers
};

struct FileLayout {
  std::uint64_t slot_count = 0;
  std::uint64_t slots_offset_bytes = kSlotsOffsetBytes;
  std::uint64_t spill_offset_bytes = 0;
  std::uint64_t spill_bytes = 0;  ///< of all its spill extents, rounding included
  std::uint64_t file_bytes = 0;
};

struct SpillPlace {
  std::uint32_t file = 0;
  std::uint64_t offset_bytes = 0;
};

struct StoreLayout {
  std::uint64_t slot_bytes = 0;
  std::uint64_t slot_count = 0;  ///< of all files
  std::vector<FileLayout> files;
  Deal deal;
  std::vector<std::vector<SectionExtent>> extents;  ///< per block, relative to its slot
  std::vector<SpillPlace> spills;
};

/// Checks the geometry against the limits and lays it out. A mutable block has two slots and one
/// for each pin, a frozen block one. `scratch`: one slot per block.
Result<StoreLayout> plan_layout(const StoreGeometry& geometry, bool scratch);

/// The bits a complete entry of this block has: one per section that is not empty.
[[nodiscard]] std::uint32_t written_mask(const BlockGeometry& block);

}  // namespace penstock
