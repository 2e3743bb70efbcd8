#pragma once

/// One committed state of a store, read while a training may go on with it: the last commit, or a
/// checkpoint.
///
/// Takes no lock and writes nothing. A slot of the commit being read is written again only after a
/// newer commit is durable, so bytes that fail their sums may mean that the state was overtaken: a
/// newer commit that names another slot or version for the block tells the two apart. A checkpoint
/// is overtaken only when it is dropped and another one gets its name.
/// Threads: one.
/// Errors:  those of open_store() and Store::read_section(), kState (overtaken, or another store in
///          the same place).

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "cli/store_description.hpp"
#include "io/storage.hpp"
#include "io/store.hpp"

namespace penstock {

/// kArgument unless the directories of a store are some: for a user who mistyped one.
Status check_store_directories(const std::vector<std::string>& directories);

/// Whether both stand for the same bytes in the same place.
[[nodiscard]] bool same_bytes(const SlotEntry& a, const SlotEntry& b);

class StoreReader {
 public:
  /// `storage` must outlive the reader. `checkpoint`: its name; empty: the last commit.
  static Result<std::unique_ptr<StoreReader>> open(Storage& storage,
                                                   const StoreDirectories& directories,
                                                   const std::string& checkpoint = {});
  /// Reads a store that is open already, in `storage`.
  static Result<std::unique_ptr<StoreReader>> over(Storage& storage, std::unique_ptr<Store> store);

  [[nodiscard]] Storage& storage() { return storage_; }
  [[nodiscard]] Store& store() { return *store_; }
  [[nodiscard]] const Store& store() const { return *store_; }
  [[nodiscard]] const StoreDescription& description() const { return description_; }
  [[nodiscard]] const SlotEntry& entry(std::size_t block) const { return table_.entry(block); }
  [[nodiscard]] std::uint64_t step() const { return store_->committed().step; }

  /// Its name; empty: the last commit.
  [[nodiscard]] const std::string& checkpoint() const { return options_.pin; }
  /// "the last commit", or "the checkpoint "best"": for messages.
  [[nodiscard]] std::string state_name() const;

  /// Reads the newest commit from now on.
  Status advance();

  /// Store::read_section() of this commit. kState, and overtaken() from then on, when a newer
  /// commit has given the block's slot back.
  Status read_section(std::size_t block, std::size_t section, std::span<std::byte> into);
  [[nodiscard]] bool overtaken() const { return overtaken_; }

  /// Runs `read` until it is done with one commit; each time that it is overtaken, it starts anew
  /// with the newest one. kState after `attempts` times.
  Status with_one_commit(int attempts, const std::function<Status()>& read);

 private:
  StoreReader(Storage& storage, std::unique_ptr<Store> store, StoreDescription description);
  Result<std::unique_ptr<Store>> open_newest() const;

  Storage& storage_;
  std::unique_ptr<Store> store_;
  StoreOptions options_;  // that it was opened with
  StoreDescription description_;
  SlotTable table_;
  bool overtaken_ = false;
};

}  // namespace penstock
