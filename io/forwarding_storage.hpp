#pragma once

/// A storage, and a queue, that pass every call on: what adds to one of them, or lets it fail,
/// derives from these and overrides the calls it is about.
///
/// Calls with a default of their own are passed on, too: who overrides sync_data() to see each
/// flush overrides sync_all() as well (Storage::sync_all() calls it for each file).
/// Owner:   ForwardingStorage refers to a storage that outlives it; ForwardingQueue owns its queue.
/// Threads: as what they pass on to. Errors: those of it.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/storage.hpp"

namespace penstock {

class ForwardingStorage : public Storage {
 public:
  explicit ForwardingStorage(Storage& under) : under_(under) {}
  ForwardingStorage(const ForwardingStorage&) = delete;  // one over another is no copy of it
  ForwardingStorage& operator=(const ForwardingStorage&) = delete;

  Result<FileId> open(const std::string& path, const OpenOptions& options) override {
    return under_.open(path, options);
  }
  Status close(FileId file) override { return under_.close(file); }
  Result<std::uint64_t> size_bytes(FileId file) override { return under_.size_bytes(file); }
  std::uint32_t alignment_bytes(FileId file) const override { return under_.alignment_bytes(file); }
  std::uint64_t drive(FileId file) const override { return under_.drive(file); }
  bool is_direct(FileId file) const override { return under_.is_direct(file); }
  Status preallocate(FileId file, std::uint64_t bytes) override {
    return under_.preallocate(file, bytes);
  }
  Status extend(FileId file, std::uint64_t bytes) override { return under_.extend(file, bytes); }
  Status sync_data(FileId file) override { return under_.sync_data(file); }
  Status sync_all(std::span<const FileId> files) override { return under_.sync_all(files); }
  Status lock(FileId file) override { return under_.lock(file); }
  Status read_at(FileId file, std::uint64_t offset_bytes, std::span<std::byte> into) override {
    return under_.read_at(file, offset_bytes, into);
  }
  Status write_at(FileId file, std::uint64_t offset_bytes,
                  std::span<const std::byte> from) override {
    return under_.write_at(file, offset_bytes, from);
  }
  Result<std::vector<std::byte>> read_file(const std::string& path,
                                           std::uint64_t max_bytes) override {
    return under_.read_file(path, max_bytes);
  }
  Status write_file(const std::string& path, std::span<const std::byte> bytes) override {
    return under_.write_file(path, bytes);
  }
  Status overwrite_file(const std::string& path, std::span<const std::byte> bytes) override {
    return under_.overwrite_file(path, bytes);
  }
  void begin_writeback(const std::string& path) override { under_.begin_writeback(path); }
  Status sync_file(const std::string& path) override { return under_.sync_file(path); }
  Status rename(const std::string& from, const std::string& to) override {
    return under_.rename(from, to);
  }
  Status remove(const std::string& path) override { return under_.remove(path); }
  Status sync_directory(const std::string& path) override { return under_.sync_directory(path); }
  Status make_directory(const std::string& path) override { return under_.make_directory(path); }
  Status check_private(const std::string& directory) override {
    return under_.check_private(directory);
  }
  Result<bool> exists(const std::string& path) override { return under_.exists(path); }
  Result<bool> is_named(FileId file, const std::string& path) override {
    return under_.is_named(file, path);
  }
  Result<std::vector<std::string>> list(const std::string& directory) override {
    return under_.list(directory);
  }
  Result<std::uint64_t> free_bytes(const std::string& directory) override {
    return under_.free_bytes(directory);
  }
  std::uint64_t names_room_bytes(const std::string& directory) const override {
    return under_.names_room_bytes(directory);
  }
  std::uint64_t longest_file_bytes() const override { return under_.longest_file_bytes(); }
  std::optional<std::uint64_t> counted_bytes(const std::string& directory) const override {
    return under_.counted_bytes(directory);
  }
  std::uint64_t unix_seconds() const override { return under_.unix_seconds(); }
  Result<std::unique_ptr<StorageQueue>> make_queue(CompletionSink& sink,
                                                   const QueueOptions& options) override {
    return under_.make_queue(sink, options);
  }

 protected:
  Storage& under_;
};

class ForwardingQueue : public StorageQueue {
 public:
  explicit ForwardingQueue(std::unique_ptr<StorageQueue> under) : under_(std::move(under)) {}

  Status submit(std::span<const IoRequest> requests) noexcept override {
    return under_->submit(requests);
  }
  std::size_t drop_queued() noexcept override { return under_->drop_queued(); }
  Status drain(std::uint64_t timeout_ns) noexcept override { return under_->drain(timeout_ns); }
  IoStats stats() const noexcept override { return under_->stats(); }
  std::size_t drive_stats(std::span<DriveStats> into) const noexcept override {
    return under_->drive_stats(into);
  }
  std::string backend() const override { return under_->backend(); }
  std::string backend_reason() const override { return under_->backend_reason(); }
  std::string shortfall() const override { return under_->shortfall(); }

 protected:
  std::unique_ptr<StorageQueue> under_;
};

}  // namespace penstock
