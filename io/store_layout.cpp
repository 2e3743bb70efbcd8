#include "io/store_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace penstock {
namespace {

constexpr std::uint64_t kHugePageBytes = std::uint64_t{2} << 20;

std::uint64_t round_extent(std::uint64_t bytes) {
  return round_up(bytes, bytes >= kHugePageBytes ? kHugePageBytes : kPageBytes);
}

Status check_sections(const std::vector<SectionSpec>& sections) {
  if (sections.empty() || sections.size() > kMaxSections) {
    return make_error(Errc::kArgument, fmt::format("a store has 1 to {} sections, not {}",
                                                   kMaxSections, sections.size()));
  }
  for (std::size_t i = 0; i < sections.size(); ++i) {
    const SectionSpec& section = sections[i];
    if (section.name.empty() || section.name.size() > kMaxSectionNameBytes ||
        section.codec.size() > kMaxSectionNameBytes) {
      return make_error(Errc::kArgument,
                        fmt::format("section {} needs a name and a codec of at most {} bytes", i,
                                    kMaxSectionNameBytes));
    }
    if (section.tile_bytes == 0) {
      return make_error(Errc::kArgument,
                        fmt::format("section \"{}\" has tiles of 0 bytes; give the "
                                    "bytes of one full tile",
                                    section.name));
    }
    for (std::size_t k = 0; k < i; ++k) {
      if (sections[k].name == section.name) {
        return make_error(Errc::kArgument, fmt::format("two sections are called \"{}\"; names must "
                                                       "differ",
                                                       section.name));
      }
    }
  }
  return ok();
}

Status check_block(const StoreGeometry& geometry, std::size_t index) {
  const BlockGeometry& block = geometry.blocks[index];
  if (block.lengths.size() != geometry.sections.size()) {
    return make_error(Errc::kArgument,
                      fmt::format("block {} has {} section lengths, but the store "
                                  "has {} sections",
                                  index, block.lengths.size(), geometry.sections.size()));
  }
  for (std::size_t s = 0; s < block.lengths.size(); ++s) {
    // The first limit keeps sums free of overflow, the second the number of tiles in 32 bits.
    if (block.lengths[s] > kMaxSectionBytes ||
        block.lengths[s] / geometry.sections[s].tile_bytes >= ~std::uint32_t{0} - 1) {
      return make_error(
          Errc::kArgument,
          fmt::format("block {}: section \"{}\" of {} bytes in tiles of {} is too long; "
                      "use smaller blocks",
                      index, geometry.sections[s].name, block.lengths[s],
                      geometry.sections[s].tile_bytes));
    }
  }
  return ok();
}

Status check_keys(const StoreGeometry& geometry) {
  std::vector<std::uint64_t> keys;
  keys.reserve(geometry.blocks.size());
  for (const BlockGeometry& block : geometry.blocks) keys.push_back(block.key);
  std::sort(keys.begin(), keys.end());
  const auto twin = std::adjacent_find(keys.begin(), keys.end());
  if (twin == keys.end()) return ok();
  return make_error(Errc::kArgument,
                    fmt::format("two blocks have the key {:#018x}; keys must differ", *twin));
}

Status check_drives(const StoreGeometry& geometry) {
  const std::vector<std::uint32_t>& drives = geometry.drives;
  if (drives.empty() || drives.size() > kMaxDataFiles || geometry.pins > kMaxPins) {
    return make_error(Errc::kArgument,
                      fmt::format("a store has 1 to {} data files and room for at most {} "
                                  "checkpoints, not {} and {}",
                                  kMaxDataFiles, kMaxPins, drives.size(), geometry.pins));
  }
  for (const std::uint32_t share : drives) {
    if (share >= 1 && share <= kMaxShare) continue;
    return make_error(Errc::kArgument,
                      fmt::format("the share of a data file is 1 to {}, not {}", kMaxShare, share));
  }
  return ok();
}

Status check_geometry(const StoreGeometry& geometry) {
  PENSTOCK_CHECK_OK(check_sections(geometry.sections));
  PENSTOCK_CHECK_OK(check_drives(geometry));
  if (geometry.blocks.empty() || geometry.blocks.size() > kMaxBlocks) {
    return make_error(Errc::kArgument, fmt::format("a store has 1 to {} blocks, not {}", kMaxBlocks,
                                                   geometry.blocks.size()));
  }
  if (geometry.spill_bytes.size() > kMaxSpills ||
      geometry.description.size() > kMaxDescriptionBytes) {
    return make_error(
        Errc::kArgument,
        fmt::format("{} spill extents or a description of {} bytes is beyond the limits {} and {}",
                    geometry.spill_bytes.size(), geometry.description.size(), kMaxSpills,
                    kMaxDescriptionBytes));
  }
  for (std::size_t i = 0; i < geometry.blocks.size(); ++i) {
    PENSTOCK_CHECK_OK(check_block(geometry, i));
  }
  for (const std::uint64_t bytes : geometry.spill_bytes) {
    if (bytes > kMaxSectionBytes) {
      return make_error(Errc::kArgument,
                        fmt::format("a spill extent of {} bytes is beyond the limit "
                                    "of {}",
                                    bytes, kMaxSectionBytes));
    }
  }
  return check_keys(geometry);
}

/// Slots and spill extents of each file, one after the other.
Status lay_out_files(const StoreGeometry& geometry, StoreLayout& layout) {
  layout.files.resize(geometry.drives.size());
  for (std::uint32_t i = 0; i < layout.files.size(); ++i) {
    FileLayout& file = layout.files[i];
    file.slot_count = layout.deal.share_of(i, layout.slot_count);
    std::uint64_t slots_bytes = 0;
    const bool wraps = __builtin_mul_overflow(layout.slot_bytes, file.slot_count, &slots_bytes);
    if (wraps || slots_bytes > kMaxDataFileBytes) {
      return make_error(Errc::kArgument,
                        fmt::format("{} slots of {} bytes do not fit in one data file",
                                    file.slot_count, layout.slot_bytes));
    }
    file.spill_offset_bytes = round_up(file.slots_offset_bytes + slots_bytes,
                                       geometry.spill_bytes.empty() ? kPageBytes : kHugePageBytes);
  }
  layout.spills.reserve(geometry.spill_bytes.size());
  for (std::size_t i = 0; i < geometry.spill_bytes.size(); ++i) {
    const std::uint32_t index = layout.deal.place(i).file;
    FileLayout& file = layout.files[index];
    layout.spills.push_back({index, file.spill_offset_bytes + file.spill_bytes});
    file.spill_bytes += round_extent(geometry.spill_bytes[i]);
  }
  for (FileLayout& file : layout.files) {
    file.file_bytes = file.spill_offset_bytes + file.spill_bytes;
  }
  return ok();
}

}  // namespace

Deal::Deal(const std::vector<std::uint32_t>& shares) : shares_(shares) {
  const std::uint32_t divisor = std::accumulate(shares_.begin(), shares_.end(), 0U,
                                                [](auto a, auto b) { return std::gcd(a, b); });
  for (std::uint32_t& share : shares_) share /= divisor;
  const std::uint64_t sum = std::accumulate(shares_.begin(), shares_.end(), std::uint64_t{0});
  std::vector<std::uint64_t> dealt(shares_.size(), 0);
  // Each number goes to the file that is furthest behind its share.
  for (std::uint64_t number = 1; number <= sum; ++number) {
    std::uint32_t next = 0;
    std::int64_t most = 0;
    for (std::uint32_t i = 0; i < shares_.size(); ++i) {
      const auto behind = static_cast<std::int64_t>(number * shares_[i]) -
                          static_cast<std::int64_t>(dealt[i] * sum);
      if (behind > most) {
        most = behind;
        next = i;
      }
    }
    round_.push_back({next, dealt[next]++});
  }
}

Deal::Place Deal::place(std::uint64_t number) const {
  const Place& place = round_[number % round_.size()];
  return {place.file, number / round_.size() * shares_[place.file] + place.index};
}

std::uint64_t Deal::share_of(std::uint32_t file, std::uint64_t count) const {
  std::uint64_t of_rest = 0;
  for (std::uint64_t i = 0; i < count % round_.size(); ++i) of_rest += round_[i].file == file;
  return count / round_.size() * shares_[file] + of_rest;
}

Result<StoreLayout> plan_layout(const StoreGeometry& geometry, bool scratch) {
  PENSTOCK_CHECK_OK(check_geometry(geometry));
  StoreLayout layout;
  layout.deal = Deal(geometry.drives);
  layout.extents.reserve(geometry.blocks.size());
  std::uint64_t largest = kPageBytes;
  for (const BlockGeometry& block : geometry.blocks) {
    layout.extents.push_back(slot_extents(geometry.sections, block.lengths));
    const SectionExtent& last = layout.extents.back().back();
    largest = std::max(largest, last.data_offset + last.total_bytes());
    layout.slot_count += scratch || block.frozen ? 1 : 2 + geometry.pins;
  }
  layout.slot_bytes = round_extent(largest);
  PENSTOCK_CHECK_OK(lay_out_files(geometry, layout));
  return layout;
}

std::uint32_t written_mask(const BlockGeometry& block) {
  std::uint32_t mask = 0;
  for (std::size_t s = 0; s < block.lengths.size(); ++s) {
    if (block.lengths[s] != 0) mask |= std::uint32_t{1} << s;
  }
  return mask;
}

}  // namespace penstock
