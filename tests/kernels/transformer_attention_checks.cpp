// Causal softmax, its backward and RoPE against double, and what is promised exactly.

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/transformer_checker.hpp"

namespace penstock::test {
namespace {

using reference::Row;

constexpr std::size_t kEverything = std::numeric_limits<std::size_t>::max();

std::size_t visible(std::size_t r, std::size_t n, std::size_t first_visible) {
  return first_visible >= n ? n : std::min(n, first_visible + r + 1);
}

void compare_softmax(const Floats& x, const Floats& y, std::size_t rows, std::size_t n,
                     std::size_t first_visible, float scale, Verdict& verdict) {
  for (std::size_t r = 0; r < rows; ++r) {
    Row seen = row_of(x, r, n);
    seen.resize(visible(r, n, first_visible));
    const Row want = reference::softmax(seen, scale);
    double largest = 0.0;
    for (const double each : seen) {
      if (std::isfinite(each)) largest = std::fmax(largest, std::fabs(each * scale));
    }
    // A rounding of the exponent's argument is a relative error of the term.
    const double relative = lane_sum_error(n) + (4.0 * largest + 8.0) * kHalfUlp;
    for (std::size_t i = 0; i < n; ++i) {
      const float got = y[r * n + i];
      if (i >= seen.size()) {
        verdict.same("masked y", r * n + i, got, 0.0F);
      } else {
        verdict.near("y", r * n + i, got, want[i], relative * want[i] + kSmallestNormal);
      }
    }
  }
}

std::string check_causal_softmax(const TransformerKernels& k) {
  constexpr double kDeviations[] = {1.0, 0.0, 30.0, 3000.0};
  constexpr float kScales[] = {1.0F, 0.125F, -0.5F};
  for (const auto& [rows, n] : kRowShapes) {
    for (const std::size_t first_visible : {std::size_t{0}, std::size_t{14}, n / 2, kEverything}) {
      for (const double deviation : kDeviations) {
        for (const float scale : kScales) {
          Verdict verdict("causal_softmax of " + shape_text({rows, n}) + " from " +
                          std::to_string(first_visible));
          const Floats x = random_floats(rows * n, 11, deviation, 1.5);
          Floats y = x;
          k.causal_softmax(rows, n, first_visible, scale, y.data());
          compare_softmax(x, y, rows, n, first_visible, scale, verdict);
          if (!verdict.first().empty()) return verdict.first();
        }
      }
    }
  }
  return "";
}

std::string check_causal_softmax_specials(const TransformerKernels& k) {
  Verdict verdict("causal_softmax of special values");
  constexpr std::size_t kColumns = 37;
  const auto softmax = [&](Floats x, std::size_t first_visible) {
    k.causal_softmax(1, kColumns, first_visible, 1.0F, x.data());
    return x;
  };
  Floats masked = random_floats(kColumns, 12, 2.0);
  masked[0] = masked[17] = masked[36] = -INFINITY;
  const Floats p = softmax(masked, kEverything);
  compare_softmax(masked, p, 1, kColumns, kEverything, 1.0F, verdict);
  for (const std::size_t i : {0U, 17U, 36U}) verdict.same("y of -inf", i, p[i], 0.0F);

  Floats one(kColumns, -INFINITY);
  one[20] = -5.0F;
  const Floats certain = softmax(one, kEverything);
  for (std::size_t i = 0; i < kColumns; ++i) {
    verdict.same("y of one candidate", i, certain[i], i == 20 ? 1.0F : 0.0F);
  }
  Floats poisoned = random_floats(kColumns, 13);
  poisoned[33] = NAN;
  const Floats unseen = softmax(poisoned, 32);
  const Floats seen = softmax(poisoned, 33);
  for (std::size_t i = 0; i < kColumns; ++i) {
    if (i >= 33) verdict.same("NaN beyond the limit", i, unseen[i], 0.0F);
    if (i < 33 && !std::isfinite(unseen[i])) verdict.find("a NaN beyond the limit was read");
    verdict.same("NaN within the limit", i, seen[i], i < 34 ? NAN : 0.0F);
  }
  return verdict.first();
}

std::string check_softmax_backward(const TransformerKernels& k) {
  constexpr float kScale = 0.125F;
  for (const auto& [rows, n] : kRowShapes) {
    for (const std::size_t first_visible : {std::size_t{0}, n / 2, kEverything}) {
      Verdict verdict("softmax_backward of " + shape_text({rows, n}) + " from " +
                      std::to_string(first_visible));
      Floats p = random_floats(rows * n, 14, 2.0);
      k.causal_softmax(rows, n, first_visible, 1.0F, p.data());
      const Floats dp = random_floats(rows * n, 15, 1.0, 0.5);
      Floats ds = dp;
      k.softmax_backward(rows, n, first_visible, kScale, p.data(), ds.data());
      for (std::size_t r = 0; r < rows; ++r) {
        Row weights = row_of(p, r, n);
        Row upstream = row_of(dp, r, n);
        weights.resize(visible(r, n, first_visible));
        upstream.resize(weights.size());
        const Row want = reference::softmax_gradient(weights, upstream, kScale);
        double magnitude = 0.0;
        for (std::size_t i = 0; i < weights.size(); ++i) {
          magnitude += weights[i] * std::fabs(upstream[i]);
        }
        for (std::size_t i = 0; i < n; ++i) {
          const float got = ds[r * n + i];
          if (i >= weights.size()) {
            verdict.same("masked ds", r * n + i, got, 0.0F);
            continue;
          }
          const double tolerance =
              lane_sum_error(n) * magnitude + 4.0 * kHalfUlp * (magnitude + std::fabs(upstream[i]));
          verdict.near("ds", r * n + i, got, want[i], kScale * weights[i] * tolerance);
        }
      }
      if (!verdict.first().empty()) return verdict.first();
    }
  }
  return "";
}

std::string check_rope(const TransformerKernels& k) {
  constexpr std::size_t kRows = 3;
  constexpr std::size_t kHeads = 2;
  for (const std::size_t half : {0U, 1U, 8U, 16U, 20U, 32U, 47U}) {
    Verdict verdict("rope of " + std::to_string(half) + " pairs");
    Floats cosine;
    Floats sine;
    std::vector<double> angles;
    RandomBits random(16);
    for (std::size_t i = 0; i < kRows * half; ++i) {
      angles.push_back(20.0 * random.uniform());
      cosine.push_back(static_cast<float>(std::cos(angles.back())));
      sine.push_back(static_cast<float>(std::sin(angles.back())));
    }
    const Floats x = random_floats(kRows * kHeads * 2 * half, 17);
    for (const float direction : {1.0F, -1.0F}) {
      Floats y = x;
      k.rope(kRows, kHeads, half, cosine.data(), sine.data(), direction, y.data());
      for (std::size_t r = 0; r < kRows; ++r) {
        for (std::size_t h = 0; h < kHeads; ++h) {
          for (std::size_t i = 0; i < half; ++i) {
            const std::size_t at = (r * kHeads + h) * 2 * half + i;
            const auto want =
                reference::rotate({x[at], x[at + half]}, direction * angles[r * half + i]);
            const double tolerance = 4.0 * kHalfUlp * (std::fabs(x[at]) + std::fabs(x[at + half]));
            verdict.near("x", at, y[at], want.first, tolerance);
            verdict.near("x", at + half, y[at + half], want.second, tolerance);
          }
        }
      }
    }
    if (!verdict.first().empty()) return verdict.first();
  }
  return "";
}

constexpr TransformerCheck kAttentionChecks[] = {
    {"CausalSoftmax", check_causal_softmax},
    {"CausalSoftmaxSpecials", check_causal_softmax_specials},
    {"SoftmaxBackward", check_softmax_backward},
    {"Rope", check_rope},
};

}  // namespace

std::span<const TransformerCheck> attention_checks() {
  return kAttentionChecks;
}

}  // namespace penstock::test
