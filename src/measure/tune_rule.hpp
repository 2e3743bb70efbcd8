#pragma once

/// When a setting of the storage queue is better than another one, judged from samples.
///
/// A default is left only for a gain that cannot be noise: the quartiles of both do not touch, the
/// median gains 3 % at least, and neither reads alone nor reads and writes in turn lose by as much.
/// So a profile is never slower than the defaults beyond the noise.
/// Threads: pure functions.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "topo/drive_profile.hpp"

namespace penstock {

/// What one setting reached in one round; bytes a second.
struct TuneSample {
  double read = 0.0;   ///< reads alone
  double mixed = 0.0;  ///< reads and writes in turn, by equal bytes
};

/// Of a step's bytes most are read and written in turn; the backward, evaluations and generation
/// only read.
inline constexpr double kReadAloneShare = 0.25;

/// The rate at which bytes in these proportions go.
[[nodiscard]] double rate_of(const TuneSample& sample);

struct Quartiles {
  double low = 0.0, median = 0.0, high = 0.0;
};
[[nodiscard]] Quartiles quartiles_of(std::vector<double> values);
[[nodiscard]] Quartiles rate_quartiles(std::span<const TuneSample> samples);

/// A setting and what it reached.
struct TunePoint {
  QueueTuning setting;
  std::vector<TuneSample> samples{};
  bool is_dropped = false;  ///< early: it did not gain, or was worse
};

inline constexpr std::size_t kLeastTuneRounds = 5;
inline constexpr double kLeastGain = 0.03;

/// Median of `candidate` to that of `base`, less 1; 0 where one was not measured.
[[nodiscard]] double gain_over(const TunePoint& base, const TunePoint& candidate);

[[nodiscard]] bool is_clear_gain(const TunePoint& base, const TunePoint& candidate);

/// Whether more rounds would hardly make it a gain; false before there are enough of them.
[[nodiscard]] bool is_hopeless(const TunePoint& base, const TunePoint& candidate);

/// The index of the best clear gain over points[base], or `base` where there is none. Of those that
/// the best is not clearly better than, the first: points are in the order of preference.
[[nodiscard]] std::size_t choose_point(const std::vector<TunePoint>& points, std::size_t base);

}  // namespace penstock
