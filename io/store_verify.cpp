#include "io/store_verify.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

constexpr int kReadAttempts = 3;

/// One section of one block: reads, checks, and puts faults into words.
class SectionVerifier {
 public:
  SectionVerifier(Store& store, std::size_t block, std::size_t section, const SlotEntry& entry,
                  PageBuffer& buffer)
      : store_(store),
        block_(block),
        section_(section),
        entry_(entry),
        extent_(store.extents(block)[section]),
        tile_bytes_(store.geometry().sections[section].tile_bytes),
        slot_(store.slot(entry.slot)),
        bytes_(buffer.first(extent_.total_bytes())) {}

  /// `storage`: where to read tiles one by one when the section cannot be read whole; may be null.
  void run(Storage* storage, std::vector<BadTile>& found) {
    std::vector<BadTile> bad;
    for (int attempt = 0; attempt < kReadAttempts; ++attempt) {
      bad.clear();
      const Status read = store_.read_unchecked(block_, section_, entry_, bytes_);
      if (read) {
        add_faults({}, bad);
        if (bad.empty()) return;
      } else {
        bad.push_back(unreadable(SectionFaultKind::kSums, 0, 0, extent_.total_bytes(), read));
      }
    }
    if (storage != nullptr && bad.size() == 1 && bad[0].code == Errc::kIo) {
      bad.clear();
      read_tiles(*storage, bad);
    }
    found.insert(found.end(), std::make_move_iterator(bad.begin()),
                 std::make_move_iterator(bad.end()));
  }

 private:
  void read_tiles(Storage& storage, std::vector<BadTile>& bad) {
    std::vector<bool> lost(extent_.tiles, false);
    for (std::uint32_t tile = 0; tile < extent_.tiles; ++tile) {
      const std::uint64_t begin = std::uint64_t{tile} * tile_bytes_;
      const Status read = read_range(storage, begin, begin + length_of(tile));
      if (read) continue;
      lost[tile] = true;
      bad.push_back(unreadable(SectionFaultKind::kTile, tile, begin, length_of(tile), read));
    }
    const Status sums = read_range(storage, extent_.padded_bytes, extent_.total_bytes());
    if (sums) {
      add_faults(lost, bad);
    } else {
      bad.push_back(
          unreadable(SectionFaultKind::kSums, 0, extent_.padded_bytes, extent_.sums_bytes, sums));
    }
  }

  /// Reads the pages around bytes [begin, end) of the section to where they belong.
  Status read_range(Storage& storage, std::uint64_t begin, std::uint64_t end) {
    const std::uint64_t first = begin / kPageBytes * kPageBytes;
    const std::uint64_t last = round_up(end, kPageBytes);
    Status read = ok();
    for (int attempt = 0; attempt < kReadAttempts; ++attempt) {
      read = storage.read_at(slot_.file, slot_.offset_bytes + extent_.data_offset + first,
                             bytes_.subspan(first, last - first));
      if (read) break;
    }
    return read;
  }

  /// What the sums say; tiles that are lost anyway are left out.
  void add_faults(const std::vector<bool>& lost, std::vector<BadTile>& bad) const {
    for (const SectionFault& fault : find_section_faults(store_, block_, section_, entry_, bytes_,
                                                         lost.empty(), extent_.tiles + 3UL)) {
      if (fault.kind == SectionFaultKind::kTile && !lost.empty() && lost[fault.tile]) continue;
      BadTile found =
          place(fault.kind, fault.tile, fault.offset_bytes - extent_.data_offset, bytes_of(fault));
      found.message += fault.kind == SectionFaultKind::kPadding
                           ? " is not zero; no data is affected"
                           : " fails its checksum";
      bad.push_back(std::move(found));
    }
  }

  [[nodiscard]] std::uint64_t length_of(std::uint32_t tile) const {
    return std::min<std::uint64_t>(tile_bytes_,
                                   extent_.data_bytes - std::uint64_t{tile} * tile_bytes_);
  }

  [[nodiscard]] std::uint64_t bytes_of(const SectionFault& fault) const {
    if (fault.kind == SectionFaultKind::kTile) return length_of(fault.tile);
    if (fault.kind == SectionFaultKind::kSums) return extent_.sums_bytes;
    const std::uint64_t at = fault.offset_bytes - extent_.data_offset;
    return (at < extent_.padded_bytes ? extent_.padded_bytes : extent_.total_bytes()) - at;
  }

  /// `at`: from the start of the section.
  [[nodiscard]] BadTile place(SectionFaultKind kind, std::uint32_t tile, std::uint64_t at,
                              std::uint64_t bytes) const {
    const std::string part = kind == SectionFaultKind::kSums   ? std::string("sums")
                             : kind == SectionFaultKind::kTile ? fmt::format("tile {}", tile)
                                                               : std::string("padding");
    BadTile bad{block_,
                section_,
                Errc::kCorrupt,
                kind,
                tile,
                store_.path_of(slot_.file),
                slot_.offset_bytes + extent_.data_offset + at,
                bytes,
                {}};
    bad.message =
        fmt::format("{} section \"{}\" {} in {} at offset {}", store_.block_name(block_),
                    store_.geometry().sections[section_].name, part, bad.path, bad.offset_bytes);
    return bad;
  }

  [[nodiscard]] BadTile unreadable(SectionFaultKind kind, std::uint32_t tile, std::uint64_t at,
                                   std::uint64_t bytes, const Status& read) const {
    BadTile bad = place(kind, tile, at, bytes);
    bad.code = read.error().code;
    bad.message += " cannot be read: " + read.error().message;
    return bad;
  }

  Store& store_;
  std::size_t block_, section_;
  const SlotEntry& entry_;
  const SectionExtent& extent_;
  std::uint64_t tile_bytes_;
  DriveExtent slot_;
  std::span<std::byte> bytes_;
};

std::uint64_t total_bytes(const Store& store) {
  std::uint64_t total = 0;
  for (std::size_t block = 0; block < store.geometry().blocks.size(); ++block) {
    for (const SectionExtent& extent : store.extents(block)) total += extent.total_bytes();
  }
  return total;
}

}  // namespace

std::uint64_t verify_buffer_bytes(const Store& store) {
  std::uint64_t largest = 0;
  for (std::size_t block = 0; block < store.geometry().blocks.size(); ++block) {
    for (const SectionExtent& extent : store.extents(block)) {
      largest = std::max(largest, extent.total_bytes());
    }
  }
  return largest;
}

std::vector<BadTile> verify_block(Storage& storage, Store& store, std::size_t block,
                                  const SlotEntry& entry, PageBuffer& buffer) {
  std::vector<BadTile> found;
  for (std::size_t section = 0; section < store.geometry().sections.size(); ++section) {
    if (store.extents(block)[section].total_bytes() == 0) continue;
    SectionVerifier(store, block, section, entry, buffer).run(&storage, found);
  }
  return found;
}

Result<std::vector<BadTile>> verify_store(Store& store, const VerifyProgress& progress) {
  if (!store.has_commit()) {
    return make_error(Errc::kState,
                      fmt::format("verify {}: it has no committed step", store.directory()));
  }
  const std::size_t sections = store.geometry().sections.size();
  const std::size_t blocks = store.geometry().blocks.size();
  const std::uint64_t largest = verify_buffer_bytes(store);
  const std::uint64_t total = total_bytes(store);
  std::uint64_t done = 0;
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
      SectionVerifier(store, block, section, table.entry(block), buffer).run(nullptr, found);
      done += bytes;
      if (progress) progress(done, total);
    }
  }
  return found;
}

}  // namespace penstock
