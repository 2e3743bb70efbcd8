#pragma once

/// The simulated storage itself. Internal to io/: sim_storage.cpp is what a program calls,
/// sim_worlds.cpp what a test asks.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/sim_orphans.hpp"
#include "io/sim_queue.hpp"
#include "io/sim_storage.hpp"

namespace penstock::sim {

class SimStorageImpl final : public SimStorage {
 public:
  SimStorageImpl(Timeline& timeline, const SimFaults& faults)
      : drive_(std::make_shared<Drive>(timeline, faults)) {}

  Result<FileId> open(const std::string& path, const OpenOptions& options) override;
  Status close(FileId file) override;
  Result<std::uint64_t> size_bytes(FileId file) override;
  std::uint32_t alignment_bytes(FileId) const override { return kPageBytes; }
  bool is_direct(FileId) const override { return true; }
  Status preallocate(FileId file, std::uint64_t bytes) override;
  Status extend(FileId file, std::uint64_t bytes) override;
  Status sync_data(FileId file) override;
  Status lock(FileId file) override;
  Status read_at(FileId file, std::uint64_t offset_bytes, std::span<std::byte> into) override;
  Status write_at(FileId file, std::uint64_t offset_bytes,
                  std::span<const std::byte> from) override;
  Result<std::vector<std::byte>> read_file(const std::string& path,
                                           std::uint64_t max_bytes) override;
  Status write_file(const std::string& path, std::span<const std::byte> bytes) override;
  Status overwrite_file(const std::string& path, std::span<const std::byte> bytes) override;
  Status sync_file(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status remove(const std::string& path) override;
  Status sync_directory(const std::string& path) override;
  Status make_directory(const std::string& path) override;
  Status check_private(const std::string&) override { return ok(); }  // there is one user
  Result<bool> exists(const std::string& path) override {
    return drive_->find_node(path) != nullptr;
  }
  Result<std::vector<std::string>> list(const std::string& directory) override;
  Result<bool> is_named(FileId file, const std::string& path) override {
    auto found = opened(file, "look for");
    if (!found) return std::move(found).error();
    return drive_->find_node(path) == found.value()->node;
  }
  Result<std::uint64_t> free_bytes(const std::string& directory) override;
  std::uint64_t unix_seconds() const override { return drive_->timeline.now_ns() / 1'000'000'000; }
  Result<std::unique_ptr<StorageQueue>> make_queue(CompletionSink& sink,
                                                   const QueueOptions& options) override {
    return std::unique_ptr<StorageQueue>(std::make_unique<SimQueue>(drive_, sink, options));
  }

  std::unique_ptr<SimStorage> after_power_loss(Timeline& timeline,
                                               std::uint64_t seed) const override;
  std::unique_ptr<SimStorage> after_kill(Timeline& timeline) const override;
  std::size_t orphans() const override { return orphans_ ? orphans_->left() : 0; }
  void set_faults(const SimFaults& faults) override { drive_->faults = faults; }
  void set_observer(Observer observer) override { drive_->observer = std::move(observer); }
  Status flip_bit(const std::string& path, std::uint64_t bit) override;
  Totals totals() const override { return drive_->totals; }
  std::uint64_t digest() const override { return tree_digest(*drive_->root); }

 private:
  Result<const OpenFile*> opened(FileId file, std::string_view what) const;
  Status check_transfer(const OpenFile& file, std::uint64_t offset_bytes, std::size_t bytes,
                        std::string_view what) const;
  Status sync(Node& node, const std::string& path);
  FileId add_open(NodePtr node, const std::string& path, bool write);
  [[nodiscard]] std::uint64_t used_bytes() const;

  std::shared_ptr<Drive> drive_;  // shared with the queues, which may outlive the storage
  std::unique_ptr<Orphans> orphans_;
};

}  // namespace penstock::sim
