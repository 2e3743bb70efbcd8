#include "engine/ranks.hpp"

#include <fmt/format.h>

namespace penstock {
namespace {

constexpr std::uint64_t kRankDeadlineNs = 120'000'000'000;

/// What rank 0 tells the others at opening.
struct Start {
  StoreUuid run;
  std::uint64_t sequence = 0;
  std::uint32_t found = 0, verify = 0;
};

}  // namespace

std::uint64_t Ranks::deadline() const {
  return now_ns_() + kRankDeadlineNs;
}

Status Ranks::agree(Status mine, const char* what) {
  if (alone()) return mine;
  std::uint64_t failed = mine ? 0 : 1;
  Status met = communicator_.all_reduce_or({&failed, 1}, deadline());
  if (!mine) return mine;
  PENSTOCK_CHECK_OK(std::move(met));
  if (failed == 0) return ok();
  return make_error(Errc::kCancelled,
                    fmt::format("another rank failed in {}; look at its message", what));
}

Status Ranks::same(std::uint64_t value, const char* what) {
  if (alone()) return ok();
  std::uint64_t first = value;
  PENSTOCK_CHECK_OK(
      communicator_.broadcast(std::as_writable_bytes(std::span(&first, 1)), 0, deadline()));
  if (first == value) return agree(ok(), what);
  return agree(
      make_error(Errc::kState,
                 fmt::format("{} are {} on rank {} and {} on rank 0; give all ranks the same", what,
                             value, rank(), first)),
      what);
}

Result<std::optional<RankOptions>> Ranks::find(Storage& storage,
                                               const StoreDirectories& directories) {
  auto mine = holds_commit(storage, directories);
  if (alone()) {
    if (!mine) return std::move(mine).error();
    return mine.value() ? std::optional(RankOptions{}) : std::nullopt;
  }
  Status status = mine ? ok() : Status(mine.error());
  Start start;
  if (rank() == 0 && status) {
    auto global = read_global(storage, directories);
    if (!global) status = std::move(global).error();
    if (status && global.value()) {
      const FoundGlobal& found = *global.value();
      start = {found.record.run, found.record.sequence, 1, found.is_newest ? 0U : 1U};
      if (found.record.ranks != static_cast<std::uint32_t>(communicator_.size())) {
        status =
            make_error(Errc::kState,
                       fmt::format("the store in {} is of {} ranks, and {} are running; start "
                                   "as many",
                                   directories.text(), found.record.ranks, communicator_.size()));
      }
    }
  }
  PENSTOCK_CHECK_OK(agree(std::move(status), "opening its store"));
  PENSTOCK_CHECK_OK(
      communicator_.broadcast(std::as_writable_bytes(std::span(&start, 1)), 0, deadline()));
  std::uint64_t any = mine.value() ? 1 : 0;
  PENSTOCK_CHECK_OK(communicator_.all_reduce_or({&any, 1}, deadline()));
  if (start.found == 0 && any != 0) {
    return make_error(
        Errc::kState,
        "some ranks hold commits, but rank 0 has no record that all do: their creation did "
        "not finish, or these are directories of different runs; name the right "
        "ones, or new ones");
  }
  if (start.found == 0) return std::optional<RankOptions>();
  run_ = start.run;
  RankOptions options;
  options.rank = rank();
  options.count = static_cast<std::uint32_t>(communicator_.size());
  options.uuid = rank_uuid(run_, rank());
  options.sequence = start.sequence;
  options.verify = start.verify != 0;
  return std::optional(options);
}

Result<RankOptions> Ranks::begin(std::uint64_t uuid_seed) {
  RankOptions options;
  if (alone()) return options;
  run_ = make_uuid(uuid_seed);
  PENSTOCK_CHECK_OK(
      communicator_.broadcast(std::as_writable_bytes(std::span(&run_, 1)), 0, deadline()));
  options.rank = rank();
  options.count = static_cast<std::uint32_t>(communicator_.size());
  options.uuid = rank_uuid(run_, rank());
  return options;
}

Status Ranks::reserve(Storage& storage, const StoreDirectories& directories,
                      const ProtocolFaults& faults) {
  if (alone()) return ok();
  Status reserved = ok();
  if (rank() == 0) {
    records_ = std::make_unique<GlobalRecords>(storage, directories, faults);
    reserved = records_->reserve();
  }
  return agree(std::move(reserved), "opening its store");
}

Status Ranks::commit(Store& store, const CommitRecord& record, std::span<const SlotEntry> entries) {
  if (alone()) return store.commit(record, entries);
  PENSTOCK_CHECK_OK(agree(store.prepare(record, entries), "a commit"));
  Status written = ok();
  if (rank() == 0) {
    written = records_->write(
        {run_, store.sequence(), record.step, static_cast<std::uint32_t>(communicator_.size())});
  }
  // No rank uses a slot of the commit before until the record is durable.
  PENSTOCK_CHECK_OK(agree(std::move(written), "a commit"));
  return store.settle();
}

}  // namespace penstock
