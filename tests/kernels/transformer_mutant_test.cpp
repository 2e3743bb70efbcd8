// Each of these kernels is wrong in one way that has occurred somewhere; the check of that kernel
// must refuse it.

#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "kernels/transformer_checker.hpp"
#include "kernels/transformer_scenarios.hpp"

namespace penstock::test {
namespace {

using Size = std::size_t;
using Index = std::uint32_t;

/// The widest kernels, for speed: the accuracy test has accepted them on every instruction set.
const TransformerKernels& right() {
  if (isa_supported(Isa::kAvx512)) return transformer_kernels(Isa::kAvx512);
  return transformer_kernels(isa_supported(Isa::kAvx2) ? Isa::kAvx2 : Isa::kScalar);
}

struct Mutant {
  const char* name;
  const char* check;
  void (*apply)(TransformerKernels& kernels);
};

void PrintTo(const Mutant& mutant, std::ostream* out) {
  *out << mutant.name;
}

/// Makes an entry do nothing.
template <class... Arguments>
void disable(void (*&entry)(Arguments...)) {
  entry = +[](Arguments...) {};
}

constexpr Mutant kDisabled[] = {
    {"NoRmsnormForward", "RmsnormForward", [](auto& k) { disable(k.rmsnorm_forward); }},
    {"NoRmsnormBackward", "RmsnormBackward", [](auto& k) { disable(k.rmsnorm_backward); }},
    {"NoLayernormForward", "LayernormForward", [](auto& k) { disable(k.layernorm_forward); }},
    {"NoLayernormBackward", "LayernormBackward", [](auto& k) { disable(k.layernorm_backward); }},
    {"NoCausalSoftmax", "CausalSoftmax", [](auto& k) { disable(k.causal_softmax); }},
    {"NoSoftmaxBackward", "SoftmaxBackward", [](auto& k) { disable(k.softmax_backward); }},
    {"NoGeluForward", "Gelu", [](auto& k) { disable(k.gelu_forward); }},
    {"NoGeluBackward", "Gelu", [](auto& k) { disable(k.gelu_backward); }},
    {"NoSwigluForward", "Swiglu", [](auto& k) { disable(k.swiglu_forward); }},
    {"NoSwigluBackward", "Swiglu", [](auto& k) { disable(k.swiglu_backward); }},
    {"NoRope", "Rope", [](auto& k) { disable(k.rope); }},
    {"NoAddInto", "Sums", [](auto& k) { disable(k.add_into); }},
    {"NoAdd", "Sums", [](auto& k) { disable(k.add); }},
    {"NoScale", "Sums", [](auto& k) { disable(k.scale); }},
    {"NoBiasAdd", "Bias", [](auto& k) { disable(k.bias_add); }},
    {"NoBiasBackward", "Bias", [](auto& k) { disable(k.bias_backward); }},
    {"NoLossFold", "LossForward", [](auto& k) { disable(k.loss_fold); }},
    {"NoLossValue", "LossForward", [](auto& k) { disable(k.loss_value); }},
    {"NoLossBackward", "LossBackward", [](auto& k) { disable(k.loss_backward); }},
    {"NoEmbeddingGather", "Embedding", [](auto& k) { disable(k.embedding_gather); }},
    {"NoEmbeddingBackward", "Embedding", [](auto& k) { disable(k.embedding_backward); }},
    {"NoExp", "Exp", [](auto& k) { disable(k.exp); }},
    {"NoTanh", "Tanh", [](auto& k) { disable(k.tanh); }},
    {"NoLog", "Log", [](auto& k) { disable(k.log); }},
};

// Norms.
void rmsnorm_without_eps(TransformerKernels& k) {
  k.rmsnorm_forward = [](Size rows, Size n, float, const float* x, const float* weight, float* y,
                         float* rstd) {
    right().rmsnorm_forward(rows, n, 0.0F, x, weight, y, rstd);
  };
}
void rmsnorm_dweight_overwritten(TransformerKernels& k) {
  k.rmsnorm_backward = [](Size rows, Size n, const float* dy, const float* x, const float* weight,
                          const float* rstd, float* dx, float* dweight) {
    std::fill(dweight, dweight + n, 0.0F);
    right().rmsnorm_backward(rows, n, dy, x, weight, rstd, dx, dweight);
  };
}
void rmsnorm_rstd_held_constant(TransformerKernels& k) {
  k.rmsnorm_backward = [](Size rows, Size n, const float* dy, const float* x, const float* weight,
                          const float* rstd, float* dx, float* dweight) {
    right().rmsnorm_backward(rows, n, dy, x, weight, rstd, dx, dweight);
    for (Size i = 0; i < rows * n; ++i) dx[i] = dy[i] * weight[i % n] * rstd[i / n];
  };
}
void layernorm_unbiased(TransformerKernels& k) {
  k.layernorm_forward = [](Size rows, Size n, float eps, const float* x, const float* weight,
                           const float* bias, float* y, float* mean, float* rstd) {
    right().layernorm_forward(rows, n, eps, x, weight, bias, y, mean, rstd);
    const float shrink = std::sqrt(static_cast<float>(n - 1) / static_cast<float>(n));
    for (Size r = 0; r < rows; ++r) rstd[r] *= shrink;
    for (Size i = 0; i < rows * n; ++i) y[i] = (y[i] - bias[i % n]) * shrink + bias[i % n];
  };
}
void layernorm_by_raw_moments(TransformerKernels& k) {
  k.layernorm_forward = [](Size rows, Size n, float eps, const float* x, const float* weight,
                           const float* bias, float* y, float* mean, float* rstd) {
    for (Size r = 0; r < rows; ++r) {
      float sum = 0.0F;
      float squares = 0.0F;
      for (Size i = 0; i < n; ++i) sum += x[r * n + i];
      for (Size i = 0; i < n; ++i) squares += x[r * n + i] * x[r * n + i];
      mean[r] = sum / static_cast<float>(n);
      const float variance = squares / static_cast<float>(n) - mean[r] * mean[r];
      rstd[r] = 1.0F / std::sqrt(variance + eps);
      for (Size i = 0; i < n; ++i) {
        y[r * n + i] = (x[r * n + i] - mean[r]) * rstd[r] * weight[i] + bias[i];
      }
    }
  };
}
void layernorm_mean_held_constant(TransformerKernels& k) {
  k.layernorm_backward = [](Size rows, Size n, const float* dy, const float* x, const float* weight,
                            const float* mean, const float* rstd, float* dx, float* dweight,
                            float* dbias) {
    right().layernorm_backward(rows, n, dy, x, weight, mean, rstd, dx, dweight, dbias);
    for (Size r = 0; r < rows; ++r) {
      float sum = 0.0F;
      for (Size i = 0; i < n; ++i) sum += dy[r * n + i] * weight[i];
      for (Size i = 0; i < n; ++i) dx[r * n + i] += rstd[r] * sum / static_cast<float>(n);
    }
  };
}

// Attention.
void softmax_sees_one_more(TransformerKernels& k) {
  k.causal_softmax = [](Size rows, Size n, Size first, float scale, float* x) {
    right().causal_softmax(rows, n, first < n ? first + 1 : first, scale, x);
  };
}
void softmax_without_maximum(TransformerKernels& k) {
  k.causal_softmax = [](Size rows, Size n, Size first, float scale, float* x) {
    for (Size r = 0; r < rows; ++r) {
      const Size seen = first >= n ? n : std::min(n, first + r + 1);
      float sum = 0.0F;
      for (Size i = 0; i < seen; ++i) sum += x[r * n + i] = std::exp(x[r * n + i] * scale);
      for (Size i = 0; i < n; ++i) x[r * n + i] = i < seen ? x[r * n + i] / sum : 0.0F;
    }
  };
}
void softmax_leaves_masked(TransformerKernels& k) {
  k.causal_softmax = [](Size rows, Size n, Size first, float scale, float* x) {
    const Floats before(x, x + rows * n);
    right().causal_softmax(rows, n, first, scale, x);
    for (Size i = 0; i < rows * n; ++i) {
      if (first < n && i % n > first + i / n) x[i] = before[i];
    }
  };
}
void softmax_ignores_scale(TransformerKernels& k) {
  k.causal_softmax = [](Size rows, Size n, Size first, float, float* x) {
    right().causal_softmax(rows, n, first, 1.0F, x);
  };
}
void softmax_masks_by_zero_score(TransformerKernels& k) {
  k.causal_softmax = [](Size rows, Size n, Size first, float scale, float* x) {
    for (Size i = 0; i < rows * n; ++i) x[i] = std::isinf(x[i]) ? -10.0F : x[i];
    right().causal_softmax(rows, n, first, scale, x);
  };
}
void softmax_backward_unscaled(TransformerKernels& k) {
  k.softmax_backward = [](Size rows, Size n, Size first, float, const float* p, float* dp) {
    right().softmax_backward(rows, n, first, 1.0F, p, dp);
  };
}
void rope_never_back(TransformerKernels& k) {
  k.rope = [](Size rows, Size heads, Size half, const float* cosine, const float* sine, float,
              float* x) { right().rope(rows, heads, half, cosine, sine, 1.0F, x); };
}
void rope_of_neighbours(TransformerKernels& k) {
  k.rope = [](Size rows, Size heads, Size half, const float* cosine, const float* sine, float d,
              float* x) {
    for (Size h = 0; h < rows * heads; ++h) {
      for (Size i = 0; i < half; ++i) {
        float* pair = x + h * 2 * half + 2 * i;
        const float c = cosine[h / heads * half + i];
        const float s = sine[h / heads * half + i] * d;
        const float first = pair[0] * c - pair[1] * s;
        pair[1] = pair[1] * c + pair[0] * s;
        pair[0] = first;
      }
    }
  };
}

// Activations and elementary functions.
void gelu_exact(TransformerKernels& k) {
  k.gelu_forward = [](Size n, const float* x, float* y) {
    for (Size i = 0; i < n; ++i) y[i] = 0.5F * x[i] * std::erfc(-x[i] * 0.70710678F);
  };
}
void gelu_cancelling(TransformerKernels& k) {
  k.gelu_forward = [](Size n, const float* x, float* y) {
    for (Size i = 0; i < n; ++i) {
      const float u = 0.79788456F * (x[i] + 0.044715F * x[i] * x[i] * x[i]);
      y[i] = 0.5F * x[i] * (1.0F + std::tanh(u));
    }
  };
}
void swiglu_gate_slope_dropped(TransformerKernels& k) {
  k.swiglu_backward = [](Size n, const float* gate, const float* up, const float* dy, float* dgate,
                         float* dup) {
    right().swiglu_backward(n, gate, up, dy, dgate, dup);
    for (Size i = 0; i < n; ++i) dgate[i] = dy[i] * up[i] / (1.0F + std::exp(-gate[i]));
  };
}
void exp_without_second_part(TransformerKernels& k) {
  k.exp = [](Size n, const float* x, float* y) {
    for (Size i = 0; i < n; ++i) {
      const float whole = std::rint(x[i] * 1.44269504F);
      y[i] = static_cast<float>(std::ldexp(std::exp(x[i] - whole * 0.693147181F), 1)) * 0.5F *
             std::exp2(whole);
    }
  };
}
void tanh_cancelling(TransformerKernels& k) {
  k.tanh = [](Size n, const float* x, float* y) {
    for (Size i = 0; i < n; ++i) {
      const double e = std::exp(-2.0F * std::fabs(x[i]));
      y[i] = std::copysign(static_cast<float>((1.0 - e) / (1.0 + e)), x[i]);
    }
  };
}
void log_off_by_two_ulps(TransformerKernels& k) {
  k.log = [](Size n, const float* x, float* y) {
    right().log(n, x, y);
    for (Size i = 0; i < n; ++i) y[i] *= 1.0F + 0x1p-22F;
  };
}
void bias_rows_descending(TransformerKernels& k) {
  k.bias_backward = [](Size rows, Size n, const float* dy, float* dbias) {
    for (Size r = rows; r > 0; --r) right().add_into(n, dy + (r - 1) * n, dbias);
  };
}

// Loss and embedding.
void fold_without_rescale(TransformerKernels& k) {
  k.loss_fold = [](Size rows, Size n, Size first, const float* logits, const Index* targets,
                   float* maximum, float* sum, float* target_logit) {
    const Floats before(sum, sum + rows);
    std::fill(sum, sum + rows, 0.0F);
    right().loss_fold(rows, n, first, logits, targets, maximum, sum, target_logit);
    for (Size r = 0; r < rows; ++r) sum[r] += before[r];
  };
}
void fold_ignores_first(TransformerKernels& k) {
  k.loss_fold = [](Size rows, Size n, Size, const float* logits, const Index* targets,
                   float* maximum, float* sum, float* target_logit) {
    right().loss_fold(rows, n, 0, logits, targets, maximum, sum, target_logit);
  };
}
void fold_poisoned_by_masked_chunk(TransformerKernels& k) {
  k.loss_fold = [](Size rows, Size n, Size first, const float* logits, const Index* targets,
                   float* maximum, float* sum, float* target_logit) {
    right().loss_fold(rows, n, first, logits, targets, maximum, sum, target_logit);
    for (Size r = 0; r < rows; ++r) sum[r] += maximum[r] - maximum[r];
  };
}
void loss_without_onehot(TransformerKernels& k) {
  k.loss_backward = [](Size rows, Size n, Size, float factor, const Index* targets,
                       const float* maximum, const float* sum, float* logits) {
    right().loss_backward(rows, n, 1U << 30, factor, targets, maximum, sum, logits);
  };
}
void loss_counts_no_target(TransformerKernels& k) {
  k.loss_backward = [](Size rows, Size n, Size first, float factor, const Index* targets,
                       const float* maximum, const float* sum, float* logits) {
    std::vector<Index> shifted(targets, targets + rows);
    for (Index& each : shifted) each = each == kNoTarget ? kNoTarget - 1 : each;
    right().loss_backward(rows, n, first, factor, shifted.data(), maximum, sum, logits);
  };
}
void embedding_last_row_wins(TransformerKernels& k) {
  k.embedding_backward = [](Size rows, Size n, Size first, Size count, const Index* tokens,
                            const float* dy, float* dtable) {
    const Floats before(dtable, dtable + count * n);
    for (Size r = 0; r < rows; ++r) {
      if (tokens[r] < first || tokens[r] - first >= count) continue;
      const Size at = (tokens[r] - first) * n;
      for (Size i = 0; i < n; ++i) dtable[at + i] = before[at + i] + dy[r * n + i];
    }
  };
}

constexpr Mutant kWrong[] = {
    {"RmsnormWithoutEps", "RmsnormForward", rmsnorm_without_eps},
    {"RmsnormDweightOverwritten", "RmsnormBackward", rmsnorm_dweight_overwritten},
    {"RmsnormRstdHeldConstant", "RmsnormBackward", rmsnorm_rstd_held_constant},
    {"LayernormUnbiased", "LayernormForward", layernorm_unbiased},
    {"LayernormByRawMoments", "LayernormForward", layernorm_by_raw_moments},
    {"LayernormMeanHeldConstant", "LayernormBackward", layernorm_mean_held_constant},
    {"SoftmaxSeesOneMore", "CausalSoftmax", softmax_sees_one_more},
    {"SoftmaxWithoutMaximum", "CausalSoftmax", softmax_without_maximum},
    {"SoftmaxLeavesMasked", "CausalSoftmax", softmax_leaves_masked},
    {"SoftmaxIgnoresScale", "CausalSoftmax", softmax_ignores_scale},
    {"SoftmaxMasksByFiniteScore", "CausalSoftmaxSpecials", softmax_masks_by_zero_score},
    {"SoftmaxBackwardUnscaled", "SoftmaxBackward", softmax_backward_unscaled},
    {"RopeNeverBack", "Rope", rope_never_back},
    {"RopeOfNeighbours", "Rope", rope_of_neighbours},
    {"GeluExact", "Gelu", gelu_exact},
    {"GeluCancelling", "Gelu", gelu_cancelling},
    {"SwigluGateSlopeDropped", "Swiglu", swiglu_gate_slope_dropped},
    {"ExpWithoutSecondPart", "Exp", exp_without_second_part},
    {"TanhCancelling", "Tanh", tanh_cancelling},
    {"LogOffByTwoUlps", "Log", log_off_by_two_ulps},
    {"BiasRowsDescending", "Bias", bias_rows_descending},
    {"FoldWithoutRescale", "LossForward", fold_without_rescale},
    {"FoldIgnoresFirst", "LossForward", fold_ignores_first},
    {"FoldPoisonedByMaskedChunk", "LossSpecials", fold_poisoned_by_masked_chunk},
    {"LossWithoutOnehot", "LossBackward", loss_without_onehot},
    {"LossCountsNoTarget", "LossSpecials", loss_counts_no_target},
    {"EmbeddingLastRowWins", "Embedding", embedding_last_row_wins},
};

class TransformerMutantTest : public testing::TestWithParam<Mutant> {};

TEST_P(TransformerMutantTest, IsRefusedByItsCheck) {
  TransformerKernels kernels = right();
  GetParam().apply(kernels);
  bool found = false;
  for (const TransformerCheck& check : transformer_checks()) {
    if (std::string(check.name) != GetParam().check) continue;
    found = true;
    EXPECT_NE(check.run(kernels), "");
  }
  EXPECT_TRUE(found) << "no check is called " << GetParam().check;
}

constexpr auto kMutantName = [](const auto& info) { return std::string(info.param.name); };
INSTANTIATE_TEST_SUITE_P(Disabled, TransformerMutantTest, testing::ValuesIn(kDisabled),
                         kMutantName);
INSTANTIATE_TEST_SUITE_P(Wrong, TransformerMutantTest, testing::ValuesIn(kWrong), kMutantName);

TEST(TransformerTableMutantTest, AnotherOrderOfLanesIsRefused) {
  TransformerKernels kernels = right();
  kernels.softmax_backward = [](Size rows, Size n, Size first, float scale, const float* p,
                                float* dp) {
    for (Size r = 0; r < rows; ++r) {
      const Size seen = first >= n ? n : std::min(n, first + r + 1);
      float dot = 0.0F;
      for (Size i = 0; i < seen; ++i) dot = std::fma(p[r * n + i], dp[r * n + i], dot);
      for (Size i = 0; i < n; ++i) {
        float& each = dp[r * n + i];
        each = i < seen ? scale * (p[r * n + i] * (each - dot)) : 0.0F;
      }
    }
  };
  EXPECT_NE(compare_tables(right(), kernels), "");
}

const Scenario& scenario_named(std::string_view name) {
  const auto all = transformer_scenarios();
  return *std::find_if(all.begin(), all.end(), [&](const Scenario& s) { return s.name == name; });
}

TEST(TransformerTableMutantTest, KernelsWithoutTheirFloatModeAreNoticed) {
  constexpr unsigned kUpwards = 0x1f80U | 0x4000U;
  const Rows rows = {3, 50, 3};
  TransformerKernels kernels = right();
  kernels.scale = [](Size n, float s, float* x) {
    for (Size i = 0; i < n; ++i) x[i] *= s;
  };
  const auto plain = run_scenario(scenario_named("sums"), kernels, rows, Content::kNormal);
  EXPECT_NE(run_scenario(scenario_named("sums"), kernels, rows, Content::kNormal, kUpwards), plain);

  kernels.scale = [](Size, float, float*) { _mm_setcsr(0x1f80U | 0x8040U); };
  bool restored = true;
  run_scenario(scenario_named("sums"), kernels, rows, Content::kNormal, kUpwards, &restored);
  EXPECT_FALSE(restored);
}

TEST(TransformerTableMutantTest, DenormalsKeptAreRefused) {
  TransformerKernels kernels = right();
  kernels.scale = [](Size n, float s, float* x) {
    for (Size i = 0; i < n; ++i) x[i] *= s;
  };
  EXPECT_NE(compare_tables(right(), kernels), "");
}

}  // namespace
}  // namespace penstock::test
