#include "io/store_verify.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "io/page_buffer.hpp"

namespace penstock {
namespace {

constexpr int kReadAttempts = 3;

std::string describe(const Store& store, const BadTile& bad) {
  const std::string place = bad.kind == SectionFaultKind::kSums   ? std::string("sums")
                            : bad.kind == SectionFaultKind::kTile ? fmt::format("tile {}", bad.tile)
                                                                  : std::string("padding");
  return fmt::format("{} section \"{}\" {} in {}/data.0 at offset {}", store.block_name(bad.block),
                     store.geometry().sections[bad.section].name, place, store.directory(),
                     bad.offset_bytes);
}

void verify_section(Store& store, std::size_t block, std::size_t section, const SlotEntry& entry,
                    PageBuffer& buffer, std::vector<BadTile>& found) {
  const SectionExtent& extent = store.extents(block)[section];
  const std::uint64_t slot_offset = store.slot(entry.slot).offset_bytes;
  std::vector<BadTile> bad;
  for (int attempt = 0; attempt < kReadAttempts; ++attempt) {
    bad.clear();
    const auto bytes = buffer.first(extent.total_bytes());
    if (const Status read = store.read_unchecked(block, section, entry, bytes); !read) {
      bad.push_back({block, section, read.error().code, SectionFaultKind::kSums, 0,
                     slot_offset + extent.data_offset, read.error().message});
      bad.back().message.insert(0, describe(store, bad.back()) + " cannot be read: ");
      continue;
    }
    for (const SectionFault& fault :
         find_section_faults(store, block, section, entry, bytes, true, extent.tiles + 3UL)) {
      bad.push_back({block,
                     section,
                     Errc::kCorrupt,
                     fault.kind,
                     fault.tile,
                     slot_offset + fault.offset_bytes,
                     {}});
      bad.back().message = describe(store, bad.back()) + (fault.kind == SectionFaultKind::kPadding
                                                              ? " is not zero; no data is affected"
                                                              : " fails its checksum");
    }
    if (bad.empty()) return;
  }
  found.insert(found.end(), std::make_move_iterator(bad.begin()),
               std::make_move_iterator(bad.end()));
}

}  // namespace

Result<std::vector<BadTile>> verify_store(Store& store, const VerifyProgress& progress) {
  if (!store.has_commit()) {
    return make_error(Errc::kState,
                      fmt::format("verify {}: it has no committed step", store.directory()));
  }
  const std::size_t sections = store.geometry().sections.size();
  const std::size_t blocks = store.geometry().blocks.size();
  std::uint64_t largest = 0, total = 0, done = 0;
  for (std::size_t block = 0; block < blocks; ++block) {
    for (const SectionExtent& extent : store.extents(block)) {
      largest = std::max(largest, extent.total_bytes());
      total += extent.total_bytes();
    }
  }
  PageBuffer buffer(largest);
  if (buffer.empty()) {
    return make_error(Errc::kNoMemory, fmt::format("verify {}: no memory for a section of {} bytes",
                                                   store.directory(), largest));
  }
  const SlotTable table = store.make_table();
  std::vector<BadTile> found;
  for (std::size_t block = 0; block < blocks; ++block) {
    for (std::size_t section = 0; section < sections; ++section) {
      const std::uint64_t bytes = store.extents(block)[section].total_bytes();
      if (bytes == 0) continue;
      verify_section(store, block, section, table.entry(block), buffer, found);
      done += bytes;
      if (progress) progress(done, total);
    }
  }
  return found;
}

}  // namespace penstock
