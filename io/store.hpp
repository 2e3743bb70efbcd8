#pragma once

/// A crash-safe pool of slots on one drive, with checked contents and atomic commits.
///
/// The caller moves section bytes itself (through a StorageQueue on file()) at the extents given
/// here, keeps the SlotTable up to date, and calls commit() when every block of the snapshot has
/// landed. commit() flushes, writes the manifest and only then returns; it blocks, so it runs on a
/// blocking task.
/// Threads: const members and reads concurrently; commit() by one thread at a time, and nobody uses
///          committed() or make_table() while it runs. The SlotTable belongs to the caller's
///          monitor, not to commit().
/// A complete entry has every non-empty section of its block written, immutable ones included:
/// a block moves from slot to slot as a whole.
/// Errors:  kNoSpace (before anything is written: needed and free bytes), kState (in use: pid and
///          host of the owner; exists already), kCorrupt (file, block, offset), kUnsupported (newer
///          version or unknown incompatible feature), kIo.
/// The byte tables of the format are in io/store_format.hpp.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/slot_table.hpp"
#include "io/storage.hpp"

namespace penstock {

/// Identity and lengths of one block. Keys do not depend on drives or ranks.
struct BlockGeometry {
  std::uint64_t key = 0;               ///< hash of (group name, first element)
  std::vector<std::uint64_t> lengths;  ///< exact bytes of each section; 0: section absent
  bool frozen = false;                 ///< one slot only
};

/// What is fixed when a store is created.
struct StoreGeometry {
  std::vector<SectionSpec> sections;
  std::vector<BlockGeometry> blocks;
  std::vector<std::uint64_t> spill_bytes;  ///< lengths of the spill extents (gradients), any number
  std::string description;                 ///< JSON of the caller: tensors, groups, rule, ladder
  std::uint64_t layout_hash = 0;           ///< over names, shapes, dtypes, rule and ladder
};

struct StoreOptions {
  bool scratch = false;  ///< unnamed file, one slot per block, no manifest, no crash safety
  ProtocolFaults faults;
  std::uint64_t lock_wait_ns = 30'000'000'000;  ///< for a dead owner's last writes
  std::uint64_t uuid_seed = 0;  ///< of create: 0 draws a random uuid, else a replayable one
  std::function<void(const std::string& sentence)> notice;  ///< told before a wait for a lock
};

/// What a commit records beside the table.
struct CommitRecord {
  std::uint64_t step = 0;       ///< attempts so far
  std::uint64_t updates = 0;    ///< t, applied updates
  std::vector<std::byte> blob;  ///< the trainer's, at most 1 MiB
};

struct DriveExtent {
  FileId file = 0;
  std::uint64_t offset_bytes = 0;
};

class Store {
 public:
  virtual ~Store() = default;  ///< releases the lock; commits nothing

  [[nodiscard]] virtual const StoreGeometry& geometry() const = 0;
  [[nodiscard]] virtual const std::vector<SectionExtent>& extents(std::size_t block) const = 0;
  [[nodiscard]] virtual std::uint64_t slot_bytes() const = 0;  ///< stride of slots in the file
  [[nodiscard]] virtual std::size_t slot_count() const = 0;
  [[nodiscard]] virtual std::uint64_t file_bytes() const = 0;  ///< of the data file
  /// Where a slot, or a spill extent, begins. Sections lie at their SectionExtent offsets in it.
  [[nodiscard]] virtual DriveExtent slot(SlotIndex slot) const = 0;
  [[nodiscard]] virtual DriveExtent spill(std::size_t index) const = 0;

  /// Seed of tile `tile` of a section's sums; binds bytes to (store, block, version, section,
  /// tile).
  [[nodiscard]] virtual std::uint64_t tile_seed(std::size_t block, std::uint64_t version,
                                                std::size_t section, std::uint32_t tile) const = 0;
  /// Root of a section: XXH3-64 over its tile sums (tiles * 8 bytes), seeded alike.
  [[nodiscard]] virtual std::uint64_t root_of(std::size_t block, std::uint64_t version,
                                              std::size_t section,
                                              std::span<const std::uint64_t> sums) const = 0;

  /// A table that starts from what open() found, or all-free after create().
  [[nodiscard]] virtual SlotTable make_table() const = 0;

  /// Flushes the data file and makes the manifest of `record` with `entries` durable (two copies:
  /// temp, fsync, rename, directory fsync). After success the previous manifest no longer counts.
  /// Steps rise from commit to commit. kInternal when an entry is incomplete or two share a slot.
  /// Not in scratch mode. An error is final for this store object: no later commit succeeds.
  virtual Status commit(const CommitRecord& record, std::span<const SlotEntry> entries) = 0;

  /// The commit found by open(), or the last commit().
  [[nodiscard]] virtual const CommitRecord& committed() const = 0;
  [[nodiscard]] virtual bool has_commit() const = 0;

  /// Reads and checks one section of a committed entry into `into` (extent.total_bytes(), page
  /// aligned): root, then every tile. kCorrupt names block, section, tile, file and offset.
  virtual Status read_section(std::size_t block, std::size_t section, const SlotEntry& entry,
                              std::span<std::byte> into) = 0;

  /// The same bytes unchecked, for tools that report all damage. kIo, kArgument.
  virtual Status read_unchecked(std::size_t block, std::size_t section, const SlotEntry& entry,
                                std::span<std::byte> into) = 0;

  [[nodiscard]] virtual std::string directory() const = 0;
  /// What open() found amiss and worked around, in one sentence each; empty when all was well.
  [[nodiscard]] virtual const std::string& open_note() const = 0;
  /// How messages name a block.
  [[nodiscard]] virtual std::string block_name(std::size_t block) const = 0;
  /// "tensor h.3.attn" for a block, given by the caller for messages; default "block N".
  virtual void set_block_namer(std::function<std::string(std::size_t block)> namer) = 0;
};

/// Makes a store in `directory` (created if missing; must not hold one already) or, for scratch, an
/// unnamed file there. Checks free space first. The caller then writes all first versions and
/// commits step 0: until then open() reports that creation did not finish.
Result<std::unique_ptr<Store>> create_store(Storage& storage, const std::string& directory,
                                            const StoreGeometry& geometry,
                                            const StoreOptions& options);

/// Whether `directory` is there and names a commit, as opposed to nothing or a creation that was
/// cut short. Opens nothing.
Result<bool> holds_commit(Storage& storage, const std::string& directory);

/// Opens the newest committed state. `writable` false (inspect): takes no lock and never commits.
Result<std::unique_ptr<Store>> open_store(Storage& storage, const std::string& directory,
                                          const StoreOptions& options, bool writable);

}  // namespace penstock
