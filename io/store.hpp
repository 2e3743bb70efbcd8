#pragma once

/// A crash-safe pool of slots on one or several drives, with checked contents and atomic commits.
///
/// The caller moves section bytes itself (through a StorageQueue) at the extents given here, keeps
/// the SlotTable up to date, and calls commit() when every block of the snapshot has landed.
/// commit() flushes, writes the manifest and only then returns; it blocks, so it runs on a blocking
/// task. So do pin() and drop().
/// Threads: const members and reads concurrently; commit(), pin() and drop() by one thread at a
///          time, and nobody uses committed(), pins() or make_table() while they run. The SlotTable
///          belongs to the caller's monitor, not to them.
/// A complete entry has every non-empty section of its block written, immutable ones included:
/// a block moves from slot to slot as a whole.
/// Errors:  kNoSpace (before anything is written: needed and free bytes), kState (in use: pid and
///          host of the owner; exists already; a drive is missing), kCorrupt (file, block, offset),
///          kUnsupported (newer version or unknown incompatible feature), kIo.
/// The byte tables of the format are in io/store_format.hpp; checkpoints in io/store_pins.hpp.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/slot_table.hpp"
#include "io/storage.hpp"

namespace penstock {

/// The directories of a store: one for each of its data files, on different drives. The first holds
/// copy `a` of every manifest, the second (or the only one) copy `b`.
class StoreDirectories {
 public:
  // Implicit on purpose: most stores lie on one drive and are called by its directory.
  StoreDirectories(std::string only) : all_{std::move(only)} {}
  StoreDirectories(const char* only) : all_{std::string(only)} {}
  StoreDirectories(std::vector<std::string> all) : all_(std::move(all)) {}

  [[nodiscard]] std::size_t size() const { return all_.size(); }
  [[nodiscard]] const std::string& operator[](std::size_t i) const { return all_[i]; }
  [[nodiscard]] const std::string& first() const { return all_.front(); }
  [[nodiscard]] const std::vector<std::string>& all() const { return all_; }
  [[nodiscard]] std::string text() const;  ///< for messages: "a, b"

 private:
  std::vector<std::string> all_;
};

struct StoreUuid {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend bool operator==(const StoreUuid&, const StoreUuid&) = default;
};

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
  std::vector<std::uint32_t> drives{1};    ///< shares of the data files: slots are dealt by them
  std::uint32_t pins = 0;                  ///< checkpoints there is room for, beside the commit
};

/// A store that holds one rank's part; see io/store_global.hpp.
struct RankOptions {
  std::uint32_t rank = 0, count = 1;
  StoreUuid uuid;  ///< of create with several ranks: the store's
  /// Of open: the commit that the ranks agreed on; later ones, which not all ranks have, are taken
  /// away. `verify`: read all of it first.
  std::optional<std::uint64_t> sequence;
  bool verify = false;
};

/// A store that takes over one state of another, block for block.
struct CopyOptions {
  bool is_copy = false;  ///< room for the state alone; the rest is reserved when it is opened
  StoreUuid sums_uuid;   ///< Store::sums_uuid() of the other, so that its sums hold
};

struct StoreOptions {
  bool scratch = false;  ///< unnamed file, one slot per block, no manifest, no crash safety
  ProtocolFaults faults;
  std::uint64_t lock_wait_ns = 30'000'000'000;  ///< for a dead owner's last writes
  std::uint64_t uuid_seed = 0;  ///< of create: 0 draws a random uuid, else a replayable one
  std::function<void(const std::string& sentence)> notice;  ///< told before a wait for a lock
  std::string pin;             ///< of open for reading: this checkpoint's state, not the last one
  bool unless_in_use = false;  ///< of open for reading: kState while a process has it for writing
  RankOptions ranks;
  CopyOptions copy;  ///< of create
};

/// What a commit records beside the table.
struct CommitRecord {
  std::uint64_t step = 0;       ///< attempts so far
  std::uint64_t updates = 0;    ///< t, applied updates
  std::vector<std::byte> blob;  ///< the trainer's, at most 1 MiB
};

/// What was written to a store's directories since it was made.
struct LifetimeBytes {
  std::vector<std::uint64_t> written;  ///< to each, in the order of the data files
  bool is_complete = true;             ///< false: at times nobody counted, so it was more than this
  [[nodiscard]] std::uint64_t total() const;
  friend bool operator==(const LifetimeBytes&, const LifetimeBytes&) = default;
};

struct DriveExtent {
  FileId file = 0;
  std::uint64_t offset_bytes = 0;
};

/// A checkpoint inside the store: a commit whose manifest and slots are kept under a name.
struct Pin {
  std::string name;
  std::uint64_t sequence = 0;  ///< number of the commit; rises with its age
  std::uint64_t step = 0, updates = 0;
  std::vector<SlotIndex> slots;  ///< per block
};

/// What pin() and drop() change, for SlotTable::change_pins().
struct PinChange {
  std::vector<std::vector<SlotIndex>> kept, dropped;
};

class Store {
 public:
  virtual ~Store() = default;  ///< releases the lock; commits nothing

  [[nodiscard]] virtual const StoreGeometry& geometry() const = 0;
  [[nodiscard]] virtual const std::vector<SectionExtent>& extents(std::size_t block) const = 0;
  [[nodiscard]] virtual std::uint64_t slot_bytes() const = 0;  ///< stride of slots in the file
  [[nodiscard]] virtual std::size_t slot_count() const = 0;
  [[nodiscard]] virtual std::uint64_t file_bytes() const = 0;  ///< of all data files
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

  /// Flushes the data files and makes the manifest of `record` with `entries` durable (two copies:
  /// temp, fsync, rename, directory fsync). After success the previous manifest no longer counts.
  /// Steps rise from commit to commit. kInternal when an entry is incomplete or two share a slot.
  /// Not in scratch mode. An error is final for this store object: no later commit succeeds.
  virtual Status commit(const CommitRecord& record, std::span<const SlotEntry> entries) = 0;

  /// The two halves of commit() with several ranks: the manifest is durable after prepare(), and
  /// the commit stands, the slots of the one before are free, with settle(), which is for the
  /// moment when it stands on all ranks.
  virtual Status prepare(const CommitRecord& record, std::span<const SlotEntry> entries) = 0;
  virtual Status settle() = 0;
  /// The number of the last commit, or of the one prepared.
  [[nodiscard]] virtual std::uint64_t sequence() const = 0;
  [[nodiscard]] virtual StoreUuid uuid() const = 0;
  [[nodiscard]] virtual StoreUuid sums_uuid() const = 0;

  /// Whether pin() would be refused; looks at nothing but memory.
  [[nodiscard]] virtual Status check_pin(const std::string& name, bool exchange) const = 0;
  /// Keeps the last commit as checkpoint `name`: its manifest is copied, no data is. `exchange`:
  /// the caller drops another one before the next commit, so there may be one more than there is
  /// room for. kArgument (name), kState (the name is taken, nothing is committed), kNoSpace (no
  /// room): nothing was changed. Other errors are final, as those of commit().
  virtual Result<PinChange> pin(const std::string& name, bool exchange) = 0;
  /// Forgets a checkpoint. Its slots may be used again once this has returned. kState: there is
  /// none of that name, nothing was changed.
  virtual Result<PinChange> drop(const std::string& name) = 0;
  /// Oldest first.
  [[nodiscard]] virtual const std::vector<Pin>& pins() const = 0;

  /// The commit found by open(), or the last commit().
  [[nodiscard]] virtual const CommitRecord& committed() const = 0;
  [[nodiscard]] virtual bool has_commit() const = 0;

  /// Until now; of a store opened for reading, until its newest commit. Each commit records it, and
  /// going back to a checkpoint does not lower it. Nothing: never counted, or scratch.
  [[nodiscard]] virtual std::optional<LifetimeBytes> lifetime() const = 0;

  /// Reads and checks one section of a committed entry into `into` (extent.total_bytes(), page
  /// aligned): root, then every tile. kCorrupt names block, section, tile, file and offset.
  virtual Status read_section(std::size_t block, std::size_t section, const SlotEntry& entry,
                              std::span<std::byte> into) = 0;

  /// The same bytes unchecked, for tools that report all damage. kIo, kArgument.
  virtual Status read_unchecked(std::size_t block, std::size_t section, const SlotEntry& entry,
                                std::span<std::byte> into) = 0;

  [[nodiscard]] virtual std::string directory() const = 0;  ///< the first
  [[nodiscard]] virtual const StoreDirectories& directories() const = 0;
  /// Path of a data file, for messages.
  [[nodiscard]] virtual std::string path_of(FileId file) const = 0;
  /// What open() found amiss and worked around, in one sentence each; empty when all was well.
  [[nodiscard]] virtual const std::string& open_note() const = 0;
  /// How messages name a block.
  [[nodiscard]] virtual std::string block_name(std::size_t block) const = 0;
  /// "tensor h.3.attn" for a block, given by the caller for messages; default "block N".
  virtual void set_block_namer(std::function<std::string(std::size_t block)> namer) = 0;
};

/// Makes a store in the directories (created if missing; must not hold one already) or, for
/// scratch, unnamed files there. As many directories as geometry.drives. Checks free space first.
/// The caller then writes all first versions and commits step 0: until then open() reports that
/// creation did not finish.
Result<std::unique_ptr<Store>> create_store(Storage& storage, const StoreDirectories& directories,
                                            const StoreGeometry& geometry,
                                            const StoreOptions& options);

/// Whether one of the directories is there and names a commit, as opposed to nothing or a creation
/// that was cut short. Opens nothing.
Result<bool> holds_commit(Storage& storage, const StoreDirectories& directories);

/// Opens the newest committed state; the directories may be given in any order. `writable` false
/// (inspect): takes no lock and never commits.
Result<std::unique_ptr<Store>> open_store(Storage& storage, const StoreDirectories& directories,
                                          const StoreOptions& options, bool writable);

}  // namespace penstock
