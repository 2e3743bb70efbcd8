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
#include <optional>
#include <string>
#include <unordered_map>

#include "io/forwarding_storage.hpp"

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

class CountingStorage final : public ForwardingStorage {
 public:
  explicit CountingStorage(std::unique_ptr<Storage> inner)
      : ForwardingStorage(*inner), inner_(std::move(inner)) {}

  /// To files of this directory so far, as it is spelled in their paths.
  [[nodiscard]] std::uint64_t written_bytes(const std::string& directory) const {
    return written_.of(directory);
  }
  std::optional<std::uint64_t> counted_bytes(const std::string& directory) const override {
    return written_bytes(directory);
  }

  Result<FileId> open(const std::string& path, const OpenOptions& options) override;
  Status close(FileId file) override;
  Status write_at(FileId file, std::uint64_t offset_bytes,
                  std::span<const std::byte> from) override;
  Status write_file(const std::string& path, std::span<const std::byte> bytes) override;
  Status overwrite_file(const std::string& path, std::span<const std::byte> bytes) override;
  Result<std::unique_ptr<StorageQueue>> make_queue(CompletionSink& sink,
                                                   const QueueOptions& options) override;

 private:
  std::unique_ptr<Storage> inner_;
  WrittenBytes written_;
};

}  // namespace penstock
