#include "cli/store_reader.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace penstock {
namespace {

void name_blocks(Store& store, const StoreDescription& description) {
  store.set_block_namer([&description](std::size_t block) {
    const DescribedGroup* group = description.group_of(block);
    if (group == nullptr) return fmt::format("block {}", block);
    return fmt::format("block {} of group \"{}\"", block - group->first_block, group->name);
  });
}

/// A weights file of an export in a directory that has no data file of a store; empty: none.
std::string exported_file(const std::string& directory) {
  std::string found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("data.") || name.starts_with("manifest.")) return {};
    if (name.ends_with(".safetensors") && (found.empty() || name < found)) found = name;
  }
  return found;
}

}  // namespace

Status check_store_directories(const std::vector<std::string>& directories) {
  for (const std::string& directory : directories) {
    struct stat info {};
    const bool found = ::stat(directory.c_str(), &info) == 0;
    if (found && S_ISDIR(info.st_mode)) {
      const std::string file = exported_file(directory);
      if (file.empty()) continue;
      return make_error(Errc::kArgument,
                        fmt::format("{} holds exported weights, not a store; name the store that "
                                    "they are of, or look at them with \"penstock inspect {}/{}\"",
                                    directory, directory, file));
    }
    const int error = found ? ENOTDIR : errno;
    return make_error(Errc::kArgument,
                      fmt::format("cannot open the store {}: {}; name the directory that was given "
                                  "to train --store",
                                  directory, std::generic_category().message(error)),
                      error);
  }
  return ok();
}

bool same_bytes(const SlotEntry& a, const SlotEntry& b) {
  // After going back to a checkpoint a version may be written a second time, with other bytes.
  return a.slot == b.slot && a.version == b.version &&
         std::equal(std::begin(a.roots), std::end(a.roots), std::begin(b.roots));
}

StoreReader::StoreReader(Storage& storage, std::unique_ptr<Store> store,
                         StoreDescription description)
    : storage_(storage),
      store_(std::move(store)),
      description_(std::move(description)),
      table_(store_->make_table()) {
  name_blocks(*store_, description_);
}

Result<std::unique_ptr<StoreReader>> StoreReader::open(Storage& storage,
                                                       const StoreDirectories& directories,
                                                       const std::string& checkpoint) {
  StoreOptions options;
  options.pin = checkpoint;
  PENSTOCK_TAKE(store, open_store(storage, directories, options, /*writable=*/false));
  PENSTOCK_TAKE(reader, over(storage, std::move(store)));
  reader->options_ = options;
  return std::move(reader);
}

Result<std::unique_ptr<StoreReader>> StoreReader::over(Storage& storage,
                                                       std::unique_ptr<Store> store) {
  PENSTOCK_TAKE(description, read_description(*store));
  return std::unique_ptr<StoreReader>(
      new StoreReader(storage, std::move(store), std::move(description)));
}

std::string StoreReader::state_name() const {
  return options_.pin.empty() ? "the last commit"
                              : fmt::format("the checkpoint \"{}\"", options_.pin);
}

Result<std::unique_ptr<Store>> StoreReader::open_newest() const {
  PENSTOCK_TAKE(newest, open_store(storage_, store_->directories(), options_, /*writable=*/false));
  if (newest->uuid() == store_->uuid()) return std::move(newest);
  return make_error(Errc::kState, fmt::format("the store {} was replaced by another one while it "
                                              "was read; start again",
                                              store_->directory()));
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
  if (same_bytes(table.entry(block), entry(block))) return read;
  overtaken_ = true;
  return make_error(Errc::kState,
                    fmt::format("the training in {} went on to step {} while step {} was read; "
                                "name a checkpoint, or try again when it has ended",
                                store_->directory(), newest->committed().step, step()));
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
