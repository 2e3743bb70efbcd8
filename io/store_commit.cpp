// What changes a store for good: commits, checkpoints kept and dropped.

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <iterator>
#include <set>

#include "io/store_impl.hpp"
#include "io/store_origin.hpp"

namespace penstock {

Status StoreImpl::check_usable(const std::string& what) const {
  if (failed_) {
    return make_error(
        failed_->code,
        fmt::format("{} in {}: an earlier commit failed ({}); open the store again to go on from "
                    "step {}",
                    what, parts_.directories.text(), failed_->message, record_.step),
        failed_->sys_errno);
  }
  if (parts_.options.scratch) {
    return make_error(Errc::kState, "a scratch store has no commits; create one without scratch");
  }
  if (!parts_.writable) {
    return make_error(Errc::kState, "the store was opened for reading; open it for writing");
  }
  return ok();
}

/// Whatever failed on the drive: nothing is written from now on.
Error StoreImpl::final_error(Error error, const std::string& what) {
  failed_ = std::move(error);
  return Error(*failed_).in(fmt::format("{} in {}", what, parts_.directories.text()));
}

Status StoreImpl::check_commit(const CommitRecord& record,
                               std::span<const SlotEntry> entries) const {
  const StoreGeometry& geometry = parts_.geometry;
  if (prepared_) {
    return make_error(Errc::kState, "the commit before is not settled; settle it first");
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
  PENSTOCK_CHECK_OK(prepare(record, entries));
  return settle();
}

Status StoreImpl::prepare(const CommitRecord& record, std::span<const SlotEntry> entries) {
  const std::string what = fmt::format("commit of step {}", record.step);
  if (failed_) return check_usable(what);
  Status done = check_usable(what);
  if (done) done = check_commit(record, entries);
  if (done) done = write_manifest(record, entries);
  if (done) return done;
  return final_error(std::move(done).error(), what);
}

Status StoreImpl::settle() {
  if (failed_) return check_usable("commit");
  if (!prepared_)
    return make_error(Errc::kState, "there is no commit to settle; prepare one first");
  take_prepared();
  return ok();
}

Result<std::span<const std::byte>> StoreImpl::encode(const CommitRecord& record,
                                                     std::span<const SlotEntry> entries,
                                                     std::uint64_t sequence) {
  Manifest head;
  head.uuid = parts_.uuid;
  head.sums_uuid = parts_.sums_uuid;
  head.sequence = sequence;
  head.rank = parts_.options.ranks.rank;
  head.rank_count = parts_.options.ranks.count;
  head.record = record;
  std::optional<LifetimeBytes> lifetime = parts_.lifetime.read();
  if (lifetime) {  // the manifest's own copies, which are about to be written, are in the count
    std::vector<std::uint64_t>& written = lifetime->written;
    const std::uint64_t bytes =
        manifest_bytes(parts_.geometry, record.blob.size()) + lifetime_record_bytes(written.size());
    written.front() += bytes;
    written[written.size() > 1 ? 1 : 0] += bytes;
  }
  return encoder_.encode(head, entries, lifetime);
}

Status StoreImpl::sync_files() {
  if (parts_.options.faults.skip_data_flush) return ok();
  std::vector<FileId> ids;
  for (const OpenFile& file : parts_.files) ids.push_back(file.id());
  return parts_.storage.sync_all(ids);
}

/// Manifests are written by name, so the names must still be this store's: its directory may have
/// been moved, and another store put in its place.
Status StoreImpl::check_place() const {
  for (std::size_t i = 0; i < parts_.files.size(); ++i) {
    const std::string path = data_path(parts_.directories, i);
    auto named = parts_.storage.is_named(parts_.files[i].id(), path);
    if (!named) return std::move(named).error();
    if (named.value()) continue;
    return make_error(
        Errc::kState,
        fmt::format("{} is no longer the file of this store: it or its directory was moved or "
                    "exchanged during the run; move it back and open it again",
                    path));
  }
  return ok();
}

Status StoreImpl::write_commit(const CommitRecord& record, std::span<const SlotEntry> entries) {
  PENSTOCK_CHECK_OK(write_manifest(record, entries));
  take_prepared();
  return ok();
}

Status StoreImpl::write_manifest(const CommitRecord& record, std::span<const SlotEntry> entries) {
  auto bytes = encode(record, entries, sequence_);
  if (!bytes) return std::move(bytes).error();
  PENSTOCK_CHECK_OK(sync_files());
  PENSTOCK_CHECK_OK(check_place());
  PENSTOCK_CHECK_OK(write_copies({"", sequence_, 'a', false}, bytes.value()));
  if (!parts_.options.faults.skip_directory_sync) PENSTOCK_CHECK_OK(sync_directories());
  prepared_ = Prepared{record, sequence_++};
  prepared_entries_.assign(entries.begin(), entries.end());
  return ok();
}

void StoreImpl::take_prepared() {
  const std::optional<std::uint64_t> previous =
      has_commit_ ? std::optional(committed_sequence_) : std::nullopt;
  record_ = std::move(prepared_->record);
  std::swap(entries_, prepared_entries_);
  committed_sequence_ = prepared_->sequence;
  prepared_.reset();
  has_commit_ = true;
  remove_old_manifests(committed_sequence_, previous);
}

std::size_t most_manifests(const StoreGeometry& geometry) {
  constexpr std::size_t kCommits = 3;
  return kCommits + (geometry.pins > 0 ? geometry.pins + 1 : 0);
}

std::uint64_t longest_manifest(const StoreGeometry& geometry, std::uint64_t blob_bytes) {
  return round_up(
      manifest_bytes(geometry, blob_bytes) + lifetime_record_bytes(geometry.drives.size()),
      kPageBytes);
}

/// Files that others gave the names of manifests stay as they are.
Status StoreImpl::forget_foreign() {
  Status looked = ok();
  std::erase_if(names_, [&](const ManifestName& name) {
    if (!looked) return false;
    auto ours = is_ours(parts_.storage, manifest_path(parts_.directories, name));
    if (ours) return !ours.value();
    // Where the drive does not give it back, its name says whose it is.
    if (ours.error().sys_errno != EIO) looked = std::move(ours).error();
    return false;
  });
  return looked;
}

/// A run that was killed right after a commit had not yet given up the one before the last two. The
/// last commit is made durable before its file is written over: reserve_manifests() ends with that.
void StoreImpl::give_superseded() {
  std::set<std::uint64_t, std::greater<>> commits;
  for (const ManifestName& name : names_) {
    if (name.pin.empty() && !name.temporary) commits.insert(name.sequence);
  }
  if (commits.size() < 3) return;
  const std::uint64_t oldest_kept = std::min(*std::next(commits.begin()), committed_sequence_);
  std::erase_if(names_, [&](const ManifestName& name) {
    if (!name.pin.empty() || name.temporary || name.sequence >= oldest_kept) return false;
    return spares_.give(name.copy, manifest_path(parts_.directories, name)).ok();
  });
}

Status StoreImpl::reserve_manifests() {
  for (const ManifestName& name : names_) {
    PENSTOCK_CHECK_OK(check_numbers_left(manifest_path(parts_.directories, name), name.sequence));
  }
  PENSTOCK_CHECK_OK(forget_foreign());
  // A longer blob takes its space with the first commits, and then has it.
  constexpr std::uint64_t kUsualBlobBytes = std::uint64_t{64} << 10;
  const std::size_t most = parts_.options.copy.is_copy ? 0 : most_manifests(parts_.geometry);
  PENSTOCK_CHECK_OK(spares_.find(most));
  // First what a killed run left, which needs no space.
  Status kept = ok();
  std::erase_if(names_, [&](const ManifestName& name) {
    if (!name.temporary || !kept) return false;
    kept = spares_.give(name.copy, manifest_path(parts_.directories, name));
    return kept.ok();
  });
  PENSTOCK_CHECK_OK(std::move(kept));
  give_superseded();
  const std::uint64_t each = longest_manifest(parts_.geometry, kUsualBlobBytes);
  for (const char copy : {'a', 'b'}) {
    const auto in_use = static_cast<std::size_t>(std::count_if(
        names_.begin(), names_.end(), [&](const ManifestName& name) { return name.copy == copy; }));
    const std::size_t fewest = most > 0 ? 1 : 0;  // for the commit that makes room for others
    PENSTOCK_CHECK_OK(spares_.fill(copy, std::max(fewest, most - std::min(most, in_use)), each));
    if (most > 0) PENSTOCK_CHECK_OK(spares_.hold_names(copy));
  }
  return sync_directories();
}

/// Both copies, whole or not at all. The drive writes the one while the other is handed over.
Status StoreImpl::write_copies(ManifestName name, std::span<const std::byte> bytes) {
  const auto path = [&](char copy) {
    name.copy = copy;
    return manifest_path(parts_.directories, name);
  };
  for (const char copy : {'a', 'b'}) PENSTOCK_CHECK_OK(require_ours(parts_.storage, path(copy)));
  std::vector<std::string> written;
  for (const char copy : {'a', 'b'}) {
    PENSTOCK_TAKE(file, spares_.write(copy, bytes));
    written.push_back(std::move(file));
  }
  for (const std::string& file : written) PENSTOCK_CHECK_OK(parts_.storage.sync_file(file));
  PENSTOCK_CHECK_OK(parts_.storage.rename(written[0], path('a')));
  PENSTOCK_CHECK_OK(parts_.storage.rename(written[1], path('b')));
  std::erase_if(names_, [&](const ManifestName& other) {
    return other.pin == name.pin && other.sequence == name.sequence;
  });
  for (const char copy : {'a', 'b'}) names_.push_back({name.pin, name.sequence, copy, false});
  return ok();
}

Status StoreImpl::sync_directories() {
  const std::string &first = directory_of(parts_.directories, 'a'),
                    &second = directory_of(parts_.directories, 'b');
  PENSTOCK_CHECK_OK(parts_.storage.sync_directory(first));
  return first == second ? ok() : parts_.storage.sync_directory(second);
}

/// The commit stands whatever happens here, so a name that cannot be removed is only tried again at
/// the next commit.
void StoreImpl::remove_old_manifests(std::uint64_t newest, std::optional<std::uint64_t> previous) {
  std::erase_if(names_, [&](const ManifestName& name) {
    const bool kept =
        !name.pin.empty() || name.sequence == newest || (previous && name.sequence == *previous);
    if (kept && !name.temporary) return false;
    return spares_.give(name.copy, manifest_path(parts_.directories, name)).ok();
  });
}

// --- checkpoints -----------------------------------------------------------------------------

Status StoreImpl::check_room(const std::string& name, bool exchange) const {
  PENSTOCK_CHECK_OK(check_pin_name(name));
  if (!has_commit_) {
    return make_error(Errc::kState, "nothing is committed yet; commit a step first");
  }
  const bool taken =
      std::any_of(pins_.begin(), pins_.end(), [&](const Pin& pin) { return pin.name == name; });
  if (taken) {
    return make_error(Errc::kState,
                      "there is one of that name; drop it first, or use another name");
  }
  const std::size_t room = parts_.geometry.pins;
  if (pins_.size() < room || (exchange && room > 0 && pins_.size() == room)) return ok();
  if (room == 0) {
    return make_error(Errc::kNoSpace,
                      "the store was made without room for checkpoints; a copy can have it "
                      "(penstock checkpoint copy --keep N), or a new store (train --keep N)");
  }
  std::string names;
  for (const Pin& pin : pins_) names += (names.empty() ? "" : ", ") + pin.name;
  return make_error(
      Errc::kNoSpace,
      fmt::format(
          "the store has room for {} checkpoints and holds {}; drop one (penstock checkpoint "
          "drop), or copy the store with more room (penstock checkpoint copy --keep N)",
          room, names));
}

Status StoreImpl::check_pin(const std::string& name, bool exchange) const {
  const std::string what = fmt::format("checkpoint \"{}\"", name);
  PENSTOCK_CHECK_OK(check_usable(what));
  Status may = check_room(name, exchange);
  if (may) return may;
  return std::move(may).error().in(fmt::format("{} in {}", what, parts_.directories.text()));
}

Result<PinChange> StoreImpl::pin(const std::string& name, bool exchange) {
  PENSTOCK_CHECK_OK(check_pin(name, exchange));
  for (const char copy : {'a', 'b'}) {  // nothing has changed yet
    PENSTOCK_CHECK_OK(
        require_ours(parts_.storage, manifest_path(parts_.directories, {name, 0, copy, false})));
  }
  if (Status done = write_pin(name); !done) {
    return final_error(std::move(done).error(), fmt::format("checkpoint \"{}\"", name));
  }
  return PinChange{{pins_.back().slots}, {}};
}

Status StoreImpl::write_pin(const std::string& name) {
  auto bytes = encode(record_, entries_, committed_sequence_);
  if (!bytes) return std::move(bytes).error();
  PENSTOCK_CHECK_OK(check_place());
  PENSTOCK_CHECK_OK(write_copies({name, 0, 'a', false}, bytes.value()));
  PENSTOCK_CHECK_OK(sync_directories());
  Pin pin{name, committed_sequence_, record_.step, record_.updates, {}};
  for (const SlotEntry& entry : entries_) pin.slots.push_back(entry.slot);
  pins_.push_back(std::move(pin));
  return ok();
}

Result<PinChange> StoreImpl::drop(const std::string& name) {
  const std::string what = fmt::format("drop of checkpoint \"{}\"", name);
  PENSTOCK_CHECK_OK(check_usable(what));
  const auto found =
      std::find_if(pins_.begin(), pins_.end(), [&](const Pin& pin) { return pin.name == name; });
  if (found == pins_.end()) {
    std::vector<std::string> names;
    for (const Pin& pin : pins_) names.push_back(pin.name);
    return no_checkpoint(name, parts_.directories, names);
  }
  PinChange change;
  change.dropped.push_back(found->slots);
  if (Status done = remove_pin(name); !done) return final_error(std::move(done).error(), what);
  return change;
}

Status StoreImpl::remove_pin(const std::string& name) {
  PENSTOCK_CHECK_OK(check_place());
  Status done = ok();
  std::erase_if(names_, [&](const ManifestName& file) {
    if (file.pin != name || file.temporary || !done) return false;
    done = spares_.give(file.copy, manifest_path(parts_.directories, file));
    return done.ok();
  });
  PENSTOCK_CHECK_OK(std::move(done));
  // Before this a power loss may bring it back, so its slots must be as they were.
  if (!parts_.options.faults.drop_early) PENSTOCK_CHECK_OK(sync_directories());
  std::erase_if(pins_, [&](const Pin& pin) { return pin.name == name; });
  return ok();
}

}  // namespace penstock
