#pragma once

/// One committed state of a store, read while a training may go on with it.
///
/// Takes no lock and writes nothing. A slot of the commit being read is written again only after a
/// newer commit is durable, so bytes that fail their sums may mean that the state was overtaken: a
/// newer commit that names another slot or version for the block tells the two apart.
/// Threads: one.
/// Errors:  those of open_store() and Store::read_section(), kState (overtaken, or another store in
///          the same place).

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/result.hpp"
#include "cli/store_description.hpp"
#include "io/storage.hpp"
#include "io/store.hpp"

namespace penstock {

/// kArgument unless the directory of a store is one: for a user who mistyped it.
Status check_store_directory(const std::string& directory);

class StoreReader {
 public:
  /// `storage` must outlive the reader.
  static Result<std::unique_ptr<StoreReader>> open(Storage& storage, const std::string& directory);
  /// Reads a store that is open already, in `storage`.
  static Result<std::unique_ptr<StoreReader>> over(Storage& storage, std::unique_ptr<Store> store);

  [[nodiscard]] Storage& storage() { return storage_; }
  [[nodiscard]] Store& store() { return *store_; }
  [[nodiscard]] const Store& store() const { return *store_; }
  [[nodiscard]] const StoreDescription& description() const { return description_; }
  [[nodiscard]] const SlotEntry& entry(std::size_t block) const { return table_.entry(block); }
  [[nodiscard]] std::uint64_t step() const { return store_->committed().step; }

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
  std::string directory_;
  std::unique_ptr<Store> store_;
  StoreDescription description_;
  SlotTable table_;
  bool overtaken_ = false;
};

}  // namespace penstock
