#pragma once

/// Whether a machine became slower: two bench reports, row by row.
///
/// A figure has regressed where it is worse by more than the tolerance and the spreads (p10 to p90
/// over the rounds) of both runs do not touch: then the noise that both measured does not explain
/// it. Rates of all rows are compared, and of demand reads the p99 latency.
/// Threads: pure functions.
/// Errors:  kArgument where the two cannot be compared: another device or filesystem, another
/// block,
///          depth or number of threads, another processor, too few rounds, no row in common.

#include <string>
#include <vector>

#include "base/result.hpp"
#include "measure/bench_report.hpp"

namespace penstock {

inline constexpr double kDefaultTolerance = 0.05;
inline constexpr std::size_t kLeastComparedRounds = 3;  // with fewer nothing is known of the noise

struct BenchChange {
  std::string row, figure;  ///< figure: "GB/s", "p99 us"
  Spread before, now;       ///< in the unit of `figure`
  double change = 0.0;      ///< now / before - 1, of the medians
  bool is_regression = false;
};

struct BenchComparison {
  std::vector<BenchChange> changes;      ///< in the order of the new report
  std::vector<std::string> only_before;  ///< rows that were not measured now

  [[nodiscard]] std::vector<const BenchChange*> regressions() const;
};

/// Whether the drives and the machine are the same, before anything is measured.
Status check_same_drives(const std::vector<BenchTarget>& before,
                         const std::vector<BenchTarget>& now);

Result<BenchComparison> compare_benches(const BenchReport& before, const BenchReport& now,
                                        double tolerance);

}  // namespace penstock
