#include "measure/tune_rule.hpp"

#include <algorithm>

#include "measure/statistics.hpp"

namespace penstock {
namespace {

Quartiles quartiles_of(const TunePoint& point, double TuneSample::*figure) {
  std::vector<double> values;
  for (const TuneSample& sample : point.samples) values.push_back(sample.*figure);
  return penstock::quartiles_of(std::move(values));
}

/// By the medians: to be chosen a setting must be above suspicion.
bool loses(const TunePoint& base, const TunePoint& candidate, double TuneSample::*figure) {
  return quartiles_of(candidate, figure).median <
         (1.0 - kLeastGain) * quartiles_of(base, figure).median;
}

/// Beyond the noise: to be dropped it must have lost.
bool clearly_loses(const TunePoint& base, const TunePoint& candidate, double TuneSample::*figure) {
  return loses(base, candidate, figure) &&
         quartiles_of(candidate, figure).high < quartiles_of(base, figure).low;
}

bool has_enough(const TunePoint& point) {
  return point.samples.size() >= kLeastTuneRounds;
}

}  // namespace

double rate_of(const TuneSample& sample) {
  return harmonic_rate(kReadAloneShare, sample.read, sample.mixed);
}

Quartiles quartiles_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {percentile_of_sorted(values, 0.25), percentile_of_sorted(values, 0.5),
          percentile_of_sorted(values, 0.75)};
}

Quartiles rate_quartiles(std::span<const TuneSample> samples) {
  std::vector<double> rates;
  for (const TuneSample& sample : samples) rates.push_back(rate_of(sample));
  return quartiles_of(std::move(rates));
}

double gain_over(const TunePoint& base, const TunePoint& candidate) {
  const double before = rate_quartiles(base.samples).median;
  const double now = rate_quartiles(candidate.samples).median;
  return before > 0.0 && now > 0.0 ? now / before - 1.0 : 0.0;
}

bool is_clear_gain(const TunePoint& base, const TunePoint& candidate) {
  if (!has_enough(base) || !has_enough(candidate)) return false;
  return rate_quartiles(candidate.samples).low > rate_quartiles(base.samples).high &&
         gain_over(base, candidate) >= kLeastGain && !loses(base, candidate, &TuneSample::read) &&
         !loses(base, candidate, &TuneSample::mixed);
}

bool is_hopeless(const TunePoint& base, const TunePoint& candidate) {
  if (!has_enough(base) || !has_enough(candidate)) return false;
  return gain_over(base, candidate) <= 0.0 || clearly_loses(base, candidate, &TuneSample::read) ||
         clearly_loses(base, candidate, &TuneSample::mixed);
}

std::size_t choose_point(const std::vector<TunePoint>& points, std::size_t base) {
  const auto is_gain = [&](std::size_t i) {
    return i != base && !points[i].is_dropped && is_clear_gain(points[base], points[i]);
  };
  std::size_t best = base;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (is_gain(i) && (best == base || gain_over(points[best], points[i]) > 0.0)) best = i;
  }
  if (best == base) return base;
  const double low = rate_quartiles(points[best].samples).low;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (is_gain(i) && rate_quartiles(points[i].samples).high >= low) return i;
  }
  return best;
}

}  // namespace penstock
