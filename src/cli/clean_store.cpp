#include "cli/clean_store.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "io/storage.hpp"
#include "io/store.hpp"
#include "io/store_format.hpp"
#include "io/store_owner.hpp"
#include "io/store_spares.hpp"

namespace penstock {
namespace {

/// All binary files of a store begin with this.
constexpr std::string_view kMagic = "PNSTK";
constexpr std::size_t kOwnerBytes = 4096;
constexpr std::size_t kManifestBytes = std::size_t{64} << 20;  // of larger ones nothing is asked

enum class FileKind : std::uint8_t { kForeign, kCommit, kSpare, kTemporary, kData, kOwner };

bool is_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && value <= kLastSequence &&
         fmt::format("{}", value) == text;  // the one spelling
}

bool is_word(std::string_view text) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  return !text.empty() && std::all_of(text.begin(), text.end(), allowed);
}

FileKind kind_by_name(std::string_view name) {
  if (name == "owner.json") return FileKind::kOwner;
  if (name == "owner.json.tmp") return FileKind::kTemporary;
  if (name.starts_with("data.") && is_number(name.substr(5))) return FileKind::kData;
  if (parse_spare_name(name) || parse_spare_name(name, kGlobalSpare) || is_room_name(name)) {
    return FileKind::kSpare;
  }
  const bool temporary = name.ends_with(".tmp");
  if (temporary) name.remove_suffix(4);
  if (!name.ends_with(".a") && !name.ends_with(".b")) return FileKind::kForeign;
  name.remove_suffix(2);
  const bool commit = (name.starts_with("manifest.") && is_number(name.substr(9))) ||
                      (name.starts_with("global.") && is_number(name.substr(7))) ||
                      (name.starts_with("pin.") && is_word(name.substr(4)));
  if (!commit) return FileKind::kForeign;
  return temporary ? FileKind::kTemporary : FileKind::kCommit;
}

nlohmann::json parse(std::string_view text) {
  return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
}

std::string string_in(const nlohmann::json& json, const char* key) {
  const auto value = json.find(key);
  return value != json.end() && value->is_string() ? value->get<std::string>() : std::string();
}

bool is_owner_mark(std::string_view text) {
  const nlohmann::json json = parse(text);
  return json.is_object() && string_in(json, "penstock") == "store owner";
}

/// What is ours in one directory.
struct Found {
  std::shared_ptr<Directory> directory;
  std::vector<Directory::Entry> commits, spares, temporaries, data, owner;
  std::optional<DataHeader> header;  // nothing: no data file, or its headers are not whole
  std::optional<StoreUuid> uuid;     // by the header, or else by a manifest
  std::uint32_t file_count = 1;      // likewise
  bool had_commits = false;  // by the names of files, whatever is in them, or by what is spare
  bool in_use = false;

  /// Spares alone are not enough to say whose they are.
  [[nodiscard]] bool any() const {
    return !commits.empty() || !temporaries.empty() || !data.empty() || !owner.empty();
  }
};

std::optional<DataHeader> header_of(const std::vector<std::byte>& pages) {
  for (std::uint64_t at = 0; at + kHeaderBytes <= pages.size(); at += kHeaderBytes) {
    auto header = decode_header(std::span(pages).subspan(at, kHeaderBytes), "header");
    if (header) return header.value();
  }
  return std::nullopt;
}

bool begins_with_magic(const std::vector<std::byte>& bytes) {
  return text_in(bytes).starts_with(kMagic);
}

bool is_zero(const std::vector<std::byte>& bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](std::byte byte) { return byte == std::byte{0}; });
}

/// Whose store a manifest speaks of, where there is no header that says so.
void take_identity(const Directory::Entry& entry, Found& found) {
  const auto bytes = found.directory->head(entry, kManifestBytes);
  if (!bytes) return;
  const auto manifest = decode_manifest(manifest_in(*bytes), entry.name);
  if (!manifest) return;
  found.uuid = manifest.value().uuid;
  found.file_count = static_cast<std::uint32_t>(manifest.value().geometry.drives.size());
}

/// Sorts an entry in if it is ours by name and content.
void take(const Directory::Entry& entry, Found& found) {
  const FileKind kind = kind_by_name(entry.name);
  if (kind == FileKind::kCommit) found.had_commits = true;
  if (kind == FileKind::kForeign || entry.kind != Directory::Kind::kFile) return;
  const auto head = found.directory->head(entry, 2 * kHeaderBytes);
  if (!head) return;
  switch (kind) {
    case FileKind::kForeign:
      break;
    case FileKind::kCommit:
      if (begins_with_magic(*head)) found.commits.push_back(entry);
      break;
    case FileKind::kSpare:
      if (is_zero(*head) || begins_with_magic(*head)) found.spares.push_back(entry);
      // It was a manifest once: commits there were, even if their manifests are gone.
      if (begins_with_magic(*head)) found.had_commits = true;
      break;
    case FileKind::kTemporary:  // one that was killed at once is empty
      if (head->empty() || begins_with_magic(*head) || is_owner_mark(text_in(*head))) {
        found.temporaries.push_back(entry);
      }
      break;
    case FileKind::kData: {
      const bool second =
          head->size() > kHeaderBytes && has_data_magic(std::span(*head).subspan(kHeaderBytes));
      if (has_data_magic(*head) || second) {
        found.data.push_back(entry);
        found.header = header_of(*head);
        if (found.header) found.uuid = found.header->uuid;
        if (found.header) found.file_count = found.header->file_count;
      }
      break;
    }
    case FileKind::kOwner:
      if (head->size() <= kOwnerBytes && is_owner_mark(text_in(*head))) {
        found.owner.push_back(entry);
      }
      break;
  }
}

std::optional<StoreOwner> owner_of(const Found& found) {
  if (found.owner.empty()) return std::nullopt;
  const auto head = found.directory->head(found.owner[0], kOwnerBytes);
  if (!head) return std::nullopt;
  const nlohmann::json json = parse(text_in(*head));
  StoreOwner owner;
  if (!json.is_object()) return std::nullopt;
  const auto number = [&json](const char* key) {
    const auto value = json.find(key);
    return value != json.end() && value->is_number_unsigned() ? value->get<std::uint64_t>() : 0;
  };
  owner.pid = static_cast<std::int64_t>(number("pid"));
  owner.start_time = number("start_time");
  owner.host = string_in(json, "host");
  owner.boot_id = string_in(json, "boot_id");
  return owner;
}

/// A data file's creation is marked by owner.json before it has a header: then it is ours as well.
void take_headless_data(const std::vector<Directory::Entry>& entries, Found& found) {
  if (!found.data.empty() || found.owner.empty()) return;
  for (const Directory::Entry& entry : entries) {
    if (kind_by_name(entry.name) != FileKind::kData || entry.kind != Directory::Kind::kFile) {
      continue;
    }
    const auto head = found.directory->head(entry, 2 * kHeaderBytes);
    if (head && is_zero(*head)) found.data.push_back(entry);
  }
}

/// A creation makes the files for manifests behind the headers and before anything else, and a
/// commit takes one: where one is missing, a manifest may have been lost.
bool has_all_spares(const Found& found) {
  constexpr std::ptrdiff_t kFewest = 3;
  const auto count = [&](char copy) {
    return std::count_if(found.spares.begin(), found.spares.end(),
                         [&](const auto& entry) { return parse_spare_name(entry.name) == copy; });
  };
  const std::uint32_t index = found.header->file_index;
  const bool holds_a = index == 0, holds_b = index == 1 || found.file_count == 1;
  return (!holds_a || count('a') >= kFewest) && (!holds_b || count('b') >= kFewest);
}

Result<Found> look(const std::shared_ptr<Directory>& directory) {
  Found found;
  found.directory = directory;
  PENSTOCK_TAKE(entries, directory->entries());
  for (const Directory::Entry& entry : entries) take(entry, found);
  for (const Directory::Entry& entry : found.commits) {
    if (!found.uuid) take_identity(entry, found);
  }
  if (found.header && !has_all_spares(found)) found.had_commits = true;
  if (!found.had_commits) take_headless_data(entries, found);
  for (const Directory::Entry& entry : found.data) {
    PENSTOCK_TAKE(locked, directory->lock(entry));
    if (!locked) found.in_use = true;
  }
  if (found.data.empty()) {  // a creation that has only begun has nothing to lock yet
    const auto owner = owner_of(found);
    found.in_use = owner && is_running(*owner);
  }
  return found;
}

/// Judges the directories of one store together.
class Judge {
 public:
  Judge(std::vector<const Found*> parts, const CleanOptions& options)
      : parts_(std::move(parts)), options_(options) {}

  void run(std::vector<Leftover>& leftovers) const {
    const bool in_use = any([](const Found& found) { return found.in_use; });
    const bool had_commits = any([](const Found& found) { return found.had_commits; });
    if (had_commits || !complete()) {
      const Verdict verdict = in_use        ? Verdict{LeftoverKind::kStore, "it is in use"}
                              : !complete() ? incomplete()
                              : ambiguous() ? several_copies()
                                            : by_opening();
      Leftover store = make(verdict.kind, {.commits = true, .data = true});
      const bool judged = !in_use && complete() && !ambiguous();
      store.removable = options_.stores && judged;
      store.why = verdict.why;
      if (judged && !store.removable) store.why += "; --stores removes it too";
      const bool all = store.removable || verdict.kind == LeftoverKind::kDamagedStore;
      leftovers.push_back(std::move(store));
      if (all || !judged) return;
      Leftover commit = make(LeftoverKind::kUnfinishedCommit, {});
      commit.removable = true;
      commit.why = "temporary files of a commit that did not finish";
      if (!commit.parts.empty()) leftovers.push_back(std::move(commit));
      return;
    }
    Leftover store = make(LeftoverKind::kUnfinishedStore, {.data = true});
    store.removable = !in_use;
    store.why = in_use ? "it is in use" : "its creation did not finish";
    leftovers.push_back(std::move(store));
  }

 private:
  struct Take {
    bool commits = false, data = false;
  };
  struct Verdict {
    LeftoverKind kind = LeftoverKind::kStore;
    std::string why;
  };

  static Verdict incomplete() {
    return {LeftoverKind::kStore, "it is part of a store over several drives; name all of them"};
  }
  static Verdict several_copies() {
    return {LeftoverKind::kStore,
            "these are copies of a store over several drives; name the directories of one"};
  }

  /// What would be said to whoever opens it.
  [[nodiscard]] Verdict by_opening() const {
    std::vector<std::string> paths;
    for (const Found* found : parts_) paths.push_back(found->directory->path());
    const auto storage = make_posix_storage();
    const auto store = open_store(*storage, StoreDirectories(paths), {}, /*writable=*/false);
    if (store) return {LeftoverKind::kStore, "a store that can be opened"};
    const Errc code = store.error().code;
    if (code == Errc::kCorrupt || code == Errc::kState) {
      // That a creation did not finish is how lost manifests look to it.
      const bool lost = std::none_of(parts_.begin(), parts_.end(),
                                     [](const Found* found) { return !found->commits.empty(); });
      return {LeftoverKind::kDamagedStore,
              lost ? "no manifest is left that can be read, so its commits, if it had any, are lost"
                   : store.error().message};
    }
    return {LeftoverKind::kStore, store.error().message};
  }

  template <class Test>
  [[nodiscard]] bool any(Test&& test) const {
    return std::any_of(parts_.begin(), parts_.end(),
                       [&](const Found* found) { return test(*found); });
  }

  /// Whether as many directories are there as the store has data files.
  [[nodiscard]] bool complete() const { return parts_.size() >= parts_[0]->file_count; }
  /// Whether there are more, so that it is open which of them belong together.
  [[nodiscard]] bool ambiguous() const {
    if (parts_.size() > parts_[0]->file_count) return true;
    std::vector<bool> seen(parts_.size(), false);
    for (const Found* found : parts_) {
      if (!found->header || found->header->file_index >= seen.size()) continue;
      if (seen[found->header->file_index]) return true;
      seen[found->header->file_index] = true;
    }
    return false;
  }

  /// Commits of all directories go before any data, so that a store is never half openable.
  [[nodiscard]] Leftover make(LeftoverKind kind, Take what) const {
    Leftover leftover;
    leftover.kind = kind;
    if (what.commits) add(&Found::commits, leftover);
    add(&Found::temporaries, leftover);
    if (what.data) add(&Found::spares, leftover);
    if (what.data) add(&Found::data, leftover);
    if (what.data) add(&Found::owner, leftover);
    for (const Found* found : parts_) {
      leftover.path += (leftover.path.empty() ? "" : ", ") + found->directory->path();
    }
    return leftover;
  }

  void add(std::vector<Directory::Entry> Found::*entries, Leftover& leftover) const {
    for (const Found* found : parts_) {
      if ((found->*entries).empty()) continue;
      leftover.parts.push_back({found->directory, found->*entries});
      for (const Directory::Entry& entry : found->*entries) leftover.bytes += entry.bytes;
    }
  }

  std::vector<const Found*> parts_;
  const CleanOptions& options_;
};

}  // namespace

bool is_store_name(std::string_view name) {
  return kind_by_name(name) != FileKind::kForeign;
}

Result<std::vector<Leftover>> find_store_leftovers(
    const std::vector<std::shared_ptr<Directory>>& directories, const CleanOptions& options) {
  std::vector<Found> all;
  for (const auto& directory : directories) {
    PENSTOCK_TAKE(found, look(directory));
    if (found.any()) all.push_back(std::move(found));
  }
  // Directories with the same store id belong together where it has several data files.
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<const Found*>> stores;
  std::vector<Leftover> leftovers;
  for (const Found& found : all) {
    if (found.uuid && found.file_count > 1) {
      stores[{found.uuid->high, found.uuid->low}].push_back(&found);
    } else {
      Judge({&found}, options).run(leftovers);
    }
  }
  for (auto& [id, parts] : stores) {
    std::stable_sort(parts.begin(), parts.end(), [](const Found* a, const Found* b) {
      const auto index = [](const Found* found) {
        return found->header ? found->header->file_index : ~std::uint32_t{0};
      };
      return index(a) < index(b);
    });
    Judge(parts, options).run(leftovers);
  }
  return leftovers;
}

}  // namespace penstock
