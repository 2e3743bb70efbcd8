#pragma once

/// What `penstock tune` does: for each drive, which settings of the storage queue it likes best.
///
/// Requests are those of a training: more of 2 MiB wait than the queue lets go, reads alone and
/// reads and writes in turn, through the engine's own queue. Drives are taken one after another,
/// each for its part of the time. Nothing stays behind: the files have no names.
/// Threads: one run at a time, from one thread; the observer is called from it.
/// Errors:  kArgument, kNoMemory, kNoSpace, kUnsupported before anything is measured; kIo, kTimeout
///          of a drive; kCancelled when `stop` was set.

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "measure/bench_report.hpp"
#include "measure/rounds.hpp"
#include "measure/tune_search.hpp"

namespace penstock {

struct TuneOptions {
  std::vector<std::string> paths;  ///< a directory on each drive; those on one drive count once
  double seconds = 60.0;           ///< of the whole
  std::uint64_t size_bytes = 0;    ///< of the file in each path; 0: as benchmarks have it
  bool must_be_known = true;       ///< a drive without an identity is refused: no profile finds it
  std::uint64_t seed = 1;
  std::string version;  ///< of the program, for the profile
};

struct TunedDrive {
  BenchTarget target;
  std::string queue;  ///< the default backend here, "io_uring" or "threads", and why
  std::string queue_reason;
  TuneOutcome outcome;
  DriveProfile profile;  ///< to be written
};

struct TuneReport {
  std::vector<TunedDrive> drives;
  std::vector<std::string> notes;
  std::uint64_t unix_seconds = 0;
  double seconds = 0.0;  ///< that it took
};

Result<TuneReport> run_tune(const TuneOptions& options, BenchObserver& observer,
                            const std::atomic<bool>& stop);

/// What was found on a drive, in a sentence.
[[nodiscard]] std::string tune_words(const TunedDrive& drive);

}  // namespace penstock
