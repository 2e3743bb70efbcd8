#pragma once

/// What create, open and commit share. Internal to io/.
///
/// Names in a store's directories
///   data.<i>                           slots and spill area; one a directory; the lock is on it
///   manifest.<sequence>.a, .b          the last two commits, two copies each
///   spare.<number>.a, .b               what manifests are written over (io/store_spares.hpp)
///   global.<sequence>.a, .b            of several ranks, with rank 0: the commits all have
///   global.spare.<number>.a, .b        what they are written over (io/store_global.hpp)
///   room.<number>.<x to 240 bytes>     empty; keeps a directory large (io/store_spares.hpp)
///   pin.<name>.a, .b                   checkpoints: copies of manifests, two each
///   <manifest or pin>.tmp              of earlier builds; becomes a spare when the store is opened
///   owner.json, owner.json.tmp         who uses the store (io/store_owner.hpp)
/// Copy a is in the first directory, copy b in the second if there is one. Nothing else in the
/// directories is looked at or touched, and files of these names only where they hold something of
/// Penstock's (io/store_origin.hpp).

#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/store.hpp"
#include "io/store_format.hpp"
#include "io/store_layout.hpp"
#include "io/store_lifetime.hpp"
#include "io/store_spares.hpp"

namespace penstock {

/// An open file that is closed with its owner.
class OpenFile {
 public:
  OpenFile(Storage& storage, FileId id) : storage_(&storage), id_(id) {}
  OpenFile(OpenFile&& other) noexcept : storage_(other.storage_), id_(other.id_) {
    other.storage_ = nullptr;
  }
  OpenFile& operator=(OpenFile&&) = delete;  // one file, one owner
  ~OpenFile() {
    // Nothing unsynced counts, so a failing close loses nothing.
    if (storage_ != nullptr) static_cast<void>(storage_->close(id_));
  }
  [[nodiscard]] FileId id() const { return id_; }

 private:
  Storage* storage_;
  FileId id_;
};

/// A name of the manifest pattern, or of a checkpoint.
struct ManifestName {
  std::string pin;  ///< name of a checkpoint; empty: a commit
  std::uint64_t sequence = 0;
  char copy = 'a';
  bool temporary = false;
};

[[nodiscard]] std::string data_name(std::size_t file);
[[nodiscard]] std::string data_path(const StoreDirectories& directories, std::size_t file);
/// The number of a data file's name; nothing for other names.
[[nodiscard]] std::optional<std::size_t> parse_data_name(std::string_view name);
[[nodiscard]] std::string manifest_name(const ManifestName& name);
/// Accepts exactly what manifest_name() makes.
[[nodiscard]] std::optional<ManifestName> parse_manifest_name(std::string_view name);
/// Which directory a copy is in.
[[nodiscard]] const std::string& directory_of(const StoreDirectories& directories, char copy);
[[nodiscard]] std::string manifest_path(const StoreDirectories& directories,
                                        const ManifestName& name);
/// The manifests and checkpoints in the directories, sorted by sequence; copies that are not where
/// they belong are left out.
Result<std::vector<ManifestName>> list_manifests(Storage& storage,
                                                 const StoreDirectories& directories);
/// Whether one of them is a commit that was finished.
[[nodiscard]] bool any_commit(const std::vector<ManifestName>& names);

/// Names of checkpoints: 1 to 64 letters, digits, dots, dashes and underscores, and not a dot
/// first.
Status check_pin_name(const std::string& name);

/// kState where there is a file with so large a number that a run might come to the last one, and
/// then begin at 0 again, below what counts. Files whose numbers are beyond kLastSequence are not
/// looked at.
Status check_numbers_left(const std::string& path, std::uint64_t number);

/// kState: what there is in its place.
[[nodiscard]] Error no_checkpoint(const std::string& name, const StoreDirectories& directories,
                                  const std::vector<std::string>& names);

/// Locks the data file, open from `path`. kState with EWOULDBLOCK when it is in use: at once where
/// its owner runs; a dead one's last writes are waited for.
Status lock_data_file(Storage& storage, FileId file, const std::string& path,
                      const StoreOptions& options);

/// kState while a process that runs has the data file locked; leaves no lock.
Status check_unused(Storage& storage, const std::string& path);

/// The header a file of this geometry has.
[[nodiscard]] DataHeader make_header(const StoreUuid& uuid, const StoreLayout& layout,
                                     std::size_t file, std::uint64_t file_bytes,
                                     std::uint64_t layout_hash);

/// Calls `read` until it succeeds or fails otherwise than by I/O, at most three times.
template <class Read>
auto with_re_reads(Read&& read) {
  constexpr int kReadAttempts = 3;  // the first and two re-reads
  auto result = read();
  for (int attempt = 1; attempt < kReadAttempts && !result; ++attempt) {
    if (result.error().code != Errc::kIo || result.error().sys_errno == ENOENT) break;
    result = read();
  }
  return result;
}

/// The data files of a store, open, and what their headers agree on.
struct OpenedFiles {
  StoreDirectories directories;  ///< in the order of the files
  std::vector<OpenFile> files;
  std::vector<DataHeader> headers;
  std::vector<ManifestName> names;
  std::string note;  ///< what was amiss and worked around
  RankOptions ranks;
  bool writable = true;
  LifetimeCounter lifetime = {};
};
/// Opens, locks (when writable) and compares them. kState when the creation did not finish.
Result<OpenedFiles> open_data_files(Storage& storage, const StoreDirectories& directories,
                                    const StoreOptions& options, bool writable);

/// How many manifests a store has at a time: two commits and one on its way, the checkpoints and
/// one more.
[[nodiscard]] std::size_t most_manifests(const StoreGeometry& geometry);
/// Length of one with a blob of `blob_bytes` and the record behind it, in whole pages.
[[nodiscard]] std::uint64_t longest_manifest(const StoreGeometry& geometry,
                                             std::uint64_t blob_bytes);

void add_note(std::string& note, const std::string& sentence);

/// Invariants
///   1. entries_ and record_ are those of the newest durable manifest, or empty (has_commit_
///   false); pins_ are the checkpoints on the drive, oldest first.
///   2. Once failed_ is set nothing is written any more.
///   3. A manifest is removed only after a newer one counts; the newest two stay. A checkpoint is
///   removed only by drop().
///   4. A checkpoint beyond the room stays only between pin() and the drop() that follows it.
///   5. sequence_ is larger than that of any manifest in the directories.
class StoreImpl final : public Store {
 public:
  struct Parts {
    Storage& storage;
    StoreDirectories directories;
    std::vector<OpenFile> files;
    StoreUuid uuid;
    StoreUuid sums_uuid;
    StoreGeometry geometry;
    StoreLayout layout;
    std::vector<std::uint64_t> file_bytes;  ///< may be longer than the layout asks for
    StoreOptions options;
    bool writable = true;
    LifetimeCounter lifetime = {};
  };
  explicit StoreImpl(Parts parts)
      : parts_(std::move(parts)),
        encoder_(parts_.geometry, parts_.layout),
        spares_(parts_.storage, parts_.directories) {}

  /// What open() found.
  void adopt(CommitRecord record, std::uint64_t sequence, std::vector<SlotEntry> entries,
             std::string note);
  /// Manifests that were there when the store was opened or created.
  void adopt_names(std::vector<ManifestName> names);
  /// Files for all manifests there will be at a time, so that no commit needs space.
  Status reserve_manifests();
  void adopt_pins(std::vector<Pin> pins) { pins_ = std::move(pins); }
  /// commit() whatever the steps are: for going back to a checkpoint.
  Status write_commit(const CommitRecord& record, std::span<const SlotEntry> entries);

  const StoreGeometry& geometry() const override { return parts_.geometry; }
  const std::vector<SectionExtent>& extents(std::size_t block) const override {
    return parts_.layout.extents[block];
  }
  std::uint64_t slot_bytes() const override { return parts_.layout.slot_bytes; }
  std::size_t slot_count() const override { return parts_.layout.slot_count; }
  std::uint64_t file_bytes() const override;
  DriveExtent slot(SlotIndex slot) const override;
  DriveExtent spill(std::size_t index) const override;
  std::uint64_t tile_seed(std::size_t block, std::uint64_t version, std::size_t section,
                          std::uint32_t tile) const override;
  std::uint64_t root_of(std::size_t block, std::uint64_t version, std::size_t section,
                        std::span<const std::uint64_t> sums) const override;
  SlotTable make_table() const override;
  Status commit(const CommitRecord& record, std::span<const SlotEntry> entries) override;
  Status prepare(const CommitRecord& record, std::span<const SlotEntry> entries) override;
  Status settle() override;
  std::uint64_t sequence() const override {
    return prepared_ ? prepared_->sequence : committed_sequence_;
  }
  StoreUuid uuid() const override { return parts_.uuid; }
  StoreUuid sums_uuid() const override { return parts_.sums_uuid; }
  Status check_pin(const std::string& name, bool exchange) const override;
  Result<PinChange> pin(const std::string& name, bool exchange) override;
  Result<PinChange> drop(const std::string& name) override;
  const std::vector<Pin>& pins() const override { return pins_; }
  const CommitRecord& committed() const override { return record_; }
  bool has_commit() const override { return has_commit_; }
  std::optional<LifetimeBytes> lifetime() const override { return parts_.lifetime.read(); }
  Status read_section(std::size_t block, std::size_t section, const SlotEntry& entry,
                      std::span<std::byte> into) override;
  Status read_unchecked(std::size_t block, std::size_t section, const SlotEntry& entry,
                        std::span<std::byte> into) override;
  std::string directory() const override { return parts_.directories.first(); }
  const StoreDirectories& directories() const override { return parts_.directories; }
  std::string path_of(FileId file) const override;
  const std::string& open_note() const override { return note_; }
  std::string block_name(std::size_t block) const override;
  void set_block_namer(std::function<std::string(std::size_t block)> namer) override {
    namer_ = std::move(namer);
  }

 private:
  Status check_commit(const CommitRecord& record, std::span<const SlotEntry> entries) const;
  Status check_room(const std::string& name, bool exchange) const;
  Status check_usable(const std::string& what) const;
  Status write_manifest(const CommitRecord& record, std::span<const SlotEntry> entries);
  void take_prepared();
  Status forget_foreign();
  void give_superseded();
  Status sync_files();
  Status check_place() const;
  Result<std::span<const std::byte>> encode(const CommitRecord& record,
                                            std::span<const SlotEntry> entries,
                                            std::uint64_t sequence);
  Status write_copies(ManifestName name, std::span<const std::byte> bytes);
  Status sync_directories();
  Status write_pin(const std::string& name);
  Status remove_pin(const std::string& name);
  void remove_old_manifests(std::uint64_t newest, std::optional<std::uint64_t> previous);
  Error final_error(Error error, const std::string& what);

  struct Prepared {
    CommitRecord record;
    std::uint64_t sequence = 0;
  };

  Parts parts_;
  ManifestEncoder encoder_;
  std::optional<Prepared> prepared_;         // durable, and not yet what counts
  std::vector<SlotEntry> prepared_entries_;  // kept: a commit of a large store allocates nothing
  CommitRecord record_;
  std::vector<SlotEntry> entries_;
  bool has_commit_ = false;
  std::uint64_t sequence_ = 0;            // of the next commit
  std::uint64_t committed_sequence_ = 0;  // of record_
  std::optional<Error> failed_;
  std::vector<ManifestName> names_;
  SpareFiles spares_;
  std::vector<Pin> pins_;
  std::string note_;
  std::function<std::string(std::size_t)> namer_;
};

}  // namespace penstock
