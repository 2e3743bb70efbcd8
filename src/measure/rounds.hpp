#pragma once

/// Runs measurements in rounds, each once a round, in a random order, with Google Benchmark.
///
/// Every round runs every case once, so that whatever changes on the machine meanwhile meets all of
/// them; the order is drawn from the seed. The cases are registered with Google Benchmark at run
/// time and measure their own time (manual time, one iteration).
/// Time:    a deadline bounds the whole: no round begins that would pass it, and one that does is
///          given up.
/// Threads: one; Google Benchmark's registry belongs to the process, so one run at a time.
/// Errors:  the first of a case; kTimeout where not one round fits; kCancelled.

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "measure/bench_report.hpp"
#include "measure/statistics.hpp"

namespace penstock {

/// What a case says of one round.
struct RoundFigures {
  double bytes_per_second = 0.0;
  double read_share = 0.0;
  double cpu_seconds_per_gb = 0.0;  ///< 0: has no meaning here
  Latency latency;
  double mean_depth = 0.0;
  double window_seconds = 0.0, dropped_seconds = 0.0;
  std::vector<double> drive_bytes_per_second{};
};

struct BenchCase {
  BenchRow row;                   ///< without figures
  double overhead_seconds = 0.0;  ///< that a measurement takes beside its slice
  std::function<Result<RoundFigures>(double seconds)> run{};
};

/// How long a measurement is and how many rounds there are.
struct RoundPlan {
  double slice_seconds = 0.0;
  std::size_t rounds = 0;  ///< 0: the time does not suffice for one
};

inline constexpr std::size_t kWantedRounds = 9;
inline constexpr double kShortestSlice = 0.05, kLongestSlice = 1.0;

/// Fits the wanted rounds into `seconds`; with less time first the slices become shorter, then the
/// rounds fewer; with more, the other way round. Pure.
[[nodiscard]] RoundPlan plan_rounds(double seconds, std::size_t cases, double overhead_seconds);

class BenchObserver {
 public:
  virtual ~BenchObserver() = default;
  virtual void on_note(std::string_view sentence) = 0;
  virtual void on_progress(std::string_view text) = 0;
};

struct RoundOptions {
  std::uint64_t deadline_ns = 0;  ///< as of now_ns()
  std::uint64_t grace_ns = 0;     ///< after it, for the first round, without which there is nothing
  std::uint64_t seed = 1;
};

struct RoundResults {
  RoundPlan plan;                                  ///< rounds: those that were run
  std::vector<std::vector<RoundFigures>> figures;  ///< [case][round]
};

Result<RoundResults> run_rounds(const std::vector<BenchCase>& cases, const RoundOptions& options,
                                BenchObserver& observer, const std::atomic<bool>& stop);

/// The figures of one kind of a case, by round.
[[nodiscard]] std::vector<double> values_of(const std::vector<RoundFigures>& rounds,
                                            double RoundFigures::*figure);

/// The row of a case with its figures.
[[nodiscard]] BenchRow row_of(const BenchCase& of, const std::vector<RoundFigures>& rounds);

}  // namespace penstock
