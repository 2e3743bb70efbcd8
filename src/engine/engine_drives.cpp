// The engine and its drives: what they give, what each gets, and those that hang, slow down or
// fail.

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/units.hpp"
#include "engine/drive_set.hpp"
#include "engine/engine_impl.hpp"

namespace penstock {
namespace {

constexpr std::uint64_t kStallWarningNs = 30'000'000'000;
constexpr std::size_t kMostDrives = 64, kNamedTensors = 8;

/// Of the bytes in the forward, where states go both ways (the backward only reads, and spills);
/// 0: nothing is written.
double planned_read_share(const Plan& plan) {
  const Plan::Traffic& traffic = plan.traffic;
  const auto writes = static_cast<double>(traffic.hi_write + traffic.state_write);
  const auto reads = static_cast<double>(traffic.hi_write + traffic.state_read + traffic.spill);
  return writes > 0.0 ? reads / (reads + writes) : 0.0;
}

/// The spill areas of all files, cut so that each file has as many parts as its share of them.
std::vector<DriveRegion> spill_regions(const Store& store, std::uint64_t most_bytes) {
  constexpr std::uint64_t kParts = 16, kUnit = 2 * kMiB;
  struct Area {
    FileId file;
    std::uint64_t begin, end, extents;
  };
  std::vector<Area> areas;
  const std::size_t spills = store.geometry().spill_bytes.size();
  for (std::size_t i = 0; i < spills; ++i) {
    const DriveExtent at = store.spill(i);
    const std::uint64_t end = at.offset_bytes + store.geometry().spill_bytes[i];
    const auto known = std::find_if(areas.begin(), areas.end(),
                                    [&](const Area& area) { return area.file == at.file; });
    if (known == areas.end()) {
      areas.push_back({at.file, at.offset_bytes, end, 1});
    } else {
      known->end = std::max(known->end, end);
      ++known->extents;
    }
  }
  std::vector<DriveRegion> regions;
  for (const Area& area : areas) {
    const std::uint64_t parts =
        areas.size() == 1
            ? 1
            : std::max<std::uint64_t>(1, (kParts * area.extents + spills / 2) / spills);
    const std::uint64_t bytes =
        std::min(area.end - area.begin, most_bytes / areas.size()) / parts / kUnit * kUnit;
    for (std::uint64_t part = 0; part < parts && bytes != 0; ++part) {
      regions.push_back({area.file, area.begin + part * bytes, bytes});
    }
  }
  return regions;
}

}  // namespace

// --- opening ---------------------------------------------------------------------------------

/// By directory: the caller's, measured, or equal.
Status EngineImpl::choose_shares(const StoreDirectories& directories, StoreGeometry& geometry) {
  geometry.drives.assign(directories.size(), 1);
  if (directories.size() == 1) return ok();
  if (!options_.drive_shares.empty()) {
    if (options_.drive_shares.size() != directories.size()) {
      return make_error(Errc::kArgument,
                        fmt::format("{} shares for {} directories; give one each",
                                    options_.drive_shares.size(), directories.size()));
    }
    geometry.drives = options_.drive_shares;
    return ok();
  }
  if (options_.measure_drive_seconds <= 0.0) return ok();
  PENSTOCK_TAKE(dealt, measure_shares(parts_.storage, directories, geometry, options_.scratch,
                                      planned_read_share(plan_), options_.measure_drive_seconds,
                                      options_.queue));
  geometry.drives = dealt.shares;
  drive_words_ = dealt.words;
  return ok();
}

/// Rates of the drive, on spill extents (whose content does not outlive a step) and the frames,
/// which hold nothing yet.
Status EngineImpl::measure() {
  constexpr std::uint64_t kLargest = 256 * kMiB, kSmallest = 8 * kMiB;
  const std::uint64_t memory = std::min<std::uint64_t>(
      8 * kMiB * (1 + options_.further_directories.size()), plan_.host_bytes / 2 / kMiB * kMiB);
  if (options_.measure_drive_seconds <= 0.0 || arena_->bytes() < memory) return ok();
  const std::vector<DriveRegion> regions = spill_regions(*store_, kLargest);
  std::uint64_t all = 0;
  for (const DriveRegion& region : regions) all += region.bytes;
  if (all < kSmallest) return ok();
  PENSTOCK_TAKE(rates, measure_drives(parts_.storage, regions, {arena_->data(), memory},
                                      options_.measure_drive_seconds, queue_options()));
  drive_rates_ = rates;
  counters_.add(Link::kDriveWrite, TensorClass::kOther, TrafficKind::kInitial, rates.written_bytes);
  std::memset(arena_->data(), 0, memory);
  return ok();
}

/// The caller's wishes, and what only the engine knows: its frames, its drives, its traffic.
QueueOptions EngineImpl::queue_options() const {
  QueueOptions queue = options_.queue;
  if (arena_->bytes() > 0) queue.memory = {{arena_->data(), arena_->bytes()}};
  queue.drives = static_cast<std::uint32_t>(1 + options_.further_directories.size());
  if (queue.read_share == 0.0) queue.read_share = planned_read_share(plan_);
  return queue;
}

// --- running ---------------------------------------------------------------------------------

/// Called once, when the queue is there.
void EngineImpl::watch_drives() {
  std::vector<DriveWatch::Drive> drives;
  // Slots are dealt in turn, so the first round has all files.
  const auto slots = std::min<std::size_t>(store_->slot_count(), 64 * kMostDrives);
  for (SlotIndex slot = 0; slot < slots && drives.size() < kMostDrives; ++slot) {
    const FileId file = store_->slot(slot).file;
    const std::uint64_t number = parts_.storage.drive(file);
    const bool known = std::any_of(drives.begin(), drives.end(),
                                   [&](const auto& drive) { return drive.number == number; });
    if (known) continue;
    drives.push_back({number, store_->path_of(file)});
    if (!parts_.storage.is_direct(file)) tell_direct_refused(drives.back().directory);
  }
  drive_watch_.emplace(std::move(drives));
}

/// Once in a run.
void EngineImpl::tell_direct_refused(const std::string& where) {
  if (told_direct_refused_) return;
  told_direct_refused_ = true;
  PENSTOCK_LOG(parts_.logger, LogLevel::kWarning,
               "{} takes no direct I/O, so its transfers go through the page cache: a copy of each "
               "byte, and memory beyond the budget; put the store on ext4 or xfs to avoid it",
               where);
}

/// Requests that a drive does not answer, while others may. Needs the lock.
Status EngineImpl::check_drives(std::uint64_t now_ns) {
  if (!drive_watch_->due(now_ns)) return ok();
  std::array<DriveStats, kMostDrives> stats;
  const std::size_t count = std::min(queue_->drive_stats(stats), stats.size());
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t drive = drive_watch_->find(stats[i].drive);
    if (drive == drive_watch_->size()) continue;
    const std::uint64_t age = stats[i].oldest_in_flight_ns;
    if (drive_watch_->stalled(drive, age > kStallWarningNs)) {
      PENSTOCK_LOG(parts_.logger, LogLevel::kWarning,
                   "the drive of {} has not answered a request for {} s; the run waits",
                   drive_watch_->directory(drive), age / 1'000'000'000);
    }
    if (age <= options_.deadline_ns) continue;
    fail(make_error(
        Errc::kTimeout,
        fmt::format("the drive of {} has not answered a request for {} s; the last "
                    "commit (step {}) is safe: restart once the drive answers",
                    drive_watch_->directory(drive), age / 1'000'000'000, committed_step_)));
    return sticky();
  }
  return ok();
}

/// At the end of a step: drives that gave less, or refused direct I/O only when it came to a
/// transfer. Needs the lock.
void EngineImpl::look_at_drives() {
  if (queue_->stats().direct_refused > 0) tell_direct_refused(options_.directory);
  std::array<DriveStats, kMostDrives> stats;
  const std::size_t count = std::min(queue_->drive_stats(stats), stats.size());
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t drive = drive_watch_->find(stats[i].drive);
    if (drive == drive_watch_->size()) continue;
    const DriveWatch::Event event = drive_watch_->step_ended(drive, stats[i], parts_.now_ns());
    if (event.kind == DriveWatch::Event::Kind::kNone) continue;
    const bool slow = event.kind == DriveWatch::Event::Kind::kSlow;
    PENSTOCK_LOG(parts_.logger, LogLevel::kWarning,
                 "the drive of {} {} {:.0f} MB/s, {:.0f} MB/s is usual{}",
                 drive_watch_->directory(drive), slow ? "gives only" : "gives again",
                 event.rate * 1e-6, event.usual * 1e-6,
                 slow ? "; look at its temperature and health, or \"penstock checkpoint copy\" the "
                        "store, which measures its drives anew"
                      : "");
  }
}

/// The tensors that have a part in a file, for the message about a drive that fails.
std::string EngineImpl::tensors_on(FileId file) const {
  std::vector<bool> there(model_.tensors.size(), false);
  for (std::uint32_t block = 0; block < plan_.blocks.size(); ++block) {
    const SlotIndex slot = table_->entry(block).slot;
    if (slot == kNoSlot || store_->slot(slot).file != file) continue;
    for (const auto& range : layout_.block_ranges(block)) there[range.tensor] = true;
  }
  std::string text;
  std::size_t count = 0;
  for (std::size_t tensor = 0; tensor < there.size(); ++tensor) {
    if (!there[tensor] || ++count > kNamedTensors) continue;
    text += fmt::format("{}\"{}\"", text.empty() ? "" : ", ", model_.tensors[tensor].name);
  }
  if (count > kNamedTensors) text += fmt::format(" and {} more", count - kNamedTensors);
  return text;
}

}  // namespace penstock
