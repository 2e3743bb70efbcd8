#include "measure/tune.hpp"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "base/clock.hpp"
#include "base/units.hpp"
#include "measure/io_context.hpp"

namespace penstock {
namespace {

constexpr double kFillShare = 0.2;   // of a drive's time, at most, for writing its file once
constexpr double kEndSeconds = 0.1;  // kept for the end, so that the whole ends in time
constexpr std::uint64_t kRequestBytes = 2 * kMiB;
// More than the largest credits let go, 16 MiB each way, so that the credits decide.
constexpr std::uint32_t kReadDepth = 16, kMixedDepth = 24;

struct Place {
  std::string path;
  DriveIdentity drive;
};

Result<std::vector<Place>> find_places(const TuneOptions& options,
                                       std::vector<std::string>& notes) {
  std::vector<Place> places;
  for (const std::string& path : options.paths) {
    PENSTOCK_CHECK_OK(check_bench_path(path));
    Place place{path, identify_drives(path)};
    if (options.must_be_known && place.drive.drives.empty() && place.drive.filesystem.empty()) {
      return make_error(Errc::kUnsupported,
                        fmt::format("\"{}\": the system does not say which drive it lies on, so a "
                                    "profile would not be found again; --dry-run measures without "
                                    "writing one",
                                    path));
    }
    const auto same = std::find_if(places.begin(), places.end(), [&](const Place& other) {
      return other.drive.id == place.drive.id && other.drive.filesystem == place.drive.filesystem;
    });
    if (same == places.end()) {
      places.push_back(std::move(place));
    } else {
      notes.push_back(fmt::format("\"{}\" lies on the same drive as \"{}\", and counts once", path,
                                  same->path));
    }
  }
  return places;
}

/// The engine's own queue, turned as a setting says.
QueueKnobs knobs_of(const QueueTuning& setting, bool has_uring) {
  QueueKnobs knobs;
  const bool threads = setting.threads || !has_uring;
  knobs.backend = threads ? QueueBackend::kThreads : QueueBackend::kUring;
  knobs.piece_bytes = setting.piece_bytes;
  knobs.read_credit_bytes = setting.read_credit_bytes;
  knobs.write_credit_bytes = setting.write_credit_bytes;
  knobs.lends_memory = !setting.plain_memory;
  return knobs;
}

Result<TuneSample> measure(IoContext& context, const QueueTuning& setting, bool has_uring,
                           double seconds) {
  QueueKnobs knobs = knobs_of(setting, has_uring);
  const Lane reads =
      context.lane(LaneOps::kRead, LaneOrder::kSequential, kRequestBytes, kReadDepth);
  PENSTOCK_TAKE(read, context.run({&reads, 1}, knobs, seconds));
  knobs.read_share = 0.5;
  const Lane both =
      context.lane(LaneOps::kAlternate, LaneOrder::kSequential, kRequestBytes, kMixedDepth);
  PENSTOCK_TAKE(mixed, context.run({&both, 1}, knobs, seconds));
  return TuneSample{read.bytes_per_second, mixed.bytes_per_second};
}

ProfileRates rates_of(const TunePoint& point) {
  std::vector<double> read, mixed;
  for (const TuneSample& sample : point.samples) {
    read.push_back(sample.read);
    mixed.push_back(sample.mixed);
  }
  return {static_cast<std::uint64_t>(median(std::move(read))),
          static_cast<std::uint64_t>(median(std::move(mixed)))};
}

std::uint64_t unix_now() {
  return static_cast<std::uint64_t>(std::max<std::time_t>(std::time(nullptr), 0));
}

DriveProfile profile_of(const TuneOptions& options, const Place& place, const TuneOutcome& outcome,
                        bool has_uring) {
  DriveProfile profile;
  profile.device = place.drive.id;
  profile.filesystem = place.drive.filesystem;
  std::error_code error;
  profile.path = std::filesystem::absolute(place.path, error).lexically_normal().string();
  profile.version = options.version;
  profile.unix_seconds = unix_now();
  profile.by_default = rates_of(outcome.by_default);
  profile.tuned = profile.by_default;
  if (!outcome.is_tuned) return profile;
  profile.tuned = rates_of(outcome.tuned);
  profile.tuning = outcome.found;
  // Where only threads are to be had, what was measured holds for them.
  if (!has_uring) profile.tuning.threads = true;
  return profile;
}

Result<TunedDrive> tune_drive(const TuneOptions& options, const Place& place, double seconds,
                              TuneReport& report, BenchObserver& observer,
                              const std::atomic<bool>& stop) {
  const std::uint64_t start = now_ns();
  const auto after = [start](double length) {
    return start + static_cast<std::uint64_t>(std::max(length, 0.0) * 1e9);
  };
  const auto storage = make_posix_storage();
  IoContextOptions io;
  io.paths = {place.path};
  io.block_bytes = kRequestBytes;
  io.depth = kMixedDepth;
  io.size_bytes = options.size_bytes;
  io.seed = options.seed;
  io.time_flag = "--budget";
  PENSTOCK_TAKE(context, IoContext::open(*storage, io, kRequestBytes * kMixedDepth,
                                         after(seconds * kFillShare), observer, stop));
  BenchReport described;
  context->report(described);
  const bool has_uring = described.queue == "io_uring";
  TuneParts parts;
  parts.has_uring = has_uring;
  parts.now_ns = [] { return now_ns(); };
  parts.on_progress = [&](std::string_view text) {
    observer.on_progress(fmt::format("{}: {}", place.path, text));
  };
  parts.measure = [&](const QueueTuning& setting, double slice) {
    return measure(*context, setting, has_uring, slice);
  };
  PENSTOCK_TAKE(outcome, search_tuning(parts, after(seconds - kEndSeconds), options.seed));
  TunedDrive drive;
  drive.target = described.targets.front();
  drive.queue = described.queue;
  drive.queue_reason = described.queue_reason;
  drive.profile = profile_of(options, place, outcome, has_uring);
  drive.outcome = std::move(outcome);
  for (const std::string& note : described.notes) {
    report.notes.push_back(fmt::format("{}: {}", place.path, note));
  }
  return drive;
}

}  // namespace

Result<TuneReport> run_tune(const TuneOptions& options, BenchObserver& observer,
                            const std::atomic<bool>& stop) {
  const std::uint64_t start = now_ns();
  TuneReport report;
  PENSTOCK_TAKE(places, find_places(options, report.notes));
  const auto count = static_cast<double>(places.size());
  if (options.seconds < kLeastTuneSeconds * count) {
    return make_error(
        Errc::kArgument,
        fmt::format("--budget {:.3g}s is too short for {} drive{}; grant {:.0f}s at least",
                    options.seconds, places.size(), places.size() == 1 ? "" : "s",
                    kLeastTuneSeconds * count));
  }
  // Wrong sizes and full drives are found before time is spent on the first drive.
  const auto storage = make_posix_storage();
  for (const Place& place : places) {
    PENSTOCK_CHECK_OK(bench_file_bytes(*storage, {place.path}, options.size_bytes));
  }
  for (std::size_t i = 0; i < places.size(); ++i) {
    const double spent = static_cast<double>(now_ns() - start) * 1e-9;
    const double own = (options.seconds - spent) / static_cast<double>(places.size() - i);
    PENSTOCK_TAKE(drive, tune_drive(options, places[i], own, report, observer, stop));
    report.drives.push_back(std::move(drive));
  }
  report.unix_seconds = unix_now();
  report.seconds = static_cast<double>(now_ns() - start) * 1e-9;
  return report;
}

std::string tune_words(const TunedDrive& drive) {
  const TuneOutcome& outcome = drive.outcome;
  const double before = rate_quartiles(outcome.by_default.samples).median;
  const double now = rate_quartiles(outcome.tuned.samples).median;
  if (outcome.found.is_default()) {
    return fmt::format("the defaults stay: nothing else was faster beyond the noise; they give {}",
                       format_rate(before));
  }
  const double gain = 100.0 * gain_over(outcome.by_default, outcome.tuned);
  if (!outcome.is_tuned) {
    return fmt::format(
        "the defaults stay: {} seemed faster, but against the defaults once more gave {} instead "
        "of {} ({:+.1f} %), which may be noise",
        words_of(outcome.found), format_rate(now), format_rate(before), gain);
  }
  return fmt::format("{}: {} instead of {} with the defaults ({:+.1f} %)", words_of(outcome.found),
                     format_rate(now), format_rate(before), gain);
}

}  // namespace penstock
