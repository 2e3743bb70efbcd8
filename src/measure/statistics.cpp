#include "measure/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/random.hpp"

namespace penstock {

double percentile_of_sorted(std::span<const double> sorted, double share) {
  if (sorted.empty()) return 0.0;
  const double place = std::clamp(share, 0.0, 1.0) * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  const double part = place - static_cast<double>(below);
  return sorted[below] + part * (sorted[above] - sorted[below]);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return percentile_of_sorted(values, 0.5);
}

Spread spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {percentile_of_sorted(values, 0.1), percentile_of_sorted(values, 0.5),
          percentile_of_sorted(values, 0.9), values.size()};
}

Spread spread_of_ratios(std::span<const double> a, std::span<const double> b) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (a[i] > 0.0 && b[i] > 0.0) ratios.push_back(a[i] / b[i]);
  }
  return spread_of(std::move(ratios));
}

Latency latency_of(std::vector<double> samples_ns) {
  if (samples_ns.empty()) return {};
  std::sort(samples_ns.begin(), samples_ns.end());
  return {percentile_of_sorted(samples_ns, 0.5), percentile_of_sorted(samples_ns, 0.99),
          percentile_of_sorted(samples_ns, 0.999), samples_ns.back(), samples_ns.size()};
}

double harmonic_rate(double read_share, double read_rate, double write_rate) {
  const double write_share = 1.0 - read_share;
  if ((read_share > 0.0 && read_rate <= 0.0) || (write_share > 0.0 && write_rate <= 0.0)) {
    return 0.0;
  }
  double seconds_per_byte = 0.0;
  if (read_share > 0.0) seconds_per_byte += read_share / read_rate;
  if (write_share > 0.0) seconds_per_byte += write_share / write_rate;
  return 1.0 / seconds_per_byte;
}

std::vector<std::size_t> shuffled_order(std::size_t count, std::uint64_t seed,
                                        std::uint64_t round) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = count; i > 1; --i) {
    std::swap(order[i - 1], order[mix64(seed, round, i) % i]);
  }
  return order;
}

}  // namespace penstock
