#pragma once

/// What makes the commits of several ranks one: the global record.
///
/// Each rank has a store of its own. A commit counts only when the manifests of all ranks are
/// durable and rank 0 has then written it down, in global.<sequence>.a and .b in its directories;
/// no rank uses a slot of the commit before again until it has. So after a crash the newest global
/// record names a commit that every rank has, whole.
///
///   offset size
///        0    8  magic "PNSTKGLB"
///        8    4  major     12  4  minor
///       16    8  compatible bits     24  8  incompatible bits
///       32   16  id of the run
///       48    8  sequence     56  8  step
///       64    4  number of ranks     68  4  zero
///       72   16  XXH3-128 of all bytes before
///       88       whatever the file held before: it is a page long and was made beforehand
///
/// Threads: one at a time. Errors: kIo, kCorrupt, kUnsupported; kState where a file of somebody
/// else has the name.

#include <optional>
#include <string>
#include <utility>

#include "io/store.hpp"
#include "io/store_spares.hpp"

namespace penstock {

struct GlobalRecord {
  StoreUuid run;  ///< the ranks' stores have ids made from it, see rank_uuid()
  std::uint64_t sequence = 0, step = 0;
  std::uint32_t ranks = 1;
  friend bool operator==(const GlobalRecord&, const GlobalRecord&) = default;
};

struct FoundGlobal {
  GlobalRecord record;
  bool is_newest = true;  ///< false: the newest was damaged, so slots may have been used since
};

/// The id of a rank's store.
[[nodiscard]] StoreUuid rank_uuid(const StoreUuid& run, std::uint32_t rank);
/// A random id, or with a seed a replayable one.
[[nodiscard]] StoreUuid make_uuid(std::uint64_t seed);

/// Writes the records of a run, over files made beforehand, so that no commit needs space.
///
/// Invariants
///   1. Of each copy there are three files: the newest two records and one to write over,
///      global.spare.<number>.a (io/store_spares.hpp).
///   2. A record's file is written over only when two newer ones are durable. A power loss may
///      leave it under its old name: a record under another's name counts as damaged.
/// Owner: the rank that writes; the storage outlives it.
class GlobalRecords {
 public:
  GlobalRecords(Storage& storage, StoreDirectories directories, const ProtocolFaults& faults = {})
      : storage_(storage),
        directories_(std::move(directories)),
        faults_(faults),
        spares_(storage_, directories_, kGlobalSpare) {}
  GlobalRecords(const GlobalRecords&) = delete;  // its spares refer to its directories
  GlobalRecords& operator=(const GlobalRecords&) = delete;

  /// Makes the files: once, in the store's directories, before the first write().
  Status reserve();
  /// Makes the record durable, in two copies; the newest two records stay.
  Status write(const GlobalRecord& record);

 private:
  Status give(std::uint64_t sequence, const std::string& copies);

  Storage& storage_;
  const StoreDirectories directories_;
  const ProtocolFaults faults_;
  SpareFiles spares_;
};

/// The newest record with a right copy; nothing when there is none of any kind. kCorrupt: there are
/// some and all are damaged.
Result<std::optional<FoundGlobal>> read_global(Storage& storage,
                                               const StoreDirectories& directories);

}  // namespace penstock
