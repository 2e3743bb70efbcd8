#pragma once

/// Measures a table of transformer kernels against transformer_reference.hpp, and against what the
/// contract promises exactly. Each check returns "" or its first finding, so that mutants can be
/// shown to be found.
///
/// Tolerances are bounds from the operation count, in u = 2^-24 (half an ulp of 1): a sum of n
/// terms over 16 lanes errs by at most (n/16 + 4) u of the sum of magnitudes, exp by 2 u, others by
/// u.

#include <cmath>
#include <cstddef>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/cpu/transformer.hpp"
#include "kernels/kernel_test_support.hpp"
#include "kernels/transformer_reference.hpp"

namespace penstock::test {

using Floats = std::vector<float>;

struct TransformerCheck {
  const char* name;
  std::string (*run)(const TransformerKernels& kernels);
};

/// All of them, in the order of the header.
std::span<const TransformerCheck> norm_checks();
std::span<const TransformerCheck> attention_checks();
std::span<const TransformerCheck> pointwise_checks();
std::span<const TransformerCheck> vocabulary_checks();
std::vector<TransformerCheck> transformer_checks();

inline constexpr double kHalfUlp = 0x1p-24;
inline constexpr double kSmallestNormal = 0x1p-126;
inline double lane_sum_error(std::size_t n) {
  return (static_cast<double>(n) / 16.0 + 5.0) * kHalfUlp;
}

struct RowShape {
  std::size_t rows, n;
};
inline constexpr RowShape kRowShapes[] = {{0, 16}, {3, 1},  {2, 2},   {2, 15},  {3, 16},
                                          {4, 17}, {2, 31}, {3, 100}, {3, 333}, {1, 1024}};

/// Collects the first finding.
class Verdict {
 public:
  explicit Verdict(std::string what) : what_(std::move(what)) {}

  void near(const char* name, std::size_t index, double got, double want, double tolerance) {
    if (std::fabs(got - want) <= tolerance || !first_.empty()) return;
    std::ostringstream text;
    text.precision(9);
    text << name << '[' << index << "] = " << got << ", want " << want << " within " << tolerance;
    find(text.str());
  }
  /// The same bits, NaNs alike.
  void same(const char* name, std::size_t index, float got, float want) {
    if (canonical_bits(got) == canonical_bits(want) || !first_.empty()) return;
    std::ostringstream text;
    text << name << '[' << index << "] = " << std::hexfloat << got << ", want exactly " << want;
    find(text.str());
  }
  void find(const std::string& finding) {
    if (first_.empty()) first_ = what_ + ": " + finding;
  }
  [[nodiscard]] const std::string& first() const { return first_; }

 private:
  std::string what_;
  std::string first_;
};

inline Floats random_floats(std::size_t n, std::uint64_t seed, double deviation = 1.0,
                            double centre = 0.0) {
  RandomBits random(seed);
  Floats out(n);
  for (float& each : out) each = static_cast<float>(centre + deviation * random.normal());
  return out;
}
inline reference::Row row_of(const Floats& all, std::size_t r, std::size_t n) {
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(r * n);
  return {begin, begin + static_cast<std::ptrdiff_t>(n)};
}
inline std::string shape_text(const RowShape& shape) {
  return std::to_string(shape.rows) + " rows of " + std::to_string(shape.n);
}

}  // namespace penstock::test
