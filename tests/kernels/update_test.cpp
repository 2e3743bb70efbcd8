// The kernels of the update rules: values against double, bits against the formulas in fp32, and
// vectors that can be checked by hand. Wrong rules are shown to fail in update_mutant_test.cpp.

#include <cmath>

#include "kernels/math/convert_bits.hpp"
#include "kernels/update_checker.hpp"

namespace penstock::test {
namespace {

class UpdateTest : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isa, UpdateTest, all_isas(), isa_test_name);

constexpr DType kGradientTypes[] = {DType::kF32, DType::kF16, DType::kBf16};

TEST_P(UpdateTest, EveryRulePassesTheChecker) {
  for (const NamedRule& named : named_rules()) {
    // One form in full here; that all forms give the same bits is the next test.
    const KernelForm form{GetParam(), DType::kBf16, named.rule.maximize};
    const Findings findings = check_update(named.rule, kernel_update(form));
    EXPECT_TRUE(findings.empty()) << named.name << joined(findings);
  }
}

/// Operands of one element.
struct Element {
  float p, m, v, v_max, gradient;
};

float draw(RandomBits& random, bool extreme) {
  const std::uint32_t bits = random.next_u32();
  if (!extreme) return float_of((bits & 0x807fffffU) | ((95U + bits % 40U) << 23));
  constexpr std::uint32_t kExponents[8] = {0, 0, 0, 1, 2, 253, 254, 255};
  return float_of((bits & 0x807fffffU) | (kExponents[random.next_u32() % 8] << 23));
}

/// The gradient as `type` holds it, exactly or cut.
float representable(DType type, float x) {
  if (type == DType::kF32) return x;
  if (type == DType::kBf16) return float_of(bits_of(x) & 0xffff0000U);
  return float_of(math::f16_bits_to_f32_bits(math::f32_bits_to_f16_bits(bits_of(x))));
}

struct Run {
  UpdateValues x;
  std::vector<std::uint16_t> hi, lo;
  std::vector<float> out;
};

Run run_kernel(const KernelForm& form, const UpdateRule& rule, const UpdateScalars& scalars,
               const std::vector<Element>& elements) {
  const std::size_t n = elements.size();
  Run run{UpdateValues(n), std::vector<std::uint16_t>(n), std::vector<std::uint16_t>(n),
          std::vector<float>(n)};
  std::vector<std::byte> gradient(n * size_bytes(form.gradient_type));
  for (std::size_t i = 0; i < n; ++i) {
    const Element& e = elements[i];
    run.x.p[i] = e.p;
    run.x.m[i] = e.m;
    run.x.v[i] = e.v;
    run.x.v_max[i] = e.v_max;
    run.hi[i] = split_hi(canonical_bits(e.p));
    run.lo[i] = split_lo(canonical_bits(e.p));
    const std::uint32_t bits = bits_of(e.gradient);
    const std::uint16_t half = form.gradient_type == DType::kF16
                                   ? math::f32_bits_to_f16_bits(bits)
                                   : static_cast<std::uint16_t>(bits >> 16);
    if (form.gradient_type == DType::kF32) std::memcpy(gradient.data() + 4 * i, &bits, 4);
    if (form.gradient_type != DType::kF32) std::memcpy(gradient.data() + 2 * i, &half, 2);
  }
  UpdateArrays a{.n = n,
                 .m = run.x.m.data(),
                 .v = run.x.v.data(),
                 .v_max = run.x.v_max.data(),
                 .gradient = gradient.data(),
                 .gradient_type = form.gradient_type,
                 .out = run.out.data(),
                 .out_type = DType::kF32};
  if (form.split_master) {
    a.hi = run.hi.data();
    a.lo = run.lo.data();
  } else {
    a.p = run.x.p.data();
  }
  update_kernel(form.isa, rule, form.gradient_type, form.master())(scalars, a);
  if (form.split_master) {
    for (std::size_t i = 0; i < n; ++i) {
      run.x.p[i] = float_of(join_master_bits(run.hi[i], run.lo[i]));
    }
  }
  return run;
}

/// The first element at which a kernel differs from the formulas, or n.
std::size_t first_difference(const KernelForm& form, const UpdateRule& rule, std::uint64_t t,
                             std::vector<Element> elements) {
  const UpdateScalars scalars = update_scalars(rule, t, t % 2 == 0 ? 1.0 : 0.7);
  for (Element& e : elements) e.gradient = representable(form.gradient_type, e.gradient);
  const Run got = run_kernel(form, rule, scalars, elements);
  const UpdateStates states = update_states(rule);
  for (std::size_t i = 0; i < elements.size(); ++i) {
    Element e = elements[i];
    {
      const FloatModeGuard guard;
      model_update_f32(rule, scalars, e.gradient, e.p, e.m, e.v, e.v_max);
    }
    const auto same = [](float a, float b) { return bits_of(a) == canonical_bits(b); };
    const bool equal =
        same(got.x.p[i], e.p) && same(got.out[i], e.p) && (!states.m || same(got.x.m[i], e.m)) &&
        (!states.v || same(got.x.v[i], e.v)) && (!states.v_max || same(got.x.v_max[i], e.v_max));
    if (!equal) return i;
  }
  return elements.size();
}

TEST_P(UpdateTest, EveryRuleAndFormGivesTheBitsOfTheFormulas) {
  constexpr std::size_t kCount = 1U << 13;
  RandomBits random(3);
  for (const bool extreme : {false, true}) {
    std::vector<Element> elements(kCount);
    for (Element& e : elements) {
      e = {draw(random, extreme), draw(random, extreme), draw(random, extreme),
           draw(random, extreme), draw(random, extreme)};
      if (!extreme) e.v = std::fabs(e.v);
      if (random.next_u32() % 8 == 0) e.m = e.gradient = 0.0F;
    }
    for (const NamedRule& named : named_rules()) {
      for (const double decay : {0.0, 0.1}) {
        UpdateRule rule = named.rule;
        rule.weight_decay = decay;
        rule.dampening = decay;
        for (const std::uint64_t t : {1U, 12U}) {
          for (const DType type : kGradientTypes) {
            for (const bool split : {false, true}) {
              EXPECT_EQ(first_difference({GetParam(), type, split}, rule, t, elements), kCount)
                  << named.name << ", gradient " << name_of(type) << (split ? ", split" : "")
                  << ", decay " << decay << ", t " << t << (extreme ? ", extreme" : "");
            }
          }
        }
      }
    }
  }
}

/// One weight under one rule, by hand.
struct OneWeight {
  UpdateStep step;
  UpdateRule rule;
  UpdateValues x = UpdateValues(1);
  std::uint64_t t = 0;

  float after(float gradient) {
    step(rule, ++t, 1.0, x, {gradient}, nullptr);
    return x.p[0];
  }
};

TEST_P(UpdateTest, KeepsToExamplesWorkedByHand) {
  const UpdateStep step = kernel_update({GetParam(), DType::kF32, false});
  {  // Adam on x^2/2 from 10 with lr 0.1 moves to 9.9.
    OneWeight w{step, {.rule = Rule::kAdam, .lr = 0.1}};
    w.x.p[0] = 10.0F;
    EXPECT_NEAR(w.after(10.0F), 9.9F, 1e-6F);
  }
  {  // The first update of AdamW is lr whatever the gradient.
    OneWeight w{step, {.rule = Rule::kAdamW, .lr = 1e-3}};
    EXPECT_NEAR(w.after(1.0F), -9.9999999e-4F, 1e-10F);
  }
  {  // SGD with momentum .9 and lr .1 on x^2/2 from 1: 0.9, then 0.72.
    OneWeight w{step, {.rule = Rule::kSgd, .lr = 0.1, .momentum = 0.9}};
    w.x.p[0] = 1.0F;
    w.x.m[0] = std::nanf("");  // never read at the first update
    EXPECT_FLOAT_EQ(w.after(1.0F), 0.9F);
    EXPECT_FLOAT_EQ(w.after(0.9F), 0.72F);
  }
  {  // Nesterov: b = 1, u = 1.9; then b = .9 + g, u = g + .9 b with g = .81.
    OneWeight w{step, {.rule = Rule::kSgd, .nesterov = true, .lr = 0.1, .momentum = 0.9}};
    w.x.p[0] = 1.0F;
    EXPECT_FLOAT_EQ(w.after(1.0F), 0.81F);
    EXPECT_FLOAT_EQ(w.after(0.81F), 0.81F - 0.1F * (0.81F + 0.9F * 1.71F));
  }
  {  // Adagrad: sums 4 and 8 with an accumulator that began at 0; then 16 + 9 from one of 16.
    OneWeight w{step, {.rule = Rule::kAdagrad, .lr = 0.5, .eps = 1e-10}};
    EXPECT_FLOAT_EQ(w.after(2.0F), -0.5F);
    EXPECT_FLOAT_EQ(w.after(2.0F), -0.5F - 0.5F / std::sqrt(2.0F));
    OneWeight started{step, {.rule = Rule::kAdagrad, .lr = 0.5, .eps = 1e-10}};
    started.x.v[0] = 16.0F;
    EXPECT_FLOAT_EQ(started.after(3.0F), -0.3F);
  }
}

TEST_P(UpdateTest, LionMovesByExactlyTheRateOrNotAtAll) {
  const UpdateStep step = kernel_update({GetParam(), DType::kF32, false});
  const UpdateRule rule = {.rule = Rule::kLion, .lr = 0x1p-10, .beta1 = 0.5, .beta2 = 0.99};
  const std::vector<float> gradients = {0.0F, -0.0F, 1.0F, -1.0F, 1e30F, 0x1p-126F, 1.0F, 1e-40F};
  UpdateValues x(gradients.size());
  x.p = {1.0F, -0.0F, 1.0F, 1.0F, 1.0F, 1.0F, 1.0F, 1.0F};
  x.m[6] = -1.0F;  // c is exactly 0
  step(rule, 1, 1.0, x, gradients, nullptr);
  // 0x1p-126 halved is flushed, as is a denormal gradient: no direction.
  const std::vector<float> want = {
      1.0F, -0.0F, 1.0F - 0x1p-10F, 1.0F + 0x1p-10F, 1.0F - 0x1p-10F, 1.0F, 1.0F, 1.0F};
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_EQ(bits_of(x.p[i]), bits_of(want[i])) << i;
}

TEST_P(UpdateTest, AnNaNGradientMakesTheWeightNaNAndNotASign) {
  for (const NamedRule& named : named_rules()) {
    UpdateValues x(2);
    for (auto* array : {&x.p, &x.m, &x.v, &x.v_max}) array->assign(2, 1.0F);
    kernel_update({GetParam(), DType::kF32, true})(named.rule, 3, 1.0, x,
                                                   {std::nanf(""), -std::nanf("")}, nullptr);
    EXPECT_EQ(bits_of(x.p[0]), 0x7fc00000U) << named.name;
    EXPECT_EQ(bits_of(x.p[1]), 0x7fc00000U) << named.name;
  }
}

TEST_P(UpdateTest, WithoutDecayAnInfiniteWeightStaysAndIsNotMultiplied) {
  for (const NamedRule& named : named_rules()) {
    UpdateValues x(1);
    x.p[0] = INFINITY;
    kernel_update({GetParam(), DType::kF32, false})(named.rule, 3, 1.0, x, {1.0F}, nullptr);
    EXPECT_EQ(x.p[0], INFINITY) << named.name;
  }
}

TEST_P(UpdateTest, GradientScaleCancelsWithoutEpsilon) {
  for (const Rule kind : {Rule::kAdam, Rule::kAdamW, Rule::kAdagrad, Rule::kLion}) {
    for (const bool amsgrad : {false, true}) {
      const UpdateRule rule = {.rule = kind, .amsgrad = amsgrad, .lr = 1e-2, .eps = 0.0};
      constexpr std::size_t kCount = 500;
      UpdateValues small(kCount);
      small.p.assign(kCount, 1.5F);
      UpdateValues large = small;
      RandomBits random(31);
      const UpdateStep step = kernel_update({GetParam(), DType::kF32, true});
      for (std::uint64_t t = 1; t <= 20; ++t) {
        std::vector<float> gradient, scaled;
        for (std::size_t i = 0; i < kCount; ++i) {  // never zero: 0/0 is not a step
          gradient.push_back(static_cast<float>(random.normal() + 10.0));
          scaled.push_back(gradient.back() * 0x1p20F);
        }
        step(rule, t, 1.0, small, gradient, nullptr);
        step(rule, t, 1.0, large, scaled, nullptr);
      }
      for (std::size_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(bits_of(small.p[i]), bits_of(large.p[i])) << i;
      }
      EXPECT_NE(small.p[0], 1.5F);
    }
  }
}

TEST_P(UpdateTest, WithoutGradientMomentsDecayToExactZero) {
  // Without FTZ, m would stop at a few denormal units for ever (and cost 2.4 times the time).
  for (const Rule kind : {Rule::kAdam, Rule::kLion, Rule::kSgd}) {
    const UpdateRule rule = {.rule = kind, .lr = 1e-3, .momentum = 0.9};
    const UpdateStep step = kernel_update({GetParam(), DType::kBf16, true});
    UpdateValues x(2);
    x.p = {1.0F, -2.0F};
    x.m = {0.5F, -0.25F};
    x.v = {1.0F, 2.0F};
    const bool has_v = update_states(rule).v;
    for (std::uint64_t t = 2; t <= 100000 && (x.m[0] != 0.0F || x.m[1] != 0.0F); ++t) {
      const UpdateValues old = x;
      step(rule, t, 1.0, x, {0.0F, 0.0F}, nullptr);
      for (std::size_t i = 0; i < 2; ++i) {
        ASSERT_GE(x.v[i], 0.0F);
        if (has_v) {
          ASSERT_LT(x.v[i], old.v[i]);
        }
        ASSERT_LE(std::fabs(x.m[i]), std::fabs(old.m[i]));
      }
    }
    EXPECT_EQ(x.m[0], 0.0F);
    EXPECT_EQ(x.m[1], 0.0F);
  }
}

TEST_P(UpdateTest, SecondMomentIsNeverNegative) {
  constexpr std::size_t kCount = 1U << 16;
  RandomBits random(37);
  UpdateValues x(kCount);
  std::vector<float> gradient;
  for (std::size_t i = 0; i < kCount; ++i) {
    x.v[i] = float_of(random.next_u32() & 0x7effffffU);
    gradient.push_back(float_of(random.next_u32() & 0xbfffffffU));
  }
  kernel_update({GetParam(), DType::kF32, true})({.beta2 = 0.5}, 3, 1.0, x, gradient, nullptr);
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_FALSE(std::signbit(x.v[i])) << i;
}

TEST_P(UpdateTest, ResumesBitForBitAndFollowsChangedHyperParameters) {
  constexpr std::size_t kCount = 333;
  const UpdateStep step = kernel_update({GetParam(), DType::kF32, true});
  for (const NamedRule& named : named_rules()) {
    UpdateValues x(kCount);
    x.p.assign(kCount, 0.25F);
    UpdateValues model = x;
    RandomBits random(41);
    for (std::uint64_t t = 1; t <= 50; ++t) {
      UpdateRule rule = named.rule;
      rule.lr = 1e-3 / static_cast<double>(t);
      rule.beta2 = t < 20 ? 0.95 : 0.999;
      rule.weight_decay = t % 3 == 0 ? 0.0 : 0.1;
      std::vector<float> gradient;
      for (std::size_t i = 0; i < kCount; ++i) {
        gradient.push_back(static_cast<float>(random.normal()));
      }
      step(rule, t, 0.5, x, gradient, nullptr);
      const FloatModeGuard guard;
      const UpdateScalars scalars = update_scalars(rule, t, 0.5);
      for (std::size_t i = 0; i < kCount; ++i) {
        model_update_f32(rule, scalars, gradient[i], model.p[i], model.m[i], model.v[i],
                         model.v_max[i]);
      }
    }
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(bits_of(x.p[i]), bits_of(model.p[i])) << named.name << " " << i;
      ASSERT_EQ(bits_of(x.m[i]), bits_of(model.m[i])) << named.name << " " << i;
      ASSERT_EQ(bits_of(x.v[i]), bits_of(model.v[i])) << named.name << " " << i;
    }
  }
}

TEST_P(UpdateTest, FindsTheOneGradientThatIsTooLarge) {
  constexpr float kLimit = 1024.0F;
  const float inf = INFINITY;
  const float nan_of_one_bit = float_of(0x7fc00000U);
  const float bad[] = {inf, -inf, nan_of_one_bit, -nan_of_one_bit, 1032.0F, -1032.0F};
  for (const DType type : kGradientTypes) {
    for (std::size_t n = 0; n < 40; ++n) {
      std::vector<float> gradient(n);
      RandomBits random(n + 1);
      for (float& g : gradient) g = random.next_u32() % 2 == 0 ? -kLimit : 0x1p-14F;
      const auto within = [&](const std::vector<float>& values) {
        const std::vector<std::byte> bytes = encode_gradient(GetParam(), type, values);
        return all_within(GetParam(), n, bytes.data(), type, kLimit);
      };
      EXPECT_TRUE(within(gradient)) << name_of(type) << " " << n;
      for (std::size_t i = 0; i < n; ++i) {
        std::vector<float> wrong = gradient;
        wrong[i] = bad[(n + i) % std::size(bad)];
        EXPECT_FALSE(within(wrong)) << name_of(type) << " " << n << " " << wrong[i];
      }
    }
  }
}

TEST(UpdateScalarsTest, HaveNoBiasCorrectionForBetaZero) {
  const UpdateScalars s = update_scalars({.lr = 0.5, .beta1 = 0.0, .beta2 = 0.0}, 1, 1.0);
  EXPECT_EQ(s.w1, 1.0F);
  EXPECT_EQ(s.ns, -0.5F);
  EXPECT_EQ(s.is, 1.0F);
}

TEST(UpdateScalarsTest, AreTheHyperParametersRoundedOnce) {
  const UpdateRule adam = {
      .rule = Rule::kAdamW, .maximize = true, .lr = 3e-4, .weight_decay = 0.1, .beta2 = 0.95};
  const UpdateRule adagrad = {
      .rule = Rule::kAdagrad, .lr = 0.1, .weight_decay = 0.3, .lr_decay = 0.01};
  const UpdateRule sgd = {
      .rule = Rule::kSgd, .nesterov = true, .lr = 0.1, .momentum = 0.7, .dampening = 0.2};
  for (const std::uint64_t t : {1ULL, 2ULL, 1000ULL, 1ULL << 40}) {
    const auto steps = static_cast<long double>(t);
    const UpdateScalars a = update_scalars(adam, t, 0.25);
    const long double correction1 = 1.0L - std::pow(static_cast<long double>(0.9), steps);
    const long double correction2 = 1.0L - std::pow(static_cast<long double>(0.95), steps);
    EXPECT_EQ(a.gs, -0.25F);
    EXPECT_EQ(a.l2, 0.0F);
    EXPECT_EQ(a.nd, static_cast<float>(-3e-4 * 0.1));
    EXPECT_EQ(a.w1, static_cast<float>(1.0L - static_cast<long double>(0.9)));
    EXPECT_EQ(a.w2, static_cast<float>(1.0L - static_cast<long double>(0.95)));
    EXPECT_EQ(a.ns, static_cast<float>(-static_cast<long double>(3e-4) / correction1)) << t;
    EXPECT_EQ(a.is, static_cast<float>(1.0L / std::sqrt(correction2))) << t;
    const UpdateScalars b = update_scalars(adagrad, t, 1.0);
    EXPECT_EQ(b.ns, static_cast<float>(-0.1 / (1.0 + static_cast<double>(t - 1) * 0.01)));
    EXPECT_EQ(b.l2, 0.3F);
    EXPECT_EQ(b.nd, 0.0F);
    const UpdateScalars c = update_scalars(sgd, t, 1.0);
    EXPECT_EQ(c.ns, -0.1F);
    EXPECT_EQ(c.mu, 0.7F);
    EXPECT_EQ(c.keep, static_cast<float>(1.0 - 0.2));
    EXPECT_EQ(c.first, t == 1 ? 1.0F : 0.0F);
    EXPECT_EQ(c.nesterov, 1.0F);
  }
}

}  // namespace
}  // namespace penstock::test
