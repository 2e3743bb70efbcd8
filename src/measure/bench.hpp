#pragma once

/// What `penstock bench` does: what drives, memory and the links between them can do, in one
/// report.
///
/// Everything is taken in rounds (rounds.hpp) within a time that bounds the whole. Nothing stays
/// behind: the files have no names.
/// Threads: one run at a time, from one thread; the observer is called from it.
/// Errors:  kArgument, kNoMemory, kNoSpace, kUnsupported before anything is measured; kIo, kTimeout
///          of a drive; kCancelled when `stop` was set.

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "io/storage.hpp"
#include "measure/bench_report.hpp"
#include "measure/io_cases.hpp"
#include "measure/rounds.hpp"

namespace penstock {

enum class BenchWhat : std::uint8_t { kIo, kCopy, kMem, kAll };
[[nodiscard]] const char* name_of(BenchWhat what);

struct BenchOptions {
  BenchWhat what = BenchWhat::kAll;
  std::vector<std::string> paths;  ///< of kIo and kAll: a directory on each drive
  std::uint64_t block_bytes = std::uint64_t{1} << 20;
  std::uint32_t depth = 8;
  BenchRw rw = BenchRw::kAll;
  QueueBackend backend = QueueBackend::kAuto;
  double seconds = 30.0;         ///< of the whole
  double grace_share = 0.5;      ///< of `seconds`, after them, for the first round
  std::uint64_t size_bytes = 0;  ///< of the file in each path; 0: 8 GiB, a tenth of what is free
  bool with_fio = false;
  std::uint64_t seed = 1;
  std::string version;  ///< of the program, for the report
};

Result<BenchReport> run_bench(const BenchOptions& options, BenchObserver& observer,
                              const std::atomic<bool>& stop);

}  // namespace penstock
