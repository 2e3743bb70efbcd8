#include "cli/store_reader.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace penstock {
namespace {

/// Sums are seeded by the store's uuid, so two stores share a seed only if they are the same one.
bool same_store(const Store& a, const Store& b) {
  if (a.geometry().blocks.size() != b.geometry().blocks.size()) return false;
  if (a.geometry().description != b.geometry().description) return false;
  return a.geometry().blocks.empty() || a.tile_seed(0, 0, 0, 0) == b.tile_seed(0, 0, 0, 0);
}

void name_blocks(Store& store, const StoreDescription& description) {
  store.set_block_namer([&description](std::size_t block) {
    const DescribedGroup* group = description.group_of(block);
    if (group == nullptr) return fmt::format("block {}", block);
    return fmt::format("block {} of group \"{}\"", block - group->first_block, group->name);
  });
}

}  // namespace

Status check_store_directory(const std::string& directory) {
  struct stat info {};
  const bool found = ::stat(directory.c_str(), &info) == 0;
  if (found && S_ISDIR(info.st_mode)) return ok();
  const int error = found ? ENOTDIR : errno;
  return make_error(Errc::kArgument,
                    fmt::format("cannot open the store {}: {}; name the directory that was given "
                                "to train --store",
                                directory, std::generic_category().message(error)),
                    error);
}

StoreReader::StoreReader(Storage& storage, std::unique_ptr<Store> store,
                         StoreDescription description)
    : storage_(storage),
      directory_(store->directory()),
      store_(std::move(store)),
      description_(std::move(description)),
      table_(store_->make_table()) {
  name_blocks(*store_, description_);
}

Result<std::unique_ptr<StoreReader>> StoreReader::open(Storage& storage,
                                                       const std::string& directory) {
  PENSTOCK_TAKE(store, open_store(storage, directory, StoreOptions{}, /*writable=*/false));
  return over(storage, std::move(store));
}

Result<std::unique_ptr<StoreReader>> StoreReader::over(Storage& storage,
                                                       std::unique_ptr<Store> store) {
  PENSTOCK_TAKE(description, read_description(*store));
  return std::unique_ptr<StoreReader>(
      new StoreReader(storage, std::move(store), std::move(description)));
}

Result<std::unique_ptr<Store>> StoreReader::open_newest() const {
  auto newest = open_store(storage_, directory_, StoreOptions{}, /*writable=*/false);
  if (!newest) return newest;
  if (!same_store(*store_, *newest.value())) {
    return make_error(Errc::kState, fmt::format("the store {} was replaced by another one while it "
                                                "was read; start again",
                                                directory_));
  }
  return newest;
}

Status StoreReader::advance() {
  PENSTOCK_TAKE(newest, open_newest());
  store_ = std::move(newest);
  table_ = store_->make_table();
  name_blocks(*store_, description_);
  overtaken_ = false;
  return ok();
}

Status StoreReader::read_section(std::size_t block, std::size_t section,
                                 std::span<std::byte> into) {
  Status read = store_->read_section(block, section, entry(block), into);
  if (read || read.error().code != Errc::kCorrupt) return read;
  PENSTOCK_TAKE(newest, open_newest());
  const SlotTable table = newest->make_table();
  const SlotEntry& now = table.entry(block);
  if (now.slot == entry(block).slot && now.version == entry(block).version) return read;
  overtaken_ = true;
  return make_error(Errc::kState,
                    fmt::format("the training in {} went on to step {} while step {} was read; "
                                "try again when it has ended",
                                directory_, newest->committed().step, step()));
}

Status StoreReader::with_one_commit(int attempts, const std::function<Status()>& read) {
  Status done = read();
  for (int attempt = 1; attempt < attempts && !done && overtaken_; ++attempt) {
    PENSTOCK_CHECK_OK(advance());
    done = read();
  }
  return done;
}

}  // namespace penstock
