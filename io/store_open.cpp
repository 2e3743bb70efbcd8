// Opening: lock, headers, the newest commit that counts.
//
// Rules
//   1. A header copy counts when its hash is right; if both do, they must be equal.
//   2. The newest manifest by name wins if either copy is right.
//   3. If neither is, an older one is used only when every byte it names is right: its slots may
//      have been written again since. Otherwise the store is corrupt.
//   4. No manifest at all: creation did not finish.

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <map>

#include "io/page_buffer.hpp"
#include "io/store_impl.hpp"
#include "io/store_owner.hpp"
#include "io/store_verify.hpp"

namespace penstock {
namespace {

constexpr int kReadAttempts = 3;    // the first and two re-reads
constexpr int kReaderAttempts = 5;  // a reader without a lock races with a running owner's commits

Error unfinished(const std::string& directory) {
  return make_error(Errc::kState, fmt::format("creation of the store in {} did not finish: it has "
                                              "no committed step; create it again",
                                              directory));
}

void add_note(std::string& note, const std::string& sentence) {
  if (!note.empty()) note += "; ";
  note += sentence;
}

/// Calls `read` until it succeeds or fails otherwise than by I/O, at most three times.
template <class Read>
auto with_re_reads(Read&& read) {
  auto result = read();
  for (int attempt = 1; attempt < kReadAttempts && !result; ++attempt) {
    if (result.error().code != Errc::kIo || result.error().sys_errno == ENOENT) break;
    result = read();
  }
  return result;
}

struct FoundHeader {
  DataHeader header;
  std::string note;
};

Result<FoundHeader> choose_header(std::span<const std::byte> pages, const std::string& path) {
  auto first = decode_header(pages.first(kHeaderBytes), path + " header at 0");
  auto second = decode_header(pages.subspan(kHeaderBytes, kHeaderBytes), path + " header at 4096");
  for (auto* copy : {&first, &second}) {
    if (!*copy && copy->error().code == Errc::kUnsupported) return std::move(*copy).error();
  }
  if (!first && !second) {
    return make_error(Errc::kCorrupt, fmt::format("{} and {}; restore a checkpoint",
                                                  first.error().message, second.error().message));
  }
  if (first && second && first.value() != second.value()) {
    return make_error(Errc::kCorrupt,
                      fmt::format("the two headers of {} are whole but differ; the file was put "
                                  "together from two stores",
                                  path));
  }
  FoundHeader found{first ? first.value() : second.value(), {}};
  if (!first) add_note(found.note, first.error().message + ", the other copy was used");
  if (!second) add_note(found.note, second.error().message + ", the other copy was used");
  return found;
}

/// Whether this file may be a creation that was cut off before its headers were whole.
bool is_unfinished(Storage& storage, const std::string& directory,
                   std::span<const std::byte> pages) {
  if (has_data_magic(pages)) return true;
  if (pages.size() > kHeaderBytes && has_data_magic(pages.subspan(kHeaderBytes))) return true;
  return read_owner(storage, directory).ok();
}

Result<FoundHeader> read_header(Storage& storage, FileId file, const std::string& directory,
                                bool any_manifest) {
  const std::string path = data_path(directory);
  auto bytes = storage.size_bytes(file);
  if (!bytes) return std::move(bytes).error();
  PageBuffer pages(kHeaderBytes * kHeaderCopies);
  if (pages.empty()) return make_error(Errc::kNoMemory, "no memory for two pages");
  const bool too_short = bytes.value() < kHeaderBytes * kHeaderCopies;
  if (!too_short) {
    PENSTOCK_CHECK_OK(with_re_reads([&] { return storage.read_at(file, 0, pages.span()); }));
  }
  if (too_short && any_manifest) {
    return make_error(Errc::kCorrupt, fmt::format("{} was cut to {} bytes; restore a checkpoint",
                                                  path, bytes.value()));
  }
  auto found = choose_header(pages.span(), path);
  if (!found) {
    if (any_manifest || found.error().code == Errc::kUnsupported) return found;
    if (is_unfinished(storage, directory, pages.span())) return unfinished(directory);
    return make_error(Errc::kState,
                      fmt::format("{} is not a Penstock data file; check the directory", path));
  }
  const DataHeader& header = found.value().header;
  if (header.file_count != 1 || header.file_index != 0) {
    return make_error(Errc::kUnsupported,
                      fmt::format("{} is file {} of {}; this build opens stores of one file, use a "
                                  "newer Penstock",
                                  path, header.file_index, header.file_count));
  }
  if (!any_manifest) return unfinished(directory);
  if (bytes.value() != header.file_bytes) {
    return make_error(Errc::kCorrupt,
                      fmt::format("{} was {} to {} bytes, its header says {}; restore a checkpoint",
                                  path, bytes.value() < header.file_bytes ? "cut" : "extended",
                                  bytes.value(), header.file_bytes));
  }
  return found;
}

/// A manifest that fits its file, with everything open() needs.
struct Candidate {
  Manifest manifest;
  StoreLayout layout;
};

Error misfit(const std::string& path, std::string_view what) {
  return make_error(Errc::kCorrupt, fmt::format("{} {}", path, what));
}

Status check_entries(const Manifest& manifest, const StoreLayout& layout, const std::string& path) {
  std::vector<bool> used(layout.slot_count, false);
  for (std::size_t i = 0; i < manifest.table.size(); ++i) {
    const ManifestEntry& line = manifest.table[i];
    const SlotEntry& entry = line.entry;
    if (line.file_index != 0 || entry.slot >= used.size() || used[entry.slot] ||
        entry.written != written_mask(manifest.geometry.blocks[i])) {
      return misfit(path, fmt::format("has an impossible entry for block {}: file {}, slot {} of "
                                      "{}, sections {:#x}",
                                      i, line.file_index, entry.slot, used.size(), entry.written));
    }
    used[entry.slot] = true;
  }
  return ok();
}

Result<Candidate> load_manifest(Storage& storage, const std::string& path, std::uint64_t step,
                                const DataHeader& header) {
  auto bytes = with_re_reads([&] { return storage.read_file(path, kMaxManifestBytes); });
  if (!bytes) return std::move(bytes).error();
  auto decoded = decode_manifest(bytes.value(), path);
  if (!decoded) return std::move(decoded).error();
  Candidate candidate{std::move(decoded).value(), {}};
  const Manifest& manifest = candidate.manifest;
  if (manifest.uuid != header.uuid) return misfit(path, "belongs to another store");
  if (manifest.record.step != step) {
    return misfit(path, fmt::format("is the manifest of step {}", manifest.record.step));
  }
  if (manifest.file_count != 1) return misfit(path, "names more data files than there are");
  auto layout = plan_layout(manifest.geometry, false);
  if (!layout) return misfit(path, "is malformed: " + layout.error().message);
  candidate.layout = std::move(layout).value();
  DataHeader expected =
      make_header(header.uuid, candidate.layout, header.file_bytes, manifest.geometry.layout_hash);
  expected.minor = header.minor;
  expected.compatible_bits = header.compatible_bits;
  if (expected != header || candidate.layout.file_bytes > header.file_bytes) {
    return misfit(path, "describes another layout than the header of data.0");
  }
  PENSTOCK_CHECK_OK(check_entries(manifest, candidate.layout, path));
  return candidate;
}

struct Context {
  Storage& storage;
  const std::string& directory;
  const StoreOptions& options;
  bool writable;
  DataHeader header;
};

std::unique_ptr<StoreImpl> make_store(const Context& context, OpenFile file, Candidate candidate,
                                      std::string note) {
  std::vector<SlotEntry> entries;
  entries.reserve(candidate.manifest.table.size());
  for (const ManifestEntry& line : candidate.manifest.table) entries.push_back(line.entry);
  auto store = std::make_unique<StoreImpl>(
      StoreImpl::Parts{context.storage, context.directory, std::move(file), context.header.uuid,
                       std::move(candidate.manifest.geometry), std::move(candidate.layout),
                       context.header.file_bytes, context.options, context.writable});
  store->adopt(std::move(candidate.manifest.record), std::move(entries), std::move(note));
  return store;
}

/// Rule 3: reads everything the candidate names, through a descriptor of its own.
Status verify_candidate(const Context& context, const Candidate& candidate) {
  OpenOptions how;
  how.write = false;
  auto id = context.storage.open(data_path(context.directory), how);
  if (!id) return std::move(id).error();
  auto store = make_store(context, OpenFile(context.storage, id.value()), candidate, {});
  auto bad = verify_store(*store);
  if (!bad) return std::move(bad).error();
  for (const BadTile& tile : bad.value()) {
    if (tile.kind == SectionFaultKind::kPadding) continue;
    return make_error(Errc::kCorrupt, tile.message);
  }
  return ok();
}

struct Chosen {
  Candidate candidate;
  std::string note;
};

/// Either copy of one step. A copy that the drive does not return may well be right, so kIo is not
/// taken for damage: falling back to an older step then would lose a commit.
Result<Candidate> load_step(const Context& context, std::uint64_t step,
                            const std::vector<char>& copies, std::string& note) {
  std::string reasons;
  Errc code = Errc::kCorrupt;
  for (const char copy : copies) {
    const std::string path = context.directory + "/" + manifest_name(step, copy);
    auto candidate = load_manifest(context.storage, path, step, context.header);
    if (candidate) {
      if (!reasons.empty()) add_note(note, reasons + ", the other copy was used");
      return candidate;
    }
    if (candidate.error().code == Errc::kUnsupported) return candidate;
    const bool unread = candidate.error().code == Errc::kIo;
    if (unread && candidate.error().sys_errno != ENOENT) code = Errc::kIo;
    add_note(reasons, candidate.error().message);
  }
  return make_error(code, reasons);
}

Result<Chosen> choose_commit(const Context& context, const std::vector<ManifestName>& names) {
  std::map<std::uint64_t, std::vector<char>, std::greater<>> steps;
  for (const ManifestName& name : names) {
    if (!name.temporary) steps[name.step].push_back(name.copy);
  }
  std::string note;
  for (const auto& [step, copies] : steps) {
    auto candidate = load_step(context, step, copies, note);
    if (!candidate && candidate.error().code != Errc::kCorrupt) {
      return std::move(candidate).error();
    }
    if (!candidate) {
      add_note(note, fmt::format("no manifest of step {} is usable: {}", step,
                                 candidate.error().message));
      continue;
    }
    if (step != steps.begin()->first) {
      if (Status whole = verify_candidate(context, candidate.value()); !whole) {
        add_note(note, fmt::format("step {} is no longer whole: {}", step, whole.error().message));
        continue;
      }
      add_note(note, fmt::format("step {} was used instead, all its blocks were verified", step));
    }
    return Chosen{std::move(candidate).value(), std::move(note)};
  }
  return make_error(Errc::kCorrupt, note + "; restore a checkpoint");
}

bool any_complete(const std::vector<ManifestName>& names) {
  return std::any_of(names.begin(), names.end(),
                     [](const ManifestName& name) { return !name.temporary; });
}

Result<OpenFile> open_data_file(Storage& storage, const std::string& directory, bool writable) {
  const std::string path = data_path(directory);
  auto there = storage.exists(path);
  if (!there) return std::move(there).error();
  if (!there.value()) {
    if (read_owner(storage, directory).ok()) return unfinished(directory);
    return make_error(Errc::kState, fmt::format("{} does not exist; create a store in {} first",
                                                path, directory));
  }
  if (writable) PENSTOCK_CHECK_OK(storage.check_private(directory));
  OpenOptions how;
  how.write = writable;
  auto id = storage.open(path, how);
  if (!id) return std::move(id).error();
  return OpenFile(storage, id.value());
}

Result<std::unique_ptr<Store>> open_once(Storage& storage, const std::string& directory,
                                         const StoreOptions& options, bool writable) {
  auto file = open_data_file(storage, directory, writable);
  if (!file) return std::move(file).error();
  if (writable) {
    PENSTOCK_CHECK_OK(lock_data_file(storage, file.value().id(), data_path(directory), options));
  }
  auto names = list_manifests(storage, directory);
  if (!names) return std::move(names).error();
  auto header = read_header(storage, file.value().id(), directory, any_complete(names.value()));
  if (!header) return std::move(header).error();
  const Context context{storage, directory, options, writable, header.value().header};
  auto chosen = choose_commit(context, names.value());
  if (!chosen) return std::move(chosen).error();
  if (writable) PENSTOCK_CHECK_OK(write_owner(storage, directory, this_process()));
  std::string note = std::move(header.value().note);
  if (!chosen.value().note.empty()) add_note(note, chosen.value().note);
  auto store = make_store(context, std::move(file).value(), std::move(chosen.value().candidate),
                          std::move(note));
  store->adopt_names(std::move(names).value());
  return std::unique_ptr<Store>(std::move(store));
}

}  // namespace

Result<bool> holds_commit(Storage& storage, const std::string& directory) {
  PENSTOCK_TAKE(exists, storage.exists(directory));
  if (!exists) return false;
  PENSTOCK_TAKE(names, list_manifests(storage, directory));
  return std::any_of(names.begin(), names.end(),
                     [](const ManifestName& name) { return !name.temporary; });
}

Result<std::unique_ptr<Store>> open_store(Storage& storage, const std::string& directory,
                                          const StoreOptions& options, bool writable) {
  if (options.scratch) {
    return make_error(Errc::kArgument,
                      fmt::format("the store in {} cannot be opened as a scratch store, which ends "
                                  "with its process; create a new one",
                                  directory));
  }
  auto store = open_once(storage, directory, options, writable);
  // Between a reader's listing and its reading, a running owner may have removed a manifest.
  for (int attempt = 1; attempt < kReaderAttempts && !store && !writable; ++attempt) {
    if (store.error().code == Errc::kUnsupported) break;
    store = open_once(storage, directory, options, writable);
  }
  return store;
}

}  // namespace penstock
