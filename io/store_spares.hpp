#pragma once

/// Files that manifests are written into, in the store's directories: spare.<number>.a and .b; and
/// the same for global records (io/store_global.hpp): global.spare.<number>.a and .b.
///
/// A commit must not need space that somebody else may have taken meanwhile. So there are enough
/// files for all manifests a store has at a time before it runs; a manifest is written over a spare
/// file, which then gets the manifest's name, and the file of one that is no longer wanted becomes
/// a spare. Where a directory may have to grow for a name, empty files with names of 240 bytes keep
/// it large: "room.", a number, a dot, and as many x as are left.
///
/// Invariants
///   1. What a spare holds means nothing. When it is made it is at least as long as a manifest.
///      A file of such a name that is not Penstock's (io/store_origin.hpp) is no spare.
///   2. A file becomes a spare only when no commit needs it, whichever of its names a power loss
///      leaves: a manifest under another commit's name counts as damaged.
/// Threads: one. Errors: the storage's.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "io/storage.hpp"
#include "io/store.hpp"

namespace penstock {

inline constexpr std::string_view kManifestSpare = "spare.";
inline constexpr std::string_view kGlobalSpare = "global.spare.";

/// Accepts exactly the names of spares of that kind; gives the copy, 'a' or 'b'.
[[nodiscard]] std::optional<char> parse_spare_name(std::string_view name,
                                                   std::string_view kind = kManifestSpare);
/// Whether this is the name of a file that only keeps a directory large.
[[nodiscard]] bool is_room_name(std::string_view name);

class SpareFiles {
 public:
  /// None yet, and nothing becomes one. `storage` and `directories` must outlive this.
  SpareFiles(Storage& storage, const StoreDirectories& directories,
             std::string_view kind = kManifestSpare)
      : storage_(storage), directories_(directories), kind_(kind) {}

  /// Finds those there are; from now on there are at most so many of a copy.
  Status find(std::size_t most_per_copy);
  /// Makes more, of that length and durable but for their names, until a copy has `wanted`.
  Status fill(char copy, std::size_t wanted, std::uint64_t bytes);

  /// Empty files with long names, where the directory needs them for its own size.
  Status hold_names(char copy);

  /// A file with these bytes, on their way to the drive: a spare written over, or where there is
  /// none, a new file. The caller syncs it and gives it its name; otherwise it is a spare when the
  /// store is opened again.
  Result<std::string> write(char copy, std::span<const std::byte> bytes);
  /// The file of this path becomes a spare, or goes where there are enough.
  Status give(char copy, const std::string& path);

 private:
  [[nodiscard]] std::vector<std::string>& of(char copy) { return spares_[copy == 'b' ? 1 : 0]; }
  [[nodiscard]] std::string new_path(char copy);

  Storage& storage_;
  const StoreDirectories& directories_;
  const std::string_view kind_;                     // how their names begin
  std::array<std::vector<std::string>, 2> spares_;  // paths
  std::size_t most_ = 0;
  std::uint64_t next_ = 0;  // larger than any number in a name
};

}  // namespace penstock
