// The open store: places, seeds, reads and commits. Creating and opening are in store_create.cpp
// and store_open.cpp.

#include <fmt/format.h>

#include <algorithm>

#include "base/checksum.hpp"
#include "io/section_sums.hpp"
#include "io/store_impl.hpp"

namespace penstock {
namespace {

constexpr int kReadAttempts = 3;  // the first and two re-reads

}  // namespace

void StoreImpl::adopt(CommitRecord record, std::vector<SlotEntry> entries, std::string note) {
  record_ = std::move(record);
  entries_ = std::move(entries);
  note_ = std::move(note);
  has_commit_ = true;
}

DriveExtent StoreImpl::slot(SlotIndex slot) const {
  return {parts_.file.id(), parts_.layout.slots_offset_bytes + slot * parts_.layout.slot_bytes};
}

DriveExtent StoreImpl::spill(std::size_t index) const {
  return {parts_.file.id(), parts_.layout.spill_offsets[index]};
}

std::uint64_t StoreImpl::tile_seed(std::size_t block, std::uint64_t version, std::size_t section,
                                   std::uint32_t tile) const {
  return sum_seed(parts_.uuid, parts_.geometry.blocks[block].key, version, section, tile);
}

std::uint64_t StoreImpl::root_of(std::size_t block, std::uint64_t version, std::size_t section,
                                 std::span<const std::uint64_t> sums) const {
  return hash64(tile_seed(block, version, section, kRootTile), std::as_bytes(sums));
}

SlotTable StoreImpl::make_table() const {
  SlotTable table(parts_.geometry.blocks.size(), slot_count(), parts_.geometry.sections.size(),
                  parts_.options.scratch, parts_.options.faults);
  if (has_commit_) table.load_durable(entries_);
  return table;
}

std::string StoreImpl::block_name(std::size_t block) const {
  return namer_ ? namer_(block) : fmt::format("block {}", block);
}

Status StoreImpl::check_commit(const CommitRecord& record,
                               std::span<const SlotEntry> entries) const {
  const StoreGeometry& geometry = parts_.geometry;
  if (parts_.options.scratch) {
    return make_error(Errc::kState, "a scratch store has no commits; save a checkpoint instead");
  }
  if (!parts_.writable) {
    return make_error(Errc::kState, "the store was opened for reading; open it for writing");
  }
  if (has_commit_ && record.step <= record_.step) {
    return make_error(Errc::kArgument,
                      fmt::format("step {} is already committed; steps must rise", record_.step));
  }
  if (entries.size() != geometry.blocks.size()) {
    return make_error(Errc::kArgument, fmt::format("{} entries were given for {} blocks",
                                                   entries.size(), geometry.blocks.size()));
  }
  std::vector<bool> used(slot_count(), false);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const SlotEntry& entry = entries[i];
    const std::uint32_t mask = written_mask(geometry.blocks[i]);
    if (entry.slot >= used.size() || used[entry.slot] || (entry.written & mask) != mask) {
      return make_error(Errc::kInternal,
                        fmt::format("{} has slot {} of {} (used twice or not at all) or sections "
                                    "{:#x} of {:#x} written; report this as a bug",
                                    block_name(i), entry.slot, used.size(), entry.written, mask));
    }
    used[entry.slot] = true;
  }
  return ok();
}

Status StoreImpl::commit(const CommitRecord& record, std::span<const SlotEntry> entries) {
  if (failed_) {
    return make_error(
        failed_->code,
        fmt::format("commit of step {} in {}: an earlier commit failed ({}); open the "
                    "store again to go on from step {}",
                    record.step, parts_.directory, failed_->message, record_.step),
        failed_->sys_errno);
  }
  Status done = check_commit(record, entries);
  if (done) done = write_commit(record, entries);
  if (done) return done;
  failed_ = std::move(done).error();
  return Error(*failed_).in(fmt::format("commit of step {} in {}", record.step, parts_.directory));
}

Status StoreImpl::write_commit(const CommitRecord& record, std::span<const SlotEntry> entries) {
  Manifest manifest;
  manifest.uuid = parts_.uuid;
  manifest.record = record;
  manifest.geometry = parts_.geometry;
  manifest.table.reserve(entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    manifest.table.push_back({entries[i], 0});
    // Bits of empty sections carry nothing, so they are stored in one way only.
    manifest.table.back().entry.written &= written_mask(parts_.geometry.blocks[i]);
  }
  auto bytes = encode_manifest(manifest);
  if (!bytes) return std::move(bytes).error();
  if (!parts_.options.faults.skip_data_flush) {
    PENSTOCK_CHECK_OK(parts_.storage.sync_data(parts_.file.id()));
  }
  PENSTOCK_CHECK_OK(check_place());
  PENSTOCK_CHECK_OK(write_manifests(record.step, bytes.value()));

  const std::optional<std::uint64_t> previous =
      has_commit_ ? std::optional(record_.step) : std::nullopt;
  record_ = record;
  entries_.assign(entries.begin(), entries.end());
  has_commit_ = true;
  remove_old_manifests(record.step, previous);
  return ok();
}

/// Manifests are written by name, so the names must still be this store's: its directory may have
/// been moved, and another store put in its place.
Status StoreImpl::check_place() const {
  const std::string path = data_path(parts_.directory);
  auto named = parts_.storage.is_named(parts_.file.id(), path);
  if (!named) return std::move(named).error();
  if (named.value()) return ok();
  return make_error(Errc::kState,
                    fmt::format("{} is no longer the file of this store: it or its directory was "
                                "moved or exchanged during the run; move it back and open it again",
                                path));
}

Status StoreImpl::write_manifests(std::uint64_t step, std::span<const std::byte> bytes) {
  Storage& storage = parts_.storage;
  const auto path = [&](char copy) { return parts_.directory + "/" + manifest_name(step, copy); };
  for (const char copy : {'a', 'b'}) {
    const std::string temporary = path(copy) + ".tmp";
    PENSTOCK_CHECK_OK(storage.write_file(temporary, bytes));
    PENSTOCK_CHECK_OK(storage.sync_file(temporary));
  }
  for (const char copy : {'a', 'b'}) {
    PENSTOCK_CHECK_OK(storage.rename(path(copy) + ".tmp", path(copy)));
  }
  std::erase_if(names_, [&](const ManifestName& name) { return name.step == step; });
  names_.push_back({step, 'a', false});
  names_.push_back({step, 'b', false});
  if (parts_.options.faults.skip_directory_sync) return ok();
  return storage.sync_directory(parts_.directory);
}

/// The commit stands whatever happens here, so a name that cannot be removed is only tried again at
/// the next commit.
void StoreImpl::remove_old_manifests(std::uint64_t newest, std::optional<std::uint64_t> previous) {
  std::erase_if(names_, [&](const ManifestName& name) {
    const bool kept = name.step == newest || (previous && name.step == *previous);
    if (kept && !name.temporary) return false;
    const std::string path = parts_.directory + "/" + manifest_name(name.step, name.copy) +
                             (name.temporary ? ".tmp" : "");
    return parts_.storage.remove(path).ok();
  });
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
  const std::string path = data_path(parts_.directory);
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
    error = make_error(Errc::kCorrupt,
                       fmt::format("{} {} in {} at offset {} fails its checksum after {} "
                                   "reads; the drive lost or changed it, so restore a checkpoint",
                                   what, place, path, offset, kReadAttempts));
  }
  return error;
}

}  // namespace penstock
