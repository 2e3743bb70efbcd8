#include "io/store_pins.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "io/store_load.hpp"
#include "io/store_owner.hpp"

namespace penstock {
namespace {

constexpr std::string_view kRotating = "step-";

/// The oldest checkpoint that a rotation may drop; null: none.
const Pin* oldest_rotating(const Store& store) {
  const auto found = std::find_if(store.pins().begin(), store.pins().end(),
                                  [](const Pin& pin) { return is_rotating(pin.name); });
  return found == store.pins().end() ? nullptr : &*found;
}

std::size_t rotating_count(const Store& store) {
  return static_cast<std::size_t>(
      std::count_if(store.pins().begin(), store.pins().end(),
                    [](const Pin& pin) { return is_rotating(pin.name); }));
}

std::string next_name(const Store& store, std::uint64_t step) {
  const auto taken = [&](const std::string& name) {
    return std::any_of(store.pins().begin(), store.pins().end(),
                       [&](const Pin& pin) { return pin.name == name; });
  };
  const std::string first = fmt::format("{}{}", kRotating, step);
  std::string name = first;
  for (int again = 2; taken(name); ++again) name = fmt::format("{}-{}", first, again);
  return name;
}

void append(PinChange& into, PinChange change) {
  std::move(change.kept.begin(), change.kept.end(), std::back_inserter(into.kept));
  std::move(change.dropped.begin(), change.dropped.end(), std::back_inserter(into.dropped));
}

}  // namespace

bool is_rotating(const std::string& name) {
  if (!name.starts_with(kRotating)) return false;
  const char* at = name.data() + kRotating.size();
  const char* const end = name.data() + name.size();
  std::uint64_t number = 0;
  const auto step = std::from_chars(at, end, number);
  if (step.ec != std::errc()) return false;
  if (step.ptr == end) return true;
  if (*step.ptr != '-') return false;
  const auto again = std::from_chars(step.ptr + 1, end, number);
  return again.ec == std::errc() && again.ptr == end;
}

std::vector<PinSummary> summarize_pins(const Store& store) {
  std::map<SlotIndex, std::size_t> holders;
  for (const Pin& pin : store.pins()) {
    for (const SlotIndex slot : pin.slots) ++holders[slot];
  }
  const SlotTable table = store.make_table();
  std::vector<PinSummary> summaries;
  for (const Pin& pin : store.pins()) {
    PinSummary summary{pin.name,
                       pin.sequence,
                       pin.step,
                       pin.updates,
                       0,
                       is_rotating(pin.name),
                       pin.step == store.committed().step};
    for (std::size_t block = 0; block < pin.slots.size(); ++block) {
      const bool latest = table.entry(block).slot == pin.slots[block];
      summary.is_latest = summary.is_latest && latest;
      if (!latest && holders[pin.slots[block]] == 1) summary.own_bytes += store.slot_bytes();
    }
    summaries.push_back(std::move(summary));
  }
  return summaries;
}

Result<std::vector<PinSummary>> list_pins(Storage& storage, const StoreDirectories& directories) {
  auto store = open_store(storage, directories, {}, false);
  if (!store) return std::move(store).error();
  return summarize_pins(*store.value());
}

Status make_pin(Storage& storage, const StoreDirectories& directories, const std::string& name,
                const StoreOptions& options) {
  auto store = open_store(storage, directories, options, true);
  if (!store) return std::move(store).error();
  auto change = store.value()->pin(name, false);
  return change ? ok() : Status(std::move(change).error());
}

Status drop_pin(Storage& storage, const StoreDirectories& directories, const std::string& name,
                const StoreOptions& options) {
  auto store = open_for_tools(storage, directories, options, true);
  if (!store) return std::move(store).error();
  auto change = store.value()->drop(name);
  return change ? ok() : Status(std::move(change).error());
}

Status restore_pin(Storage& storage, const StoreDirectories& directories, const std::string& name,
                   const StoreOptions& options) {
  auto opened = open_data_files(storage, directories, options, true);
  if (!opened) return std::move(opened).error();
  const std::vector<char> copies = copies_of(opened.value(), name);
  if (copies.empty()) return no_checkpoint(name, directories, pin_names(opened.value()));
  std::string note;
  auto candidate = load_copies(storage, opened.value(), {name, 0, 'a', false}, copies, note);
  if (!candidate && candidate.error().code == Errc::kCorrupt) {
    candidate.error().message += "; go back to another checkpoint, or use a copy of the store";
  }
  if (!candidate) return std::move(candidate).error();
  find_lifetimes(storage, opened.value(), candidate.value(), /*is_checkpoint=*/true);
  for (const std::string& directory : opened.value().directories.all()) {
    PENSTOCK_CHECK_OK(write_owner(storage, directory, this_process()));
  }
  const CommitRecord record = candidate.value().manifest.record;
  auto store = make_store(storage, std::move(opened).value(), std::move(candidate).value(),
                          std::move(note), options, true);
  PENSTOCK_CHECK_OK(store->reserve_manifests());
  std::vector<SlotEntry> entries;
  const SlotTable table = store->make_table();
  for (std::size_t block = 0; block < table.block_count(); ++block) {
    entries.push_back(table.entry(block));
  }
  return store->write_commit(record, entries);
}

Status check_rotation(const Store& store, std::uint64_t step) {
  return store.check_pin(next_name(store, step), oldest_rotating(store) != nullptr);
}

Result<PinChange> begin_rotation(Store& store) {
  return store.pin(next_name(store, store.committed().step), oldest_rotating(store) != nullptr);
}

Result<PinChange> finish_rotation(Store& store, std::uint32_t keep) {
  const std::uint32_t wanted = std::max<std::uint32_t>(keep, 1);
  PinChange change;
  while (rotating_count(store) > wanted || store.pins().size() > store.geometry().pins) {
    const Pin* oldest = oldest_rotating(store);
    if (oldest == nullptr) {
      return make_error(
          Errc::kNoSpace,
          fmt::format("{} holds {} checkpoints and has room for {}; drop one with \"penstock "
                      "checkpoint drop\"",
                      store.directories().text(), store.pins().size(), store.geometry().pins));
    }
    auto dropped = store.drop(std::string(oldest->name));
    if (!dropped) return dropped;
    append(change, std::move(dropped).value());
  }
  return change;
}

Status finish_exchange(Store& store) {
  auto done = finish_rotation(store, ~std::uint32_t{0});
  return done ? ok() : Status(std::move(done).error());
}

}  // namespace penstock
