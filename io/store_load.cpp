#include "io/store_load.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace penstock {
namespace {

Error misfit(const std::string& path, std::string_view what) {
  return make_error(Errc::kCorrupt, fmt::format("{} {}", path, what));
}

Status check_entries(const Manifest& manifest, const StoreLayout& layout, const std::string& path) {
  std::vector<bool> used(layout.slot_count, false);
  for (std::size_t i = 0; i < manifest.table.size(); ++i) {
    const ManifestEntry& line = manifest.table[i];
    const SlotEntry& entry = line.entry;
    if (entry.slot >= used.size() || used[entry.slot] ||
        line.file_index != layout.deal.place(entry.slot).file ||
        entry.written != written_mask(manifest.geometry.blocks[i])) {
      return misfit(path, fmt::format("has an impossible entry for block {}: file {}, slot {} of "
                                      "{}, sections {:#x}",
                                      i, line.file_index, entry.slot, used.size(), entry.written));
    }
    used[entry.slot] = true;
  }
  return ok();
}

/// Whether the headers are those of a store with this layout.
Status check_headers(const Candidate& candidate, const OpenedFiles& opened,
                     const std::string& path) {
  for (std::size_t i = 0; i < opened.headers.size(); ++i) {
    const DataHeader& header = opened.headers[i];
    DataHeader expected = make_header(header.uuid, candidate.layout, i, header.file_bytes,
                                      candidate.manifest.geometry.layout_hash);
    expected.minor = header.minor;
    expected.compatible_bits = header.compatible_bits;
    if (expected != header || candidate.layout.files[i].file_bytes > header.file_bytes) {
      return misfit(path,
                    fmt::format("describes another layout than the header of {}", data_name(i)));
    }
  }
  return ok();
}

std::optional<LifetimeBytes> lifetime_in(std::span<const std::byte> file,
                                         const OpenedFiles& opened) {
  auto lifetime = find_lifetime(file);
  if (lifetime && lifetime->written.size() != opened.files.size()) lifetime.reset();
  return lifetime;
}

Result<Candidate> load_manifest(Storage& storage, const OpenedFiles& opened,
                                const ManifestName& name) {
  const std::string path = manifest_path(opened.directories, name);
  auto bytes = with_re_reads([&] { return storage.read_file(path, kMaxManifestBytes); });
  if (!bytes) return std::move(bytes).error();
  auto decoded = decode_manifest(manifest_in(bytes.value()), path);
  if (!decoded) return std::move(decoded).error();
  Candidate candidate{std::move(decoded).value(), {}, lifetime_in(bytes.value(), opened)};
  const Manifest& manifest = candidate.manifest;
  if (manifest.uuid != opened.headers[0].uuid) return misfit(path, "belongs to another store");
  if (name.pin.empty() && manifest.sequence != name.sequence) {
    return misfit(path, fmt::format("is the manifest of commit {}", manifest.sequence));
  }
  const bool any_rank = !opened.writable && opened.ranks.count == 1;  // tools look at each alone
  if (!any_rank &&
      (manifest.rank != opened.ranks.rank || manifest.rank_count != opened.ranks.count)) {
    return misfit(path, fmt::format("is of rank {} of {}, not {} of {}", manifest.rank,
                                    manifest.rank_count, opened.ranks.rank, opened.ranks.count));
  }
  if (manifest.geometry.drives.size() != opened.files.size()) {
    return misfit(path, fmt::format("is of a store with {} data files, there are {}",
                                    manifest.geometry.drives.size(), opened.files.size()));
  }
  auto layout = plan_layout(manifest.geometry, false);
  if (!layout) return misfit(path, "is malformed: " + layout.error().message);
  candidate.layout = std::move(layout).value();
  PENSTOCK_CHECK_OK(check_headers(candidate, opened, path));
  PENSTOCK_CHECK_OK(check_entries(manifest, candidate.layout, path));
  return candidate;
}

}  // namespace

Result<Candidate> load_copies(Storage& storage, const OpenedFiles& opened, const ManifestName& name,
                              const std::vector<char>& copies, std::string& note) {
  std::string reasons;
  Errc code = Errc::kCorrupt;
  bool all_gone = true;
  int sys_errno = 0;
  for (const char copy : copies) {
    ManifestName which = name;
    which.copy = copy;
    auto candidate = load_manifest(storage, opened, which);
    if (candidate) {
      if (!reasons.empty()) add_note(note, reasons + ", the other copy was used");
      return candidate;
    }
    if (candidate.error().code == Errc::kUnsupported) return candidate;
    const bool gone = candidate.error().sys_errno == ENOENT;
    all_gone = all_gone && gone;
    if (candidate.error().code == Errc::kIo && !gone) {
      code = Errc::kIo;
      sys_errno = candidate.error().sys_errno;
    }
    add_note(reasons, candidate.error().message);
  }
  return make_error(code, reasons, all_gone ? ENOENT : sys_errno);
}

std::vector<char> copies_of(const OpenedFiles& opened, const std::string& pin) {
  std::vector<char> copies;
  for (const ManifestName& name : opened.names) {
    if (name.pin == pin && !name.temporary) copies.push_back(name.copy);
  }
  return copies;
}

std::vector<std::string> pin_names(const OpenedFiles& opened) {
  std::set<std::string> names;
  for (const ManifestName& name : opened.names) {
    if (!name.pin.empty() && !name.temporary) names.insert(name.pin);
  }
  return {names.begin(), names.end()};
}

Pin pin_of(const std::string& name, const Manifest& manifest) {
  Pin pin{name, manifest.sequence, manifest.record.step, manifest.record.updates, {}};
  for (const ManifestEntry& line : manifest.table) pin.slots.push_back(line.entry.slot);
  return pin;
}

Result<std::vector<Pin>> load_pins(Storage& storage, const OpenedFiles& opened, std::string& note) {
  std::vector<Pin> pins;
  for (const std::string& name : pin_names(opened)) {
    auto candidate =
        load_copies(storage, opened, {name, 0, 'a', false}, copies_of(opened, name), note);
    if (!candidate && candidate.error().sys_errno == ENOENT) continue;  // dropped while we read
    if (!candidate && candidate.error().code != Errc::kCorrupt) {
      return std::move(candidate).error().in(fmt::format("checkpoint \"{}\"", name));
    }
    if (!candidate) {
      add_note(note, fmt::format("checkpoint \"{}\" is lost: {}", name, candidate.error().message));
      continue;
    }
    pins.push_back(pin_of(name, candidate.value().manifest));
  }
  std::stable_sort(pins.begin(), pins.end(),
                   [](const Pin& x, const Pin& y) { return x.sequence < y.sequence; });
  return pins;
}

void find_lifetimes(Storage& storage, OpenedFiles& opened, const Candidate& chosen,
                    bool is_checkpoint) {
  if (chosen.lifetime) opened.lifetime.know(*chosen.lifetime);
  // Counts rise from commit to commit, so a record of the newest one tells all.
  const bool look_at_all = is_checkpoint || !chosen.lifetime;
  const std::uint64_t sequence = chosen.manifest.sequence;
  // This commit and the newer ones, whether a copy has a record.
  std::map<std::uint64_t, bool> counted{{sequence, chosen.lifetime.has_value()}};
  for (const ManifestName& name : opened.names) {
    const bool newer = name.pin.empty() && name.sequence > sequence;
    if (name.temporary || !(newer || look_at_all)) continue;
    const std::string path = manifest_path(opened.directories, name);
    const auto bytes = storage.read_file(path, kMaxManifestBytes);
    if (!bytes) continue;
    const auto lifetime = lifetime_in(bytes.value(), opened);
    if (lifetime) opened.lifetime.know(*lifetime);  // a whole one tells, whatever is torn before it
    // What is torn, or somebody else's, proves no commit.
    const auto manifest = decode_manifest(manifest_in(bytes.value()), path);
    if (!manifest || manifest.value().uuid != opened.headers[0].uuid) continue;
    if (manifest.value().sequence < sequence) continue;
    bool& any = counted[manifest.value().sequence];
    any = any || lifetime.has_value();
  }
  const bool all_counted =
      std::all_of(counted.begin(), counted.end(), [](const auto& commit) { return commit.second; });
  if (!all_counted) opened.lifetime.know_gap();
}

std::unique_ptr<StoreImpl> make_store(Storage& storage, OpenedFiles opened, Candidate candidate,
                                      std::string note, const StoreOptions& options,
                                      bool writable) {
  std::vector<SlotEntry> entries;
  entries.reserve(candidate.manifest.table.size());
  for (const ManifestEntry& line : candidate.manifest.table) entries.push_back(line.entry);
  std::vector<std::uint64_t> file_bytes;
  for (const DataHeader& header : opened.headers) file_bytes.push_back(header.file_bytes);
  auto store = std::make_unique<StoreImpl>(
      StoreImpl::Parts{storage, std::move(opened.directories), std::move(opened.files),
                       candidate.manifest.uuid, candidate.manifest.sums_uuid,
                       std::move(candidate.manifest.geometry), std::move(candidate.layout),
                       std::move(file_bytes), options, writable, std::move(opened.lifetime)});
  store->adopt_names(std::move(opened.names));
  store->adopt(std::move(candidate.manifest.record), candidate.manifest.sequence,
               std::move(entries), std::move(note));
  return store;
}

}  // namespace penstock
