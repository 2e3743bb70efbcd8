// The data files of a store: which directory holds which, locks, headers.
//
// A header copy counts when its hash is right; if both do, they must be equal. All files must be of
// one store, each in its place and of its length.

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "io/page_buffer.hpp"
#include "io/store_impl.hpp"
#include "io/store_origin.hpp"
#include "io/store_owner.hpp"

namespace penstock {
namespace {

/// Checkpoints lie in the same file, so they cannot help.
constexpr const char* kPutBack = "put the file back, or use a copy of the store";

/// No commit: the creation was cut short, or is under way in a process that has the files.
Error unfinished(Storage& storage, const StoreDirectories& directories, bool writable) {
  for (std::size_t i = 0; i < directories.size() && !writable; ++i) {
    const Status unused = check_unused(storage, data_path(directories, i));
    if (unused || unused.error().sys_errno != EWOULDBLOCK) continue;
    return make_error(Errc::kState,
                      fmt::format("the store in {} is being made and has no committed step yet: {}",
                                  directories.text(), unused.error().message));
  }
  return make_error(
      Errc::kState,
      fmt::format("creation of the store in {} did not finish: it has no committed step; create it "
                  "again with the command that began it, or remove it (penstock clean {} --yes)",
                  directories.text(), fmt::join(directories.all(), " ")));
}

bool any_mark(Storage& storage, const StoreDirectories& directories) {
  return std::any_of(
      directories.all().begin(), directories.all().end(),
      [&](const std::string& directory) { return read_owner(storage, directory).ok(); });
}

/// The number of the data file in a directory; nothing when there is none.
Result<std::optional<std::size_t>> find_data_file(Storage& storage, const std::string& directory) {
  std::optional<std::size_t> found;
  auto exists = storage.exists(directory);
  if (!exists) return std::move(exists).error();
  if (!exists.value()) return found;
  auto names = storage.list(directory);
  if (!names) return std::move(names).error();
  for (const std::string& name : names.value()) {
    const auto file = parse_data_name(name);
    if (!file) continue;
    if (found) {
      return make_error(Errc::kState,
                        fmt::format("{} holds {} and {}; a directory holds one data file, so move "
                                    "the one that is not of this store away",
                                    directory, data_name(*found), name));
    }
    found = file;
  }
  return found;
}

/// The directories in the order of their files. Those without one take the places that are left.
Result<StoreDirectories> in_file_order(Storage& storage, const StoreDirectories& directories) {
  const std::size_t count = directories.size();
  if (count == 1) return directories;
  std::vector<std::string> ordered(count), without;
  for (const std::string& directory : directories.all()) {
    auto file = find_data_file(storage, directory);
    if (!file) return std::move(file).error();
    if (!file.value()) {
      without.push_back(directory);
      continue;
    }
    const std::size_t place = *file.value();
    if (place >= count) {
      return make_error(Errc::kState, fmt::format("{} holds {}, but {} directories were named; "
                                                  "name all directories of the store",
                                                  directory, data_name(place), count));
    }
    if (!ordered[place].empty()) {
      return make_error(Errc::kState,
                        fmt::format("{} and {} both hold {}; they are directories of two stores, "
                                    "or one was named twice",
                                    ordered[place], directory, data_name(place)));
    }
    ordered[place] = directory;
  }
  auto next = without.begin();
  for (std::string& directory : ordered) {
    if (directory.empty()) directory = *next++;
  }
  return StoreDirectories(std::move(ordered));
}

Error missing(Storage& storage, const StoreDirectories& directories, std::size_t file,
              bool writable) {
  const std::string path = data_path(directories, file);
  const auto names = list_manifests(storage, directories);
  if (names && any_commit(names.value())) {
    return make_error(Errc::kState,
                      fmt::format("{} does not exist, but the store has a commit that needs it; "
                                  "mount its drive, or name the directory where it is",
                                  path));
  }
  if (any_mark(storage, directories)) return unfinished(storage, directories, writable);
  return make_error(Errc::kState,
                    fmt::format("there is no store in {}: {} does not exist; check the path",
                                directories.text(), path));
}

Result<OpenFile> open_data_file(Storage& storage, const StoreDirectories& directories,
                                std::size_t file, bool writable) {
  const std::string path = data_path(directories, file);
  auto there = storage.exists(path);
  if (!there) return std::move(there).error();
  if (!there.value()) return missing(storage, directories, file, writable);
  if (writable) PENSTOCK_CHECK_OK(storage.check_private(directories[file]));
  OpenOptions how;
  how.write = writable;
  auto id = storage.open(path, how);
  if (!id && id.error().sys_errno == ELOOP) {
    // The store needs what it leads to, so moving the link away would not help.
    return make_error(Errc::kIo,
                      fmt::format("{} is a symbolic link, which may lead elsewhere tomorrow; put "
                                  "the data file itself in its place",
                                  path),
                      ELOOP);
  }
  if (!id) return std::move(id).error();
  return OpenFile(storage, id.value());
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
    return make_error(Errc::kCorrupt, fmt::format("{} and {}; {}", first.error().message,
                                                  second.error().message, kPutBack));
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
bool is_unfinished(Storage& storage, const StoreDirectories& directories,
                   std::span<const std::byte> pages) {
  if (has_data_magic(pages)) return true;
  if (pages.size() > kHeaderBytes && has_data_magic(pages.subspan(kHeaderBytes))) return true;
  return any_mark(storage, directories);
}

/// `has_commit`: there is a manifest, so what is amiss is damage, not a creation cut short.
Result<FoundHeader> read_header(Storage& storage, FileId file, const StoreDirectories& directories,
                                std::size_t index, bool has_commit, bool writable) {
  const std::string path = data_path(directories, index);
  auto bytes = storage.size_bytes(file);
  if (!bytes) return std::move(bytes).error();
  PageBuffer pages(kHeaderBytes * kHeaderCopies);
  if (pages.empty()) return make_error(Errc::kNoMemory, "no memory for two pages");
  const bool too_short = bytes.value() < kHeaderBytes * kHeaderCopies;
  if (!too_short) {
    PENSTOCK_CHECK_OK(with_re_reads([&] { return storage.read_at(file, 0, pages.span()); }));
  }
  if (too_short && has_commit) {
    return make_error(Errc::kCorrupt,
                      fmt::format("{} was cut to {} bytes; {}", path, bytes.value(), kPutBack));
  }
  auto found = choose_header(pages.span(), path);
  if (!found) {
    if (has_commit || found.error().code == Errc::kUnsupported) return found;
    if (is_unfinished(storage, directories, pages.span()))
      return unfinished(storage, directories, writable);
    return make_error(Errc::kState,
                      fmt::format("{} is not a Penstock data file; check the directory", path));
  }
  if (!has_commit) return unfinished(storage, directories, writable);
  const DataHeader& header = found.value().header;
  if (header.file_count != directories.size()) {
    return make_error(Errc::kState,
                      fmt::format("{} is one of {} data files of its store, and {} {} named; name "
                                  "all directories of the store",
                                  path, header.file_count, directories.size(),
                                  directories.size() == 1 ? "directory was" : "directories were"));
  }
  if (header.file_index != index) {
    return make_error(Errc::kCorrupt,
                      fmt::format("{} is data file {} of its store under a wrong name; it was "
                                  "exchanged with another, so put each back",
                                  path, header.file_index));
  }
  if (bytes.value() != header.file_bytes) {
    return make_error(Errc::kCorrupt,
                      fmt::format("{} was {} to {} bytes, its header says {}; {}", path,
                                  bytes.value() < header.file_bytes ? "cut" : "extended",
                                  bytes.value(), header.file_bytes, kPutBack));
  }
  return found;
}

/// Copies of a manifest are renamed together, so a crash leaves the directories at most one commit
/// apart. More means that one of them is an older copy, whose data would be taken for damage.
Status check_ages(Storage& storage, const OpenedFiles& opened) {
  if (opened.directories.size() == 1) return ok();
  const auto newest = [&](char copy) {
    for (auto name = opened.names.rbegin(); name != opened.names.rend(); ++name) {
      if (name->copy != copy || !name->pin.empty() || name->temporary) continue;
      // Another's file of such a name says nothing of the directory's age.
      const auto ours = is_ours(storage, manifest_path(opened.directories, *name));
      if (!ours || ours.value()) return name->sequence + 1;
    }
    return std::uint64_t{0};
  };
  const std::uint64_t a = newest('a'), b = newest('b');
  if (a == 0 || b == 0 || std::max(a, b) - std::min(a, b) < 2) return ok();
  return make_error(
      Errc::kState,
      fmt::format("{} is an older copy of that directory: its last commit has the number {}, in {} "
                  "it is {}; name the directory that the training used last",
                  directory_of(opened.directories, a < b ? 'a' : 'b'), std::min(a, b) - 1,
                  directory_of(opened.directories, a < b ? 'b' : 'a'), std::max(a, b) - 1));
}

}  // namespace

void add_note(std::string& note, const std::string& sentence) {
  if (!note.empty()) note += "; ";
  note += sentence;
}

Result<OpenedFiles> open_data_files(Storage& storage, const StoreDirectories& directories,
                                    const StoreOptions& options, bool writable) {
  auto ordered = in_file_order(storage, directories);
  if (!ordered) return std::move(ordered).error();
  OpenedFiles opened{std::move(ordered).value(), {}, {}, {}, {}, options.ranks, writable};
  if (writable) opened.lifetime = LifetimeCounter(storage, opened.directories);
  for (std::size_t i = 0; i < opened.directories.size(); ++i) {
    auto file = open_data_file(storage, opened.directories, i, writable);
    if (!file) return std::move(file).error();
    opened.files.push_back(std::move(file).value());
    if (!writable) {
      if (!options.unless_in_use) continue;
      PENSTOCK_CHECK_OK(check_unused(storage, data_path(opened.directories, i)));
      continue;
    }
    FileId locked = opened.files.back().id();
    std::string path = data_path(opened.directories, i);
    if (options.faults.lock_wrong_file) {
      path = opened.directories[i] + "/owner.json";
      auto other = storage.open(path, {});
      if (!other) return std::move(other).error();
      locked = other.value();
    }
    PENSTOCK_CHECK_OK(lock_data_file(storage, locked, path, options));
  }
  auto names = list_manifests(storage, opened.directories);
  if (!names) return std::move(names).error();
  opened.names = std::move(names).value();
  PENSTOCK_CHECK_OK(check_ages(storage, opened));
  for (std::size_t i = 0; i < opened.files.size(); ++i) {
    auto found = read_header(storage, opened.files[i].id(), opened.directories, i,
                             any_commit(opened.names), writable);
    if (!found) return std::move(found).error();
    opened.headers.push_back(found.value().header);
    if (!found.value().note.empty()) add_note(opened.note, found.value().note);
    if (opened.headers[i].uuid == opened.headers[0].uuid) continue;
    return make_error(Errc::kCorrupt, fmt::format("{} and {} are data files of two stores; name "
                                                  "the directories of one",
                                                  data_path(opened.directories, 0),
                                                  data_path(opened.directories, i)));
  }
  // A copy, made here or by a tool, may have holes; a running store must never need space.
  for (std::size_t i = 0; i < opened.files.size() && writable; ++i) {
    PENSTOCK_CHECK_OK(storage.preallocate(opened.files[i].id(), opened.headers[i].file_bytes));
  }
  return opened;
}

}  // namespace penstock
