// Chunked cross entropy against double, embedding rows exactly.

#include <algorithm>
#include <cmath>

#include "kernels/transformer_checker.hpp"

namespace penstock::test {
namespace {

using reference::Row;

/// The running state of rows, folded over a vocabulary cut into chunks.
struct Folded {
  Floats maximum, sum, target_logit;
};

/// Columns first..first+n-1 of [rows, vocabulary].
Floats columns(const Floats& all, std::size_t rows, std::size_t vocabulary, std::size_t first,
               std::size_t n) {
  Floats out;
  for (std::size_t r = 0; r < rows; ++r) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(r * vocabulary + first);
    out.insert(out.end(), begin, begin + static_cast<std::ptrdiff_t>(n));
  }
  return out;
}

Folded fold(const TransformerKernels& k, const Floats& logits, std::size_t rows,
            std::size_t vocabulary, std::size_t chunk, const std::vector<std::uint32_t>& targets) {
  Folded state{Floats(rows, -INFINITY), Floats(rows, 0.0F), Floats(rows, 123.0F)};
  for (std::size_t first = 0; first < vocabulary; first += chunk) {
    const std::size_t n = std::min(chunk, vocabulary - first);
    const Floats part = columns(logits, rows, vocabulary, first, n);
    k.loss_fold(rows, n, first, part.data(), targets.data(), state.maximum.data(), state.sum.data(),
                state.target_logit.data());
  }
  return state;
}

/// Bound of |sum - exact| from the terms: arguments, exponentials, lanes, one rescale a chunk.
double sum_tolerance(const Row& logits, double largest, std::size_t chunk) {
  const auto n = static_cast<double>(logits.size());
  const double folds = std::ceil(n / static_cast<double>(chunk));
  double tolerance = 0.0;
  for (const double each : logits) {
    if (!std::isfinite(each)) continue;
    const double distance = largest - each;
    tolerance += std::exp(-distance) * (2.0 * distance + 8.0 + 4.0 * folds) * kHalfUlp +
                 std::exp(-distance) * lane_sum_error(chunk) + kSmallestNormal;
  }
  return tolerance;
}

struct LossCase {
  std::size_t rows, vocabulary, chunk;
  double deviation, centre;
};
constexpr LossCase kLossCases[] = {{0, 40, 16, 1.0, 0.0},   {4, 1, 1, 1.0, 0.0},
                                   {4, 100, 100, 3.0, 0.0}, {4, 100, 32, 3.0, 0.0},
                                   {3, 257, 7, 30.0, 0.0},  {3, 257, 1, 5.0, -200.0},
                                   {2, 1000, 96, 0.0, 7.0}, {2, 500, 64, 4000.0, 0.0}};

std::vector<std::uint32_t> random_targets(std::size_t rows, std::size_t count) {
  RandomBits random(31);
  std::vector<std::uint32_t> out;
  for (std::size_t r = 0; r < rows; ++r) {
    out.push_back(static_cast<std::uint32_t>(random.next() % count));
  }
  return out;
}

std::string check_loss_forward(const TransformerKernels& k) {
  for (const LossCase& c : kLossCases) {
    Verdict verdict("loss of " + shape_text({c.rows, c.vocabulary}) + " by " +
                    std::to_string(c.chunk));
    const Floats logits = random_floats(c.rows * c.vocabulary, 32, c.deviation, c.centre);
    const auto targets = random_targets(c.rows, c.vocabulary);
    const Folded state = fold(k, logits, c.rows, c.vocabulary, c.chunk, targets);
    Floats loss(c.rows, NAN);
    k.loss_value(c.rows, targets.data(), state.maximum.data(), state.sum.data(),
                 state.target_logit.data(), loss.data());
    for (std::size_t r = 0; r < c.rows; ++r) {
      const Row row = row_of(logits, r, c.vocabulary);
      const double largest = reference::maximum(row);
      double sum = 0.0;
      for (const double each : row) sum += std::exp(each - largest);
      verdict.same("maximum", r, state.maximum[r], static_cast<float>(largest));
      verdict.same("target_logit", r, state.target_logit[r], logits[r * c.vocabulary + targets[r]]);
      const double tolerance = sum_tolerance(row, largest, c.chunk);
      verdict.near("sum", r, state.sum[r], sum, tolerance);
      const double gap = largest - row[targets[r]];
      verdict.near("loss", r, loss[r], reference::cross_entropy(row, targets[r]),
                   tolerance / sum + 4.0 * kHalfUlp * (std::log(sum) + gap + 0.1));
    }
    if (!verdict.first().empty()) return verdict.first();
  }
  return "";
}

std::string check_loss_backward(const TransformerKernels& k) {
  constexpr float kFactor = 0.03125F * 1.1F;
  for (const LossCase& c : kLossCases) {
    Verdict verdict("loss_backward of " + shape_text({c.rows, c.vocabulary}) + " by " +
                    std::to_string(c.chunk));
    const Floats logits = random_floats(c.rows * c.vocabulary, 33, c.deviation, c.centre);
    const auto targets = random_targets(c.rows, c.vocabulary);
    const Folded state = fold(k, logits, c.rows, c.vocabulary, c.chunk, targets);
    for (std::size_t first = 0; first < c.vocabulary; first += c.chunk) {
      const std::size_t n = std::min(c.chunk, c.vocabulary - first);
      Floats gradient = columns(logits, c.rows, c.vocabulary, first, n);
      k.loss_backward(c.rows, n, first, kFactor, targets.data(), state.maximum.data(),
                      state.sum.data(), gradient.data());
      for (std::size_t r = 0; r < c.rows; ++r) {
        const Row row = row_of(logits, r, c.vocabulary);
        const Row want = reference::cross_entropy_gradient(row, targets[r], kFactor);
        const Row p = reference::softmax(row, 1.0);
        const double largest = reference::maximum(row);
        for (std::size_t i = 0; i < n; ++i) {
          const double distance = largest - row[first + i];
          const double relative = (2.0 * distance + 8.0) * kHalfUlp +
                                  sum_tolerance(row, largest, c.chunk);  // sum is at least 1
          verdict.near("dlogit", first + i, gradient[r * n + i], want[first + i],
                       kFactor * (p[first + i] * relative + kSmallestNormal) +
                           2.0 * kHalfUlp * std::fabs(want[first + i]) + kSmallestNormal);
        }
      }
    }
    if (!verdict.first().empty()) return verdict.first();
  }
  return "";
}

std::string check_loss_specials(const TransformerKernels& k) {
  Verdict verdict("loss of special values");
  constexpr std::size_t kVocabulary = 70;
  constexpr std::size_t kChunk = 20;
  const std::vector<std::uint32_t> target = {65};
  // Masked columns add nothing, also when the first chunk consists of them.
  Floats masked = random_floats(kVocabulary, 34);
  std::fill(masked.begin(), masked.begin() + 25, -INFINITY);
  const Folded state = fold(k, masked, 1, kVocabulary, kChunk, target);
  const Row visible(masked.begin() + 25, masked.end());
  float loss = NAN;
  k.loss_value(1, target.data(), state.maximum.data(), state.sum.data(), state.target_logit.data(),
               &loss);
  verdict.near("masked loss", 0, loss, reference::cross_entropy(visible, 40), 1e-5);
  Floats gradient = masked;
  k.loss_backward(1, kVocabulary, 0, 1.0F, target.data(), state.maximum.data(), state.sum.data(),
                  gradient.data());
  for (std::size_t i = 0; i < 25; ++i) verdict.same("masked dlogit", i, gradient[i], 0.0F);

  // Rows without a target.
  const std::vector<std::uint32_t> none = {kNoTarget};
  Floats ignored = random_floats(kVocabulary, 35);
  const Folded without = fold(k, ignored, 1, kVocabulary, kChunk, none);
  verdict.same("target_logit without target", 0, without.target_logit[0], 123.0F);
  k.loss_value(1, none.data(), without.maximum.data(), without.sum.data(),
               without.target_logit.data(), &loss);
  verdict.same("loss without target", 0, loss, 0.0F);
  k.loss_backward(1, kVocabulary, 0, 1.0F, none.data(), without.maximum.data(), without.sum.data(),
                  ignored.data());
  for (std::size_t i = 0; i < kVocabulary; ++i) {
    verdict.same("dlogit without target", i, ignored[i], 0.0F);
  }

  for (const float poison : {NAN, INFINITY}) {
    Floats poisoned = random_floats(kVocabulary, 36);
    poisoned[3] = poison;
    const Folded bad = fold(k, poisoned, 1, kVocabulary, kChunk, target);
    verdict.same("sum with NaN or inf", 0, bad.sum[0], NAN);
  }
  return verdict.first();
}

std::string check_embedding(const TransformerKernels& k) {
  constexpr std::size_t kFirst = 100;
  constexpr std::size_t kCount = 9;
  for (const std::size_t n : {1U, 15U, 16U, 40U}) {
    Verdict verdict("embedding of width " + std::to_string(n));
    // Repeats, both ends, and tokens just outside the range.
    const std::vector<std::uint32_t> tokens = {100, 108, 99, 104, 100, 109, 100, 0, 0xffffffffU};
    RandomBits random(37);
    std::vector<std::uint16_t> table(kCount * n);
    for (auto& each : table) each = random.next_u16();
    Floats out(tokens.size() * n, 5.0F);
    k.embedding_gather(tokens.size(), n, kFirst, kCount, tokens.data(), table.data(), out.data());
    const Floats dy = random_floats(tokens.size() * n, 38);
    Floats dtable = random_floats(kCount * n, 39);
    Floats want_dtable = dtable;
    k.embedding_backward(tokens.size(), n, kFirst, kCount, tokens.data(), dy.data(), dtable.data());
    for (std::size_t r = 0; r < tokens.size(); ++r) {
      const bool inside = tokens[r] >= kFirst && tokens[r] < kFirst + kCount;
      const std::size_t row = inside ? (tokens[r] - kFirst) * n : 0;
      for (std::size_t i = 0; i < n; ++i) {
        const float want = inside ? bf16_value(table[row + i]) : 5.0F;
        verdict.same("out", r * n + i, out[r * n + i], want);
        if (inside) want_dtable[row + i] += dy[r * n + i];
      }
    }
    for (std::size_t i = 0; i < dtable.size(); ++i) {
      verdict.same("dtable", i, dtable[i], want_dtable[i]);
    }
    if (!verdict.first().empty()) return verdict.first();
  }
  return "";
}

constexpr TransformerCheck kVocabularyChecks[] = {
    {"LossForward", check_loss_forward},
    {"LossBackward", check_loss_backward},
    {"LossSpecials", check_loss_specials},
    {"Embedding", check_embedding},
};

}  // namespace

std::span<const TransformerCheck> vocabulary_checks() {
  return kVocabularyChecks;
}

std::vector<TransformerCheck> transformer_checks() {
  std::vector<TransformerCheck> all;
  for (const auto part :
       {norm_checks(), attention_checks(), pointwise_checks(), vocabulary_checks()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace penstock::test
