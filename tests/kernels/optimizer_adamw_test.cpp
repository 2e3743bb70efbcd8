// The AdamW kernels: values against double, bits against the formulas in fp32, and properties that
// hold whatever the numbers are. Wrong optimizers are shown to fail in optimizer_mutant_test.cpp.

#include <cmath>
#include <limits>

#include "kernels/adamw_checker.hpp"

namespace penstock::test {
namespace {

class AdamWTest : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isa, AdamWTest, all_isas(), isa_test_name);

std::string joined(const Findings& findings) {
  std::string text;
  for (const std::string& finding : findings) text += "\n  " + finding;
  return text;
}

TEST_P(AdamWTest, SplitMasterStepPassesTheChecker) {
  const Findings findings = check_adamw(split_kernel_step(GetParam()));
  EXPECT_TRUE(findings.empty()) << joined(findings);
}

TEST_P(AdamWTest, PlainMasterStepPassesTheChecker) {
  const Findings findings = check_adamw(f32_kernel_step(GetParam()));
  EXPECT_TRUE(findings.empty()) << joined(findings);
}

/// What bit patterns the operands are drawn from.
enum class Draw { kAnyBits, kTrainingLike, kTinyAndHuge };

std::uint32_t draw_bits(RandomBits& random, Draw draw) {
  const std::uint32_t bits = random.next_u32();
  switch (draw) {
    case Draw::kAnyBits:
      return bits;
    case Draw::kTrainingLike:  // exponents from 2^-32 to 2^7
      return (bits & 0x807fffffU) | ((95U + bits % 40U) << 23);
    case Draw::kTinyAndHuge: {  // denormals, the smallest normals, the largest, inf and NaN
      constexpr std::uint32_t kExponents[8] = {0, 0, 0, 1, 2, 253, 254, 255};
      return (bits & 0x807fffffU) | (kExponents[random.next_u32() % 8] << 23);
    }
  }
  return bits;
}

struct Operands {
  std::vector<std::uint16_t> hi, lo, gradient;
  std::vector<float> m, v;
};

Operands draw_operands(std::size_t n, Draw draw, std::uint64_t seed) {
  RandomBits random(seed);
  Operands out;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t p = draw_bits(random, draw);
    out.hi.push_back(draw == Draw::kAnyBits ? random.next_u16() : split_hi(p));
    out.lo.push_back(split_lo(p));
    out.gradient.push_back(static_cast<std::uint16_t>(draw_bits(random, draw) >> 16));
    out.m.push_back(float_of(draw_bits(random, draw)));
    const std::uint32_t sign = draw == Draw::kTrainingLike ? 0x7fffffffU : 0xffffffffU;
    out.v.push_back(float_of(draw_bits(random, draw) & sign));
  }
  return out;
}

TEST_P(AdamWTest, GivesTheBitsOfTheFormulas) {
  constexpr std::size_t kCount = 1U << 18;
  const OptimizerKernels& kernels = optimizer_kernels(GetParam());
  std::uint64_t seed = 1;
  for (const Draw draw : {Draw::kAnyBits, Draw::kTrainingLike, Draw::kTinyAndHuge}) {
    for (const double decay : {0.0, 0.1}) {
      const AdamWScalars scalars =
          adamw_scalars({.lr = 1e-3, .weight_decay = decay}, 10 * seed, seed % 2 == 0 ? 1.0 : 0.7);
      const Operands old = draw_operands(kCount, draw, seed++);
      Operands got = old;
      kernels.adamw_split(scalars, kCount, got.hi.data(), got.lo.data(), got.m.data(), got.v.data(),
                          got.gradient.data());
      Operands plain = old;
      std::vector<float> master(kCount), wide(kCount);
      kernels.join(kCount, old.hi.data(), old.lo.data(), master.data());
      kernels.bf16_to_f32(kCount, old.gradient.data(), wide.data());
      kernels.adamw_f32(scalars, kCount, master.data(), plain.m.data(), plain.v.data(),
                        wide.data());
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < kCount; ++i) {
        float p = float_of(join_master_bits(old.hi[i], old.lo[i]));
        float m = old.m[i], v = old.v[i];
        {
          const FloatModeGuard guard;
          model_step_f32(scalars, bf16_value(old.gradient[i]), p, m, v);
        }
        const std::uint32_t want = canonical_bits(p);
        const bool same =
            got.hi[i] == split_hi(want) && got.lo[i] == split_lo(want) &&
            bits_of(got.m[i]) == canonical_bits(m) && bits_of(got.v[i]) == canonical_bits(v) &&
            bits_of(master[i]) == want && bits_of(plain.m[i]) == canonical_bits(m) &&
            bits_of(plain.v[i]) == canonical_bits(v) && got.gradient[i] == old.gradient[i];
        if (!same && wrong++ == 0) {
          ADD_FAILURE() << "first difference at element " << i << " of draw "
                        << static_cast<int>(draw) << ", decay " << decay;
        }
      }
      EXPECT_EQ(wrong, 0U);
    }
  }
}

TEST_P(AdamWTest, GradientScaleCancelsWithoutEpsilon) {
  const AdamW hyper{.lr = 1e-2, .eps = 0.0};
  const StepFunction step = split_kernel_step(GetParam());
  constexpr std::size_t kCount = 1000;
  const std::vector<float> zero(kCount);
  State small{std::vector<float>(kCount, 1.5F), zero, zero};
  State large = small;
  RandomBits random(31);
  for (std::uint64_t t = 1; t <= 20; ++t) {
    std::vector<std::uint16_t> gradient, scaled;
    for (std::size_t i = 0; i < kCount; ++i) {
      const double g = random.normal() + 10.0;  // never zero: 0/0 is not a step
      gradient.push_back(bf16_bits(g));
      scaled.push_back(static_cast<std::uint16_t>(gradient.back() + (20U << 7)));  // times 2^20
    }
    step(hyper, t, 1.0, small, gradient);
    step(hyper, t, 1.0, large, scaled);
  }
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(bits_of(small.p[i]), bits_of(large.p[i])) << i;
  EXPECT_NE(small.p[0], 1.5F);
}

TEST_P(AdamWTest, WithoutGradientMomentsDecayToExactZero) {
  // Without FTZ, m would stop at a few denormal units for ever (and cost 2.4 times the time).
  const AdamW hyper{.lr = 1e-3};
  const StepFunction step = split_kernel_step(GetParam());
  State state{{1.0F, -2.0F}, {0.5F, -0.25F}, {1.0F, 2.0F}};
  const std::vector<std::uint16_t> gradient(2);
  for (std::uint64_t t = 1; t <= 2000; ++t) {
    const State old = state;
    step(hyper, t, 1.0, state, gradient);
    for (std::size_t i = 0; i < 2; ++i) {
      ASSERT_GE(state.v[i], 0.0F);
      ASSERT_LT(state.v[i], old.v[i]);
      ASSERT_LE(std::fabs(state.m[i]), std::fabs(old.m[i]));
    }
  }
  EXPECT_EQ(state.m[0], 0.0F);
  EXPECT_EQ(state.m[1], 0.0F);
}

TEST_P(AdamWTest, SecondMomentIsNeverNegative) {
  constexpr std::size_t kCount = 1U << 16;
  RandomBits random(37);
  State state{std::vector<float>(kCount, 1.0F), std::vector<float>(kCount), {}};
  std::vector<std::uint16_t> gradient;
  for (std::size_t i = 0; i < kCount; ++i) {
    state.v.push_back(float_of(random.next_u32() & 0x7effffffU));
    gradient.push_back(static_cast<std::uint16_t>(random.next_u16() & 0xbfffU));
  }
  split_kernel_step(GetParam())({.beta2 = 0.5}, 3, 1.0, state, gradient);
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_FALSE(std::signbit(state.v[i])) << i;
}

TEST_P(AdamWTest, ResumesBitForBitAndFollowsChangedHyperParameters) {
  const StepFunction split = split_kernel_step(GetParam());
  const StepFunction model = [](const AdamW& hyper, std::uint64_t t, double factor, State& state,
                                const std::vector<std::uint16_t>& gradient) {
    const FloatModeGuard guard;
    const AdamWScalars scalars = adamw_scalars(hyper, t, factor);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      model_step_f32(scalars, bf16_value(gradient[i]), state.p[i], state.m[i], state.v[i]);
    }
  };
  constexpr std::size_t kCount = 333;
  const std::vector<float> zero(kCount);
  State kernel_state{std::vector<float>(kCount, 0.25F), zero, zero};
  State model_state = kernel_state;
  RandomBits random(41);
  for (std::uint64_t t = 1; t <= 50; ++t) {
    const AdamW hyper{.lr = 1e-3 / static_cast<double>(t),
                      .beta2 = t < 20 ? 0.95 : 0.999,
                      .weight_decay = t % 3 == 0 ? 0.0 : 0.1};
    std::vector<std::uint16_t> gradient;
    for (std::size_t i = 0; i < kCount; ++i) gradient.push_back(bf16_bits(random.normal()));
    split(hyper, t, 0.5, kernel_state, gradient);
    model(hyper, t, 0.5, model_state, gradient);
  }
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(bits_of(kernel_state.p[i]), bits_of(model_state.p[i])) << i;
    ASSERT_EQ(bits_of(kernel_state.m[i]), bits_of(model_state.m[i])) << i;
    ASSERT_EQ(bits_of(kernel_state.v[i]), bits_of(model_state.v[i])) << i;
  }
}

TEST(AdamWScalarsTest, AreTheHyperParametersRoundedOnce) {
  const AdamW hyper{.lr = 3e-4, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
  for (const std::uint64_t t : {1ULL, 2ULL, 1000ULL, 1ULL << 40}) {
    const AdamWScalars s = adamw_scalars(hyper, t, 0.25);
    const long double steps = static_cast<long double>(t);
    const long double correction1 = 1.0L - std::pow(static_cast<long double>(0.9), steps);
    const long double correction2 = 1.0L - std::pow(static_cast<long double>(0.95), steps);
    EXPECT_EQ(s.w1, static_cast<float>(1.0L - static_cast<long double>(0.9)));
    EXPECT_EQ(s.w2, static_cast<float>(1.0L - static_cast<long double>(0.95)));
    EXPECT_EQ(s.ns, static_cast<float>(-static_cast<long double>(3e-4) / correction1)) << t;
    EXPECT_EQ(s.is, static_cast<float>(1.0L / std::sqrt(correction2))) << t;
    EXPECT_EQ(s.eps, 1e-8F);
    EXPECT_EQ(s.nd, static_cast<float>(-3e-4 * 0.1));
    EXPECT_EQ(s.gs, 0.25F);
  }
}

TEST(AdamWScalarsTest, HaveNoBiasCorrectionForBetaZero) {
  const AdamWScalars s = adamw_scalars({.lr = 0.5, .beta1 = 0.0, .beta2 = 0.0}, 1, 1.0);
  EXPECT_EQ(s.w1, 1.0F);
  EXPECT_EQ(s.ns, -0.5F);
  EXPECT_EQ(s.is, 1.0F);
}

}  // namespace
}  // namespace penstock::test
