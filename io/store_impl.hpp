#pragma once

/// What create, open and commit share. Internal to io/.
///
/// Names in a store's directory
///   data.0                         slots and spill area; the lock is on it
///   manifest.<step>.a, .b          the last two commits, two copies each
///   manifest.<step>.a.tmp, .b.tmp  a commit that did not finish; removed by the next one
///   owner.json                     who uses the store (io/store_owner.hpp)
/// Nothing else in the directory is looked at or touched.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/store.hpp"
#include "io/store_format.hpp"
#include "io/store_layout.hpp"

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

/// A name of the manifest pattern.
struct ManifestName {
  std::uint64_t step = 0;
  char copy = 'a';
  bool temporary = false;
};

[[nodiscard]] std::string data_path(const std::string& directory);
[[nodiscard]] std::string manifest_name(std::uint64_t step, char copy);
/// Accepts exactly what manifest_name() makes, with or without ".tmp".
[[nodiscard]] std::optional<ManifestName> parse_manifest_name(std::string_view name);
/// The manifests in a directory, sorted by step.
Result<std::vector<ManifestName>> list_manifests(Storage& storage, const std::string& directory);

/// Locks the data file, open from `path`. kState with EWOULDBLOCK when it is in use: at once where
/// its owner runs; a dead one's last writes are waited for.
Status lock_data_file(Storage& storage, FileId file, const std::string& path,
                      const StoreOptions& options);

/// The header a file of this geometry has.
[[nodiscard]] DataHeader make_header(const StoreUuid& uuid, const StoreLayout& layout,
                                     std::uint64_t file_bytes, std::uint64_t layout_hash);

/// Invariants
///   1. entries_ and record_ are those of the newest durable manifest, or empty (has_commit_
///   false).
///   2. Once failed_ is set nothing is written any more.
///   3. A manifest is removed only after a newer one is durable; the newest two stay.
class StoreImpl final : public Store {
 public:
  struct Parts {
    Storage& storage;
    std::string directory;
    OpenFile file;
    StoreUuid uuid;
    StoreGeometry geometry;
    StoreLayout layout;
    std::uint64_t file_bytes = 0;
    StoreOptions options;
    bool writable = true;
  };
  explicit StoreImpl(Parts parts) : parts_(std::move(parts)) {}

  /// What open() found.
  void adopt(CommitRecord record, std::vector<SlotEntry> entries, std::string note);
  /// Manifests that were there when the store was opened or created.
  void adopt_names(std::vector<ManifestName> names) { names_ = std::move(names); }

  const StoreGeometry& geometry() const override { return parts_.geometry; }
  const std::vector<SectionExtent>& extents(std::size_t block) const override {
    return parts_.layout.extents[block];
  }
  std::uint64_t slot_bytes() const override { return parts_.layout.slot_bytes; }
  std::size_t slot_count() const override { return parts_.layout.slot_count; }
  std::uint64_t file_bytes() const override { return parts_.file_bytes; }
  DriveExtent slot(SlotIndex slot) const override;
  DriveExtent spill(std::size_t index) const override;
  std::uint64_t tile_seed(std::size_t block, std::uint64_t version, std::size_t section,
                          std::uint32_t tile) const override;
  std::uint64_t root_of(std::size_t block, std::uint64_t version, std::size_t section,
                        std::span<const std::uint64_t> sums) const override;
  SlotTable make_table() const override;
  Status commit(const CommitRecord& record, std::span<const SlotEntry> entries) override;
  const CommitRecord& committed() const override { return record_; }
  bool has_commit() const override { return has_commit_; }
  Status read_section(std::size_t block, std::size_t section, const SlotEntry& entry,
                      std::span<std::byte> into) override;
  Status read_unchecked(std::size_t block, std::size_t section, const SlotEntry& entry,
                        std::span<std::byte> into) override;
  std::string directory() const override { return parts_.directory; }
  const std::string& open_note() const override { return note_; }
  std::string block_name(std::size_t block) const override;
  void set_block_namer(std::function<std::string(std::size_t block)> namer) override {
    namer_ = std::move(namer);
  }

 private:
  Status check_commit(const CommitRecord& record, std::span<const SlotEntry> entries) const;
  Status write_commit(const CommitRecord& record, std::span<const SlotEntry> entries);
  Status check_place() const;
  Status write_manifests(std::uint64_t step, std::span<const std::byte> bytes);
  void remove_old_manifests(std::uint64_t newest, std::optional<std::uint64_t> previous);

  Parts parts_;
  CommitRecord record_;
  std::vector<SlotEntry> entries_;
  bool has_commit_ = false;
  std::optional<Error> failed_;
  std::vector<ManifestName> names_;
  std::string note_;
  std::function<std::string(std::size_t)> namer_;
};

}  // namespace penstock
