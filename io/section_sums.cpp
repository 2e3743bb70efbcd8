#include "io/section_sums.hpp"

#include <algorithm>
#include <cstring>

#include "base/checksum.hpp"

namespace penstock {
namespace {

/// The bytes of one tile; the last one of a section may be short.
std::span<const std::byte> tile_of(std::span<const std::byte> bytes, const SectionExtent& extent,
                                   std::uint32_t tile_bytes, std::uint32_t tile) {
  const std::uint64_t begin = std::uint64_t{tile} * tile_bytes;
  return bytes.subspan(begin, std::min<std::uint64_t>(tile_bytes, extent.data_bytes - begin));
}

std::vector<std::uint64_t> sums_of(std::span<const std::byte> bytes, const SectionExtent& extent) {
  std::vector<std::uint64_t> sums(extent.tiles);
  if (!sums.empty()) {
    std::memcpy(sums.data(), bytes.data() + extent.padded_bytes, sums.size() * 8);
  }
  return sums;
}

void find_padding(std::span<const std::byte> bytes, std::uint64_t begin, std::uint64_t end,
                  const SectionExtent& extent, std::vector<SectionFault>& faults) {
  for (std::uint64_t i = begin; i < end; ++i) {
    if (bytes[i] == std::byte{0}) continue;
    faults.push_back({SectionFaultKind::kPadding, 0, extent.data_offset + i});
    return;
  }
}

}  // namespace

std::uint64_t seal_section(const Store& store, std::size_t block, std::uint64_t version,
                           std::size_t section, std::span<std::byte> bytes) {
  const SectionExtent& extent = store.extents(block)[section];
  const std::uint32_t tile_bytes = store.geometry().sections[section].tile_bytes;
  const auto zero = [&](std::uint64_t begin, std::uint64_t end) {
    const auto part = bytes.subspan(begin, end - begin);
    std::fill(part.begin(), part.end(), std::byte{0});
  };
  zero(extent.data_bytes, extent.padded_bytes);
  zero(extent.padded_bytes + std::uint64_t{extent.tiles} * 8, extent.total_bytes());
  std::vector<std::uint64_t> sums(extent.tiles);
  for (std::uint32_t tile = 0; tile < extent.tiles; ++tile) {
    sums[tile] = hash64(store.tile_seed(block, version, section, tile),
                        tile_of(bytes, extent, tile_bytes, tile));
  }
  if (!sums.empty()) {
    std::memcpy(bytes.data() + extent.padded_bytes, sums.data(), sums.size() * 8);
  }
  return store.root_of(block, version, section, sums);
}

std::vector<SectionFault> find_section_faults(const Store& store, std::size_t block,
                                              std::size_t section, const SlotEntry& entry,
                                              std::span<const std::byte> bytes, bool padding_too,
                                              std::size_t limit) {
  const SectionExtent& extent = store.extents(block)[section];
  const std::uint32_t tile_bytes = store.geometry().sections[section].tile_bytes;
  const std::vector<std::uint64_t> sums = sums_of(bytes, extent);
  std::vector<SectionFault> faults;
  if (store.root_of(block, entry.version, section, sums) != entry.roots[section]) {
    faults.push_back({SectionFaultKind::kSums, 0, extent.sums_offset});
    return faults;
  }
  for (std::uint32_t tile = 0; tile < extent.tiles && faults.size() < limit; ++tile) {
    const std::uint64_t sum = hash64(store.tile_seed(block, entry.version, section, tile),
                                     tile_of(bytes, extent, tile_bytes, tile));
    if (sum != sums[tile]) {
      faults.push_back(
          {SectionFaultKind::kTile, tile, extent.data_offset + std::uint64_t{tile} * tile_bytes});
    }
  }
  if (padding_too) {
    find_padding(bytes, extent.data_bytes, extent.padded_bytes, extent, faults);
    find_padding(bytes, extent.padded_bytes + std::uint64_t{extent.tiles} * 8, extent.total_bytes(),
                 extent, faults);
  }
  if (faults.size() > limit) faults.resize(limit);
  return faults;
}

}  // namespace penstock
