#pragma once

/// Passes every call on to another storage: tests override the calls that shall go wrong.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/storage.hpp"

namespace penstock::test {

class ForwardingStorage : public Storage {
 public:
  explicit ForwardingStorage(Storage& under) : under_(under) {}

  Status read_at(FileId file, std::uint64_t offset, std::span<std::byte> into) override {
    return under_.read_at(file, offset, into);
  }
  Result<FileId> open(const std::string& path, const OpenOptions& how) override {
    return under_.open(path, how);
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
  Status lock(FileId file) override { return under_.lock(file); }
  Status write_at(FileId file, std::uint64_t offset, std::span<const std::byte> from) override {
    return under_.write_at(file, offset, from);
  }
  Result<std::vector<std::byte>> read_file(const std::string& path, std::uint64_t max) override {
    return under_.read_file(path, max);
  }
  Status write_file(const std::string& path, std::span<const std::byte> bytes) override {
    return under_.write_file(path, bytes);
  }
  Status overwrite_file(const std::string& path, std::span<const std::byte> bytes) override {
    return under_.overwrite_file(path, bytes);
  }
  Status sync_file(const std::string& path) override { return under_.sync_file(path); }
  Status rename(const std::string& from, const std::string& to) override {
    return under_.rename(from, to);
  }
  Status remove(const std::string& path) override { return under_.remove(path); }
  Status sync_directory(const std::string& path) override { return under_.sync_directory(path); }
  Status make_directory(const std::string& path) override { return under_.make_directory(path); }
  Result<bool> exists(const std::string& path) override { return under_.exists(path); }
  Result<std::vector<std::string>> list(const std::string& directory) override {
    return under_.list(directory);
  }
  Result<std::uint64_t> free_bytes(const std::string& directory) override {
    return under_.free_bytes(directory);
  }
  Result<std::unique_ptr<StorageQueue>> make_queue(CompletionSink& sink,
                                                   const QueueOptions& options) override {
    return under_.make_queue(sink, options);
  }
  Status check_private(const std::string& directory) override {
    return under_.check_private(directory);
  }
  Result<bool> is_named(FileId file, const std::string& path) override {
    return under_.is_named(file, path);
  }
  std::uint64_t names_room_bytes(const std::string& directory) const override {
    return under_.names_room_bytes(directory);
  }
  std::uint64_t longest_file_bytes() const override { return under_.longest_file_bytes(); }
  std::uint64_t unix_seconds() const override { return under_.unix_seconds(); }

 protected:
  Storage& under_;
};

}  // namespace penstock::test
