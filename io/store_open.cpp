// Opening: the newest commit that counts, and the checkpoints.
//
// Rules
//   1. The newest manifest by name wins if either copy is right.
//   2. If neither is, an older one is used only when every byte it names is right: its slots may
//      have been written again since. Otherwise the store is corrupt.
//   3. No manifest at all: creation did not finish.
//   4. One checkpoint more than there is room for is what an exchange leaves that was cut short:
//      the oldest rotating one goes before anything is written.

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "io/store_load.hpp"
#include "io/store_origin.hpp"
#include "io/store_owner.hpp"
#include "io/store_pins.hpp"
#include "io/store_verify.hpp"

namespace penstock {
namespace {

constexpr int kReaderAttempts = 5;  // a reader without a lock races with a running owner's commits

/// Rule 2: reads everything the candidate names, through descriptors of its own.
Status verify_candidate(Storage& storage, const OpenedFiles& opened, const Candidate& candidate) {
  OpenedFiles again{opened.directories, {}, opened.headers, {}, {}, opened.ranks, false};
  for (std::size_t i = 0; i < opened.files.size(); ++i) {
    OpenOptions how;
    how.write = false;
    auto id = storage.open(data_path(opened.directories, i), how);
    if (!id) return std::move(id).error();
    again.files.emplace_back(storage, id.value());
  }
  auto store = make_store(storage, std::move(again), candidate, {}, {}, false);
  auto bad = verify_store(*store);
  if (!bad) return std::move(bad).error();
  for (const BadTile& tile : bad.value()) {
    if (tile.kind == SectionFaultKind::kPadding) continue;
    return make_error(Errc::kCorrupt, tile.message);
  }
  return ok();
}

Result<Candidate> choose_commit(Storage& storage, const OpenedFiles& opened,
                                const ProtocolFaults& faults, std::string& note) {
  std::map<std::uint64_t, std::vector<char>, std::greater<>> commits;
  for (const ManifestName& name : opened.names) {
    if (!name.temporary && name.pin.empty()) commits[name.sequence].push_back(name.copy);
  }
  if (faults.prefer_stale_manifest && commits.size() > 1) commits.erase(commits.begin());
  std::string reasons;
  for (const auto& [sequence, copies] : commits) {
    auto candidate = load_copies(storage, opened, {"", sequence, 'a', false}, copies, reasons);
    if (!candidate && candidate.error().code != Errc::kCorrupt) {
      return std::move(candidate).error();
    }
    if (!candidate) {
      add_note(reasons, fmt::format("no manifest of commit {} is usable: {}", sequence,
                                    candidate.error().message));
      continue;
    }
    const std::uint64_t step = candidate.value().manifest.record.step;
    if (sequence != commits.begin()->first) {
      if (Status whole = verify_candidate(storage, opened, candidate.value()); !whole) {
        add_note(reasons,
                 fmt::format("step {} is no longer whole: {}", step, whole.error().message));
        continue;
      }
      add_note(reasons,
               fmt::format("step {} was used instead, all its blocks were verified", step));
    }
    if (!reasons.empty()) add_note(note, reasons);
    return candidate;
  }
  const std::vector<std::string> names = pin_names(opened);
  return make_error(
      Errc::kCorrupt,
      names.empty()
          ? reasons + "; use a copy of the store, for it has no checkpoint"
          : fmt::format("{}; go back to a checkpoint (penstock checkpoint restore {} "
                        "--name NAME): {}",
                        reasons, fmt::join(opened.directories.all(), " "), fmt::join(names, ", ")));
}

/// The commit that the ranks agreed on.
Result<Candidate> choose_agreed(Storage& storage, const OpenedFiles& opened, std::string& note) {
  const std::uint64_t sequence = *opened.ranks.sequence;
  if (opened.headers[0].uuid != opened.ranks.uuid) {
    return make_error(Errc::kState,
                      fmt::format("{} does not hold the store of rank {} of this run; "
                                  "name the directories in the order of the ranks",
                                  opened.directories.text(), opened.ranks.rank));
  }
  std::vector<char> copies;
  for (const ManifestName& name : opened.names) {
    if (!name.temporary && name.pin.empty() && name.sequence == sequence) {
      copies.push_back(name.copy);
    }
  }
  if (copies.empty()) {
    return make_error(Errc::kState,
                      fmt::format("rank {} has no commit {} in {}, which rank 0 says all have; the "
                                  "directories are of another run",
                                  opened.ranks.rank, sequence, opened.directories.text()));
  }
  auto candidate = load_copies(storage, opened, {"", sequence, 'a', false}, copies, note);
  if (!candidate) return candidate;
  if (opened.ranks.verify) PENSTOCK_CHECK_OK(verify_candidate(storage, opened, candidate.value()));
  return candidate;
}

/// Takes the manifests away that are newer than what the ranks agreed on, so that the next commit
/// has the same number on all of them.
Status discard_newer(Storage& storage, OpenedFiles& opened) {
  if (!opened.ranks.sequence) return ok();
  Status done = ok();
  const std::size_t removed = std::erase_if(opened.names, [&](const ManifestName& name) {
    const bool newer = name.pin.empty() && name.sequence > *opened.ranks.sequence;
    if (!newer || !done) return newer;
    const std::string path = manifest_path(opened.directories, name);
    done = require_ours(storage, path);  // the next commit will have this name
    if (done) done = storage.remove(path);
    return newer;
  });
  PENSTOCK_CHECK_OK(std::move(done));
  if (removed == 0) return ok();
  for (const char copy : {'a', 'b'}) {
    PENSTOCK_CHECK_OK(storage.sync_directory(directory_of(opened.directories, copy)));
  }
  return ok();
}

/// The state that options.pin names, or the newest commit.
Result<Candidate> choose_state(Storage& storage, const OpenedFiles& opened,
                               const StoreOptions& options, std::string& note) {
  if (options.pin.empty() && options.ranks.sequence) return choose_agreed(storage, opened, note);
  if (options.pin.empty()) return choose_commit(storage, opened, options.faults, note);
  const std::vector<char> copies = copies_of(opened, options.pin);
  if (copies.empty()) {
    return no_checkpoint(options.pin, opened.directories, pin_names(opened));
  }
  return load_copies(storage, opened, {options.pin, 0, 'a', false}, copies, note);
}

Result<std::unique_ptr<StoreImpl>> open_once(Storage& storage, const StoreDirectories& directories,
                                             const StoreOptions& options, bool writable) {
  auto files = open_data_files(storage, directories, options, writable);
  if (!files) return std::move(files).error();
  OpenedFiles& opened = files.value();
  std::string note = std::move(opened.note);
  auto chosen = choose_state(storage, opened, options, note);
  if (!chosen) return std::move(chosen).error();
  auto pins = load_pins(storage, opened, note);
  if (!pins) return std::move(pins).error();
  find_lifetimes(storage, opened, chosen.value(), !options.pin.empty());
  if (writable) {
    PENSTOCK_CHECK_OK(discard_newer(storage, opened));
    for (const std::string& directory : opened.directories.all()) {
      PENSTOCK_CHECK_OK(write_owner(storage, directory, this_process()));
    }
  }
  auto store = make_store(storage, std::move(opened), std::move(chosen).value(), std::move(note),
                          options, writable);
  store->adopt_pins(std::move(pins).value());
  if (writable) PENSTOCK_CHECK_OK(store->reserve_manifests());
  return store;
}

}  // namespace

Result<std::unique_ptr<StoreImpl>> open_for_tools(Storage& storage,
                                                  const StoreDirectories& directories,
                                                  const StoreOptions& options, bool writable) {
  if (options.scratch) {
    return make_error(Errc::kArgument,
                      fmt::format("the store in {} cannot be opened as a scratch store, which ends "
                                  "with its process; create a new one",
                                  directories.text()));
  }
  if (writable && !options.pin.empty()) {
    return make_error(Errc::kArgument,
                      fmt::format("checkpoint \"{}\" in {} is opened for reading only; restore it "
                                  "to go on from it",
                                  options.pin, directories.text()));
  }
  auto store = open_once(storage, directories, options, writable);
  // Between a reader's listing and its reading, a running owner may have removed a manifest.
  for (int attempt = 1; attempt < kReaderAttempts && !store && !writable; ++attempt) {
    if (store.error().code == Errc::kUnsupported) break;
    store = open_once(storage, directories, options, writable);
  }
  return store;
}

Result<bool> holds_commit(Storage& storage, const StoreDirectories& directories) {
  for (const std::string& directory : directories.all()) {
    PENSTOCK_TAKE(exists, storage.exists(directory));
    if (!exists) continue;
    PENSTOCK_TAKE(names, list_manifests(storage, StoreDirectories(directory)));
    if (any_commit(names)) return true;
  }
  return false;
}

Result<std::unique_ptr<Store>> open_store(Storage& storage, const StoreDirectories& directories,
                                          const StoreOptions& options, bool writable) {
  auto store = open_for_tools(storage, directories, options, writable);
  if (!store) return std::move(store).error();
  if (writable) PENSTOCK_CHECK_OK(finish_exchange(*store.value()));
  return std::unique_ptr<Store>(std::move(store).value());
}

}  // namespace penstock
