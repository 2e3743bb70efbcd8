#pragma once

/// Figures from samples: percentiles, medians, spreads, and ratios of values taken in rounds.
///
/// A benchmark on a shared machine is trusted for its ratios: both sides are taken in every round,
/// so that a change of the machine's pace meets both, and the median over the rounds is reported.
/// Threads: pure functions. Empty input gives zeros, which mean "not measured".

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace penstock {

/// The value below which `share` (0..1) of the sorted values lie, by linear interpolation between
/// the two nearest; 0 when there are none.
[[nodiscard]] double percentile_of_sorted(std::span<const double> sorted, double share);

[[nodiscard]] double median(std::vector<double> values);

/// What a figure was over the rounds of a run.
struct Spread {
  double p10 = 0.0, median = 0.0, p90 = 0.0;
  std::size_t count = 0;  ///< rounds; 0: not measured

  /// p90 / p10 - 1: how much the rounds differ; 0 where that is not known.
  [[nodiscard]] double noise() const { return p10 > 0.0 ? p90 / p10 - 1.0 : 0.0; }
};
[[nodiscard]] Spread spread_of(std::vector<double> values);

/// The spread of a[i] / b[i] over the rounds in which both were measured (b[i] > 0, a[i] > 0). The
/// median of ratios, not the ratio of medians.
[[nodiscard]] Spread spread_of_ratios(std::span<const double> a, std::span<const double> b);

/// Latencies of one round.
struct Latency {
  double p50_ns = 0.0, p99_ns = 0.0, p999_ns = 0.0, max_ns = 0.0;
  std::size_t count = 0;
};
[[nodiscard]] Latency latency_of(std::vector<double> samples_ns);

/// The rate of a drive that reads or writes but does not do both at once: moving `read_share` of
/// the bytes at `read_rate` and the others at `write_rate` takes the sum of both times. 0 where a
/// rate that is needed is 0.
[[nodiscard]] double harmonic_rate(double read_share, double read_rate, double write_rate);

/// 0 .. count-1 in an order drawn from the seed and the round.
[[nodiscard]] std::vector<std::size_t> shuffled_order(std::size_t count, std::uint64_t seed,
                                                      std::uint64_t round);

}  // namespace penstock
