#include "cli/clean.hpp"

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "cli/clean_export.hpp"
#include "cli/clean_store.hpp"

namespace penstock {
namespace {

/// The directories that are named and those in them, each once.
class Places {
 public:
  Status add(const std::string& path) {
    PENSTOCK_TAKE(opened, Directory::open(path));
    const std::shared_ptr<Directory> directory = std::move(opened);
    PENSTOCK_TAKE(entries, directory->entries());
    add(directory, nullptr);
    for (const Directory::Entry& entry : entries) {
      if (entry.kind != Directory::Kind::kDirectory) continue;
      auto child = directory->open_child(entry.name);
      if (child) {
        if (may_be_ours(*child.value())) add(std::move(child).value(), directory);
        continue;
      }
      const int error = child.error().sys_errno;
      if (error == EMFILE || error == ENFILE) return std::move(child).error();
      // Another user's, or gone: nothing that could be removed.
    }
    return ok();
  }

  struct Place {
    std::shared_ptr<Directory> directory;
    std::shared_ptr<Directory> parent;  // null for those that were named
  };
  [[nodiscard]] const std::vector<Place>& all() const { return places_; }

 private:
  void add(std::shared_ptr<Directory> directory, std::shared_ptr<Directory> parent) {
    if (!seen_.insert(directory->identity()).second) return;
    places_.push_back({std::move(directory), std::move(parent)});
  }

  /// So that directories of no interest are not held open.
  static bool may_be_ours(const Directory& directory) {
    if (is_export_name(directory.path())) return true;
    const auto entries = directory.entries();
    return entries && std::any_of(entries.value().begin(), entries.value().end(),
                                  [](const Directory::Entry& entry) {
                                    return is_store_name(entry.name) || is_export_name(entry.name);
                                  });
  }

  std::set<std::pair<dev_t, ino_t>> seen_;
  std::vector<Place> places_;
};

void append(std::vector<Leftover>& to, std::vector<Leftover> from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace

Result<std::vector<Leftover>> find_leftovers(const std::vector<std::string>& paths,
                                             const CleanOptions& options) {
  Places places;
  for (const std::string& path : paths) PENSTOCK_CHECK_OK(places.add(path));
  std::vector<std::shared_ptr<Directory>> directories;
  for (const Places::Place& place : places.all()) directories.push_back(place.directory);
  auto found = find_store_leftovers(directories, options);
  if (!found) return found;
  for (const Places::Place& place : places.all()) {
    auto files = find_export_files(place.directory);
    if (!files) return files;
    append(found.value(), std::move(files).value());
    auto exports = find_export_directory(place.directory, place.parent);
    if (!exports) return exports;
    append(found.value(), std::move(exports).value());
  }
  std::stable_sort(found.value().begin(), found.value().end(),
                   [](const Leftover& a, const Leftover& b) { return a.path < b.path; });
  return found;
}

Status remove_leftover(const Leftover& leftover) {
  for (const LeftoverPart& part : leftover.parts) {
    for (const Directory::Entry& entry : part.entries) {
      PENSTOCK_CHECK_OK(part.directory->remove(entry));
    }
    // What goes later must not be gone before what goes earlier.
    PENSTOCK_CHECK_OK(part.directory->sync());
  }
  return ok();
}

}  // namespace penstock
