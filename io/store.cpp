// The open store: places, seeds and reads. Creating, opening and committing are in
// store_create.cpp, store_open.cpp and store_commit.cpp.

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/checksum.hpp"
#include "io/section_sums.hpp"
#include "io/store_impl.hpp"

namespace penstock {
namespace {

constexpr int kReadAttempts = 3;  // the first and two re-reads

}  // namespace

std::string StoreDirectories::text() const {
  return fmt::format("{}", fmt::join(all_, ", "));
}

void StoreImpl::adopt(CommitRecord record, std::uint64_t sequence, std::vector<SlotEntry> entries,
                      std::string note) {
  record_ = std::move(record);
  committed_sequence_ = sequence;
  entries_ = std::move(entries);
  note_ = std::move(note);
  has_commit_ = true;
}

void StoreImpl::adopt_names(std::vector<ManifestName> names) {
  names_ = std::move(names);
  for (const ManifestName& name : names_) {
    if (name.pin.empty() && !name.temporary) sequence_ = std::max(sequence_, name.sequence + 1);
  }
}

std::uint64_t StoreImpl::file_bytes() const {
  return std::accumulate(parts_.file_bytes.begin(), parts_.file_bytes.end(), std::uint64_t{0});
}

DriveExtent StoreImpl::slot(SlotIndex slot) const {
  const Deal::Place place = parts_.layout.deal.place(slot);
  return {parts_.files[place.file].id(), parts_.layout.files[place.file].slots_offset_bytes +
                                             place.index * parts_.layout.slot_bytes};
}

DriveExtent StoreImpl::spill(std::size_t index) const {
  const SpillPlace& place = parts_.layout.spills[index];
  return {parts_.files[place.file].id(), place.offset_bytes};
}

std::string StoreImpl::path_of(FileId file) const {
  for (std::size_t i = 0; i < parts_.files.size(); ++i) {
    if (parts_.files[i].id() == file) return data_path(parts_.directories, i);
  }
  return parts_.directories.text();
}

std::uint64_t StoreImpl::tile_seed(std::size_t block, std::uint64_t version, std::size_t section,
                                   std::uint32_t tile) const {
  if (parts_.options.faults.sums_inside) return 0;
  return sum_seed(parts_.sums_uuid, parts_.geometry.blocks[block].key, version, section, tile);
}

std::uint64_t StoreImpl::root_of(std::size_t block, std::uint64_t version, std::size_t section,
                                 std::span<const std::uint64_t> sums) const {
  if (parts_.options.faults.sums_inside) return 0;
  return hash64(tile_seed(block, version, section, kRootTile), std::as_bytes(sums));
}

SlotTable StoreImpl::make_table() const {
  SlotTable table(parts_.geometry.blocks.size(), slot_count(), parts_.geometry.sections.size(),
                  parts_.options.scratch, parts_.options.faults);
  std::vector<std::vector<SlotIndex>> pinned;
  for (const Pin& pin : pins_) pinned.push_back(pin.slots);
  if (has_commit_) table.load_durable(entries_, pinned);
  return table;
}

std::string StoreImpl::block_name(std::size_t block) const {
  return namer_ ? namer_(block) : fmt::format("block {}", block);
}

Status StoreImpl::read_unchecked(std::size_t block, std::size_t section, const SlotEntry& entry,
                                 std::span<std::byte> into) {
  const SectionExtent& extent = extents(block)[section];
  if (entry.slot >= slot_count() || into.size() < extent.total_bytes()) {
    return make_error(Errc::kArgument,
                      fmt::format("{} section \"{}\": slot {} of {} does not exist or {} bytes are "
                                  "not room for {}",
                                  block_name(block), geometry().sections[section].name, entry.slot,
                                  slot_count(), into.size(), extent.total_bytes()));
  }
  if (extent.total_bytes() == 0) return ok();
  const DriveExtent place = slot(entry.slot);
  return parts_.storage.read_at(place.file, place.offset_bytes + extent.data_offset,
                                into.first(extent.total_bytes()));
}

Status StoreImpl::read_section(std::size_t block, std::size_t section, const SlotEntry& entry,
                               std::span<std::byte> into) {
  const std::string& name = geometry().sections[section].name;
  const SectionExtent& extent = extents(block)[section];
  if (extent.data_bytes == 0) return ok();
  if ((entry.written >> section & 1) == 0) {
    return make_error(Errc::kState,
                      fmt::format("{} section \"{}\" of version {} is not on the drive",
                                  block_name(block), name, entry.version));
  }
  const std::string what =
      fmt::format("{} section \"{}\" version {}", block_name(block), name, entry.version);
  const std::string path = path_of(slot(entry.slot).file);
  Error error;
  for (int attempt = 0; attempt < kReadAttempts; ++attempt) {
    Status read = read_unchecked(block, section, entry, into);
    if (!read && read.error().code != Errc::kIo) return read;
    if (!read) {
      error = std::move(read).error().in(fmt::format(
          "{} in {} at offset {}", what, path, slot(entry.slot).offset_bytes + extent.data_offset));
      continue;
    }
    const auto faults = find_section_faults(*this, block, section, entry,
                                            into.first(extent.total_bytes()), false, 1);
    if (faults.empty()) return ok();
    const std::uint64_t offset = slot(entry.slot).offset_bytes + faults[0].offset_bytes;
    const std::string place = faults[0].kind == SectionFaultKind::kSums
                                  ? std::string("sums")
                                  : fmt::format("tile {}", faults[0].tile);
    error =
        make_error(Errc::kCorrupt,
                   fmt::format("{} {} in {} at offset {} fails its checksum after {} "
                               "reads; the drive lost or changed it, so go back to a checkpoint or "
                               "use a copy of the store",
                               what, place, path, offset, kReadAttempts));
  }
  return error;
}

}  // namespace penstock
