#pragma once

/// What killed programs left behind, and removing it.
///
/// Looked at are the directories that are named and those in them, no deeper; links are not
/// followed. A file is Penstock's when both its name and its first bytes are; all else is left
/// alone, and so is whatever a running program has locked. Found are
///   unfinished stores    a creation that was killed: data files without any commit
///   unfinished commits   temporary files in a whole store; the next commit would remove them too
///   unfinished exports   what `penstock export` writes before it renames
///   whole stores         shown, but removed only when asked for by name of the kind
///   damaged stores       likewise: what cannot be opened, but has or had commits
/// What opens a store also judges it, so that the two never differ. A store over several drives is
/// judged only when all its directories are looked at; copies of one store are stores of their own.
/// Removing is safe to be killed: commits go first, data next, the mark of Penstock last, so that
/// what is left is recognised again. Directories stay, but for those that an export made.
/// Threads: one.
/// Errors:  kArgument (a directory that cannot be opened), kIo, kState (changed meanwhile).

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "cli/directory.hpp"

namespace penstock {

enum class LeftoverKind : std::uint8_t {
  kUnfinishedStore,
  kUnfinishedCommit,
  kUnfinishedExport,
  kStore,
  kDamagedStore
};

/// Files of one directory, in the order in which they are removed.
struct LeftoverPart {
  std::shared_ptr<Directory> directory;  ///< shared: several finds may be in it; holds the locks
  std::vector<Directory::Entry> entries;
};

struct Leftover {
  LeftoverKind kind = LeftoverKind::kUnfinishedStore;
  std::string path;  ///< of its directory, or of the file
  std::vector<LeftoverPart> parts;
  std::uint64_t bytes = 0;  ///< that the drive gets back
  bool removable = false;
  std::string why;  ///< in one clause: what it is, or why it stays
};

struct CleanOptions {
  bool stores = false;  ///< whole stores as well
};

/// Everything found, by path. Removable finds stay locked as long as they are held.
Result<std::vector<Leftover>> find_leftovers(const std::vector<std::string>& paths,
                                             const CleanOptions& options);

Status remove_leftover(const Leftover& leftover);

}  // namespace penstock
