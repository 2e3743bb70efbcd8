#pragma once

/// A storage that counts what is written through it, directory by directory.
///
/// Counted is what is handed to the system: section bytes with their sums and padding, first
/// versions, zeroing, manifests; not what a file system writes for itself.
/// Owner:   the storage it wraps. A queue must not outlive the storage that made it.
/// Threads: as the storage that is wrapped; counting takes a lock for a moment and allocates only
///          where a file is opened or a small file written.
/// Errors:  those of the storage that is wrapped.

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "io/storage.hpp"

namespace penstock {

/// Bytes by directory.
class WrittenBytes {
 public:
  void opened(FileId file, const std::string& directory);
  void closed(FileId file);
  void add(FileId file, std::uint64_t bytes) noexcept;
  void add(const std::string& directory, std::uint64_t bytes);
  [[nodiscard]] std::uint64_t of(const std::string& directory) const;

 private:
  mutable std::mutex mutex_;  // guards both
  std::unordered_map<std::string, std::uint64_t> bytes_;
  std::unordered_map<FileId, std::uint64_t*> files_;  // into bytes_, whose values stay in place
};

class CountingStorage final : public Storage {
 public:
  explicit CountingStorage(std::unique_ptr<Storage> inner) : inner_(std::move(inner)) {}

  /// To files of this directory so far, as it is spelled in their paths.
  [[nodiscard]] std::uint64_t written_bytes(const std::string& directory) const {
    return written_.of(directory);
  }

  Result<FileId> open(const std::string& path, const OpenOptions& options) override;
  Status close(FileId file) override;
  Result<std::uint64_t> size_bytes(FileId file) override { return inner_->size_bytes(file); }
  std::uint32_t alignment_bytes(FileId file) const override {
    return inner_->alignment_bytes(file);
  }
  std::uint64_t drive(FileId file) const override { return inner_->drive(file); }
  bool is_direct(FileId file) const override { return inner_->is_direct(file); }
  Status preallocate(FileId file, std::uint64_t bytes) override {
    return inner_->preallocate(file, bytes);
  }
  Status extend(FileId file, std::uint64_t bytes) override { return inner_->extend(file, bytes); }
  Status sync_data(FileId file) override { return inner_->sync_data(file); }
  Status sync_all(std::span<const FileId> files) override { return inner_->sync_all(files); }
  Status lock(FileId file) override { return inner_->lock(file); }
  Status read_at(FileId file, std::uint64_t offset_bytes, std::span<std::byte> into) override {
    return inner_->read_at(file, offset_bytes, into);
  }
  Status write_at(FileId file, std::uint64_t offset_bytes,
                  std::span<const std::byte> from) override;
  Result<std::vector<std::byte>> read_file(const std::string& path,
                                           std::uint64_t max_bytes) override {
    return inner_->read_file(path, max_bytes);
  }
  Status write_file(const std::string& path, std::span<const std::byte> bytes) override;
  Status overwrite_file(const std::string& path, std::span<const std::byte> bytes) override;
  void begin_writeback(const std::string& path) override { inner_->begin_writeback(path); }
  Status sync_file(const std::string& path) override { return inner_->sync_file(path); }
  Status rename(const std::string& from, const std::string& to) override {
    return inner_->rename(from, to);
  }
  Status remove(const std::string& path) override { return inner_->remove(path); }
  Status sync_directory(const std::string& path) override { return inner_->sync_directory(path); }
  Status make_directory(const std::string& path) override { return inner_->make_directory(path); }
  Status check_private(const std::string& directory) override {
    return inner_->check_private(directory);
  }
  Result<bool> exists(const std::string& path) override { return inner_->exists(path); }
  Result<bool> is_named(FileId file, const std::string& path) override {
    return inner_->is_named(file, path);
  }
  Result<std::vector<std::string>> list(const std::string& directory) override {
    return inner_->list(directory);
  }
  Result<std::uint64_t> free_bytes(const std::string& directory) override {
    return inner_->free_bytes(directory);
  }
  std::uint64_t names_room_bytes(const std::string& directory) const override {
    return inner_->names_room_bytes(directory);
  }
  std::uint64_t longest_file_bytes() const override { return inner_->longest_file_bytes(); }
  std::optional<std::uint64_t> counted_bytes(const std::string& directory) const override {
    return written_bytes(directory);
  }
  std::uint64_t unix_seconds() const override { return inner_->unix_seconds(); }
  Result<std::unique_ptr<StorageQueue>> make_queue(CompletionSink& sink,
                                                   const QueueOptions& options) override;

 private:
  std::unique_ptr<Storage> inner_;
  WrittenBytes written_;
};

}  // namespace penstock
