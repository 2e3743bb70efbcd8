#include "train/copies.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "io/store_retire.hpp"

namespace penstock {
namespace {

StoreDirectories directories_of(const std::vector<std::string>& places, std::size_t slot) {
  std::vector<std::string> all;
  for (const std::string& place : places) all.push_back(fmt::format("{}/copy-{}", place, slot + 1));
  return StoreDirectories(std::move(all));
}

Error unusable(const StoreDirectories& copy, const std::string& why) {
  return make_error(Errc::kState,
                    fmt::format("--copy-to: {} {}; choose another place, or remove it (penstock "
                                "clean {} --stores --yes)",
                                copy.text(), why, fmt::join(copy.all(), " ")));
}

Status check_apart(const StoreDirectories& copy, const StoreDirectories& store) {
  for (const std::string& one : copy.all()) {
    for (const std::string& other : store.all()) {
      std::error_code none;  // a path that cannot be followed is refused where it is used
      const auto full = [&](const std::string& path) {
        return std::filesystem::weakly_canonical(path, none);
      };
      if (full(one) != full(other)) continue;
      return make_error(Errc::kArgument, fmt::format("--copy-to: {} is the store that is trained "
                                                     "on; choose another place",
                                                     one));
    }
  }
  return ok();
}

}  // namespace

Result<Copies> Copies::open(Storage& storage, std::vector<std::string> places,
                            const StoreDirectories& store,
                            const std::optional<StoreUuid>& sums_uuid) {
  std::array<Slot, 2> slots = {Slot{directories_of(places, 0), {}},
                               Slot{directories_of(places, 1), {}}};
  std::optional<std::size_t> newest;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    Slot& slot = slots[i];
    PENSTOCK_CHECK_OK(check_apart(slot.directories, store));
    PENSTOCK_TAKE(there, holds_commit(storage, slot.directories));
    if (!there) continue;
    const auto copy = open_store(storage, slot.directories, {}, /*writable=*/false);
    if (!copy) {
      return unusable(slot.directories, "cannot be read (" + copy.error().message + ")");
    }
    if (!sums_uuid || copy.value()->sums_uuid() != *sums_uuid) {
      return unusable(slot.directories, "is a copy of another training");
    }
    slot.directories = copy.value()->directories();
    slot.step = copy.value()->committed().step;
    if (!newest || *slot.step >= *slots[*newest].step) newest = i;
  }
  Copies copies(storage, std::move(places), std::move(slots));
  if (sums_uuid) copies.sums_uuid_ = *sums_uuid;
  copies.newest_ = newest;
  return copies;
}

/// Its files are there to be made anew, or nothing is.
Status Copies::prepare(Slot& slot) {
  for (const std::string& place : places_) {
    PENSTOCK_TAKE(there, storage_->exists(place));
    if (there) continue;
    PENSTOCK_CHECK_OK(storage_->make_directory(place));
    const std::string parent = std::filesystem::path(place).parent_path().string();
    PENSTOCK_CHECK_OK(storage_->sync_directory(parent.empty() ? "." : parent));
  }
  if (!slot.step) return ok();
  PENSTOCK_CHECK_OK(retire_store(*storage_, slot.directories, {sums_uuid_, *slot.step}));
  slot.step.reset();
  return ok();
}

std::optional<CopyLine> Copies::begin(Engine& engine) {
  const std::size_t next = newest_ == std::size_t{0} ? 1 : 0;
  Slot& slot = slots_[next];
  Status begun = prepare(slot);
  if (begun) begun = engine.tee(slot.directories);
  if (!begun) return CopyLine{engine.step(), slot.directories.text(), begun.error().message};
  under_way_ = next;
  return std::nullopt;
}

std::optional<CopyLine> Copies::ended(const Engine& engine) {
  if (!under_way_) return std::nullopt;
  const TeeReport report = engine.last_tee();
  if (report.state == TeeReport::State::kCopying) return std::nullopt;
  Slot& slot = slots_[*under_way_];
  if (report.state == TeeReport::State::kDone) {
    slot.step = report.step;
    newest_ = under_way_;
  }
  under_way_.reset();
  return CopyLine{report.step, slot.directories.text(), report.failure};
}

}  // namespace penstock
