// Adam with states of 8 bits, by values: rounding with the right mean, states that follow gradients
// as exact ones do, updates near the exact ones and never far above. The kernels must pass, and
// each of the faults of update_int8_model.hpp must not.

#include <functional>

#include "kernels/cpu/vec_scalar.hpp"
#include "kernels/math/codes8.hpp"
#include "kernels/update_checker.hpp"
#include "kernels/update_int8_model.hpp"

namespace penstock::test {
namespace {

using Step = std::function<void(std::uint64_t t, std::uint64_t key, Int8Tensor& x)>;

Step kernel_step(Isa isa, const UpdateRule& rule) {
  return [=](std::uint64_t t, std::uint64_t key, Int8Tensor& x) {
    UpdateScalars scalars = update_scalars(rule, t, 1.0);
    scalars.key = key;
    update_kernel_int8(isa, rule, DType::kF32, x.master)(scalars, x.arrays());
  };
}
Step model_step(const UpdateRule& rule, Int8Fault fault) {
  return [=](std::uint64_t t, std::uint64_t key, Int8Tensor& x) {
    Int8Model(rule, t, key, fault).step(x);
  };
}

void expect(Findings& findings, const char* what, double value, double least, double most) {
  if (value >= least && value <= most) return;  // NaN fails
  char text[120];
  std::snprintf(text, sizeof text, "%s: %.6g is not in %.6g ... %.6g", what, value, least, most);
  findings.emplace_back(text);
}

constexpr UpdateRule kRule = {.rule = Rule::kAdamW};

/// One step from random states: the weight moves as the states say, unrounded, within what fp32
/// errs; each state is one of the two codes around the exact one.
void check_single_step(const Step& step, Findings& findings) {
  constexpr std::size_t kCount = 16 * kStateBlock;
  RandomBits random(11);
  Int8Tensor x(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    x.p[i] = static_cast<float>(random.normal());
    x.gradient[i] = static_cast<float>(random.normal() * (1.0 + static_cast<double>(i / 256)));
    x.m[i] = static_cast<std::int8_t>(random.next() % 255 - 127);
    x.v[i] = static_cast<std::uint8_t>(1 + random.next() % 255);
  }
  for (std::size_t b = 0; b < 16; ++b) {
    x.m_scale[b] = static_cast<float>(random.uniform() + 0.5);
    x.v_scale[b] = static_cast<float>(random.uniform() + 0.5);
  }
  const Int8Tensor old = x;
  step(7, 99, x);
  double worst_p = 0, worst_m = 0, worst_r = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    const double r = r_value(old, i);
    const ExactUpdate want =
        exact_update(kRule, 7, static_cast<double>(old.gradient[i]), static_cast<double>(old.p[i]),
                     m_value(old, i), r * r, 0.0);
    // Two roundings more than without codes: value times scale, and its square.
    const double limit = 0x1p-24 * (std::fabs(want.p) + 12.0 * want.p_scale);
    worst_p = std::fmax(worst_p, std::fabs(static_cast<double>(x.p[i]) - want.p) / limit);
    const auto steps = [](int code, int bits, double scale, double exact) {
      const double here = int8_value(code, bits) * scale;
      const int next = code + (exact > here ? 1 : -1);
      const double width = std::fabs(int8_value(std::max(next, 0), bits) * scale - here);
      return std::fabs(exact - here) / (width + 1e-6 * exact + 1e-30);
    };
    const std::size_t b = i / kStateBlock;
    worst_m = std::fmax(worst_m, steps(std::abs(int{x.m[i]}), 7, static_cast<double>(x.m_scale[b]),
                                       std::fabs(want.m)));
    worst_r =
        std::fmax(worst_r, steps(x.v[i], 8, static_cast<double>(x.v_scale[b]), std::sqrt(want.v)));
    if (x.m[i] != 0 && (x.m[i] < 0) != (want.m < 0.0)) worst_m = 9.0;
  }
  expect(findings, "single step, p (share of its limit)", worst_p, 0.0, 1.0);
  expect(findings, "single step, m (steps of its code)", worst_m, 0.0, 1.0);
  expect(findings, "single step, r (steps of its code)", worst_r, 0.0, 1.0);
}

/// A first step in blocks whose first element is larger: what the others become on average.
void check_mean(const Step& step, Findings& findings) {
  constexpr std::size_t kCount = 2048 * kStateBlock;
  Int8Tensor x(kCount);
  for (const float g : {0.37F, -0.011F}) {
    x = Int8Tensor(kCount);
    x.gradient.assign(kCount, g);
    for (std::size_t i = 0; i < kCount; i += kStateBlock) {
      x.gradient[i] = 1.0F;
      x.gradient[i + 1] = 0.0F;
    }
    step(1, 5, x);
    double m = 0, r = 0;
    std::size_t same = 0, zeros = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      zeros += x.v[i] == 0 ? 1U : 0U;
      if (i % kStateBlock < 2) continue;
      m += m_value(x, i);
      r += r_value(x, i);
      same += x.v[i] == x.v[2] ? 1U : 0U;
    }
    const double n = static_cast<double>(kCount) * 254.0 / 256.0;
    expect(findings, "codes of v = 0 in blocks that are not zero", static_cast<double>(zeros), 0.0,
           0.0);
    const auto w1 = static_cast<double>(static_cast<float>(1.0 - 0.9));
    const auto w2 = static_cast<double>(static_cast<float>(1.0 - 0.999));
    // Half a million draws of two codes 3 % apart: their mean is within 1e-4 with five deviations.
    expect(findings, "mean of m", m / n / (w1 * static_cast<double>(g)), 0.9998, 1.0002);
    expect(findings, "mean of r", r / n / std::sqrt(w2) / std::fabs(static_cast<double>(g)), 0.9998,
           1.0002);
    expect(findings, "share of one of two codes of r", static_cast<double>(same) / n, 0.01, 0.99);
    // Neighbours are drawn apart: of 16 adjacent ones not all are alike.
    std::size_t alike = 0;
    for (std::size_t i = 16; i < kCount; i += 16) {
      const std::uint8_t* from = &x.v[i];
      alike += std::all_of(from, from + 16, [&](std::uint8_t c) { return c == *from; }) ? 1U : 0U;
    }
    expect(findings, "sixteens of one code of r", static_cast<double>(alike) * 16.0 / n, 0.0, 0.6);
  }
}

/// Half of a block gets no gradient any more, the other half as before: the states of the first
/// decay as exact ones do, and its weights come to rest.
void check_decay_beside_others(const Step& step, Findings& findings) {
  constexpr std::size_t kCount = 16 * kStateBlock;
  RandomBits random(13);
  Int8Tensor x(kCount);
  double r_before = 0, m_before = 0;
  for (std::uint64_t t = 1; t <= 1400; ++t) {
    for (std::size_t i = 0; i < kCount; ++i) {
      x.gradient[i] =
          t > 400 && i % 2 == 1 ? 0.0F : static_cast<float>(random.normal() + (i % 2 ? 1.0 : 0.0));
    }
    const std::vector<float> old = x.p;
    step(t, rounding_key(1, 2, t), x);
    double r = 0, m = 0, moved = 0;
    for (std::size_t i = 1; i < kCount; i += 2) {
      r += r_value(x, i) / (kCount / 2);
      m += std::fabs(m_value(x, i)) / (kCount / 2);
      moved =
          std::fmax(moved, std::fabs(static_cast<double>(x.p[i]) - static_cast<double>(old[i])));
    }
    if (t == 400) r_before = r, m_before = m;
    if (t == 500) expect(findings, "m after 100 steps without gradient", m / m_before, 0.0, 1e-3);
    if (t == 1400) {
      expect(findings, "r after 1000 steps without gradient", r / r_before,
             std::pow(0.999, 500) * 0.97, std::pow(0.999, 500) * 1.03);
      expect(findings, "weights after 1000 steps without gradient move", moved, 0.0, 0.0);
    }
  }
}

/// 300 steps of stationary gradients whose sizes differ within a block by a lognormal factor:
/// updates beside exact ones. Limits: those of the 8-bit states that our reference measured.
void check_spread(const Step& step, double sigma, double limit, Findings& findings) {
  constexpr std::size_t kCount = 8 * kStateBlock;
  RandomBits random(17);
  Int8Tensor x(kCount);
  std::vector<ExactUpdate> exact(kCount);
  std::vector<double> size(kCount);
  for (double& s : size) s = std::exp(sigma * random.normal());
  double error = 0, square = 0, along = 0, largest = 0;
  for (std::uint64_t t = 1; t <= 300; ++t) {
    for (std::size_t i = 0; i < kCount; ++i) {
      x.gradient[i] = static_cast<float>(size[i] * random.normal());
    }
    x.p.assign(kCount, 0.0F);  // so that what it moves by is exact
    step(t, rounding_key(3, 4, t), x);
    for (std::size_t i = 0; i < kCount; ++i) {
      exact[i] = exact_update(kRule, t, static_cast<double>(x.gradient[i]), 0.0, exact[i].m,
                              exact[i].v, 0.0);
      const double got = static_cast<double>(x.p[i]) / kRule.lr, want = exact[i].p / kRule.lr;
      largest = std::fmax(largest, std::fabs(got));
      error += (got - want) * (got - want);
      square += want * want;
      along += got * want;
    }
  }
  expect(findings, "updates, relative error", std::sqrt(error / square), 0.0, limit);
  expect(findings, "updates, size along the exact ones", along / square, 0.98, 1.02);
  expect(findings, "largest update, in learning rates", largest, 0.0, 3.5);
}

/// Gradients of a part of each block fall to a tenth; 2000 steps later updates still have the size
/// of exact ones.
void check_change(const Step& step, Findings& findings) {
  constexpr std::size_t kCount = 4 * kStateBlock;
  RandomBits random(19);
  Int8Tensor x(kCount);
  std::vector<ExactUpdate> exact(kCount);
  double along = 0, square = 0, largest = 0;
  for (std::uint64_t t = 1; t <= 3000; ++t) {
    for (std::size_t i = 0; i < kCount; ++i) {
      const double size = t > 500 && i % 2 == 1 ? 0.1 : 1.0;
      x.gradient[i] = static_cast<float>(size * random.normal());
    }
    x.p.assign(kCount, 0.0F);
    step(t, rounding_key(5, 6, t), x);
    for (std::size_t i = 0; i < kCount; ++i) {
      exact[i] = exact_update(kRule, t, static_cast<double>(x.gradient[i]), 0.0, exact[i].m,
                              exact[i].v, 0.0);
      const double got = static_cast<double>(x.p[i]) / kRule.lr, want = exact[i].p / kRule.lr;
      largest = std::fmax(largest, std::fabs(got));
      if (t <= 2500 || i % 2 == 0) continue;
      along += got * want;
      square += want * want;
    }
  }
  expect(findings, "updates after a change, size along the exact ones", along / square, 0.9, 1.1);
  expect(findings, "largest update, in learning rates", largest, 0.0, 3.5);
}

/// Weights of 16 and of 24 bits: one step by what they do not resolve.
void check_weights(const Step& step, Findings& findings) {
  for (const auto& [master, unit] :
       {std::pair{Master::kBf16, 0x1p-7}, std::pair{Master::kSplit8, 0x1p-15}}) {
    constexpr std::size_t kCount = 1024 * kStateBlock;
    Int8Tensor x(kCount, master);
    for (std::size_t i = 0; i < kCount; ++i) x.set_weight(i, 1.5F);
    // Adam's first step is lr times the sign: an eighth and 33 times the unit.
    x.gradient.assign(kCount, -1.0F);
    for (std::size_t i = 0; i < kCount; i += 2) x.gradient[i] = -0.77F;
    step(1, 5, x);
    double sum = 0;
    std::size_t up = 0, both = 0, v_up = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      const double moved = static_cast<double>(x.weight(i)) - 1.5;
      sum += moved;
      if (i % 2 == 1) continue;
      const bool weight_up = moved > std::floor(1e-3 / unit) * unit + unit / 2;
      const bool state_up = r_value(x, i) > std::sqrt(0.001) * 0.77;
      up += weight_up ? 1U : 0U;
      v_up += state_up ? 1U : 0U;
      both += weight_up && state_up ? 1U : 0U;
    }
    const double n = kCount, half = n / 2;
    // Five deviations of a mean of n draws that are one unit apart.
    expect(findings, "mean movement of weights", sum / n, 1e-3 - 2.5 * unit / std::sqrt(n),
           1e-3 + 2.5 * unit / std::sqrt(n));
    const auto a = static_cast<double>(up) / half, b = static_cast<double>(v_up) / half;
    expect(findings, "weights and v that go up together, beyond chance",
           static_cast<double>(both) / half - a * b, -0.01, 0.01);
  }
}

Findings check_int8(const Step& step) {
  Findings findings;
  check_single_step(step, findings);
  check_mean(step, findings);
  check_decay_beside_others(step, findings);
  check_spread(step, 0.0, 0.08, findings);
  check_spread(step, 0.7, 0.13, findings);
  check_spread(step, 1.5, 0.22, findings);
  check_change(step, findings);
  check_weights(step, findings);
  return findings;
}

class UpdateInt8ValuesTest : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isa, UpdateInt8ValuesTest, all_isas(), isa_test_name);

TEST_P(UpdateInt8ValuesTest, KernelsPassTheChecks) {
  const Findings findings = check_int8(kernel_step(GetParam(), kRule));
  EXPECT_TRUE(findings.empty()) << joined(findings);
}

TEST(UpdateInt8MutantTest, TheModelWithoutAFaultIsAccepted) {
  const Findings findings = check_int8(model_step(kRule, Int8Fault::kNone));
  EXPECT_TRUE(findings.empty()) << joined(findings);
}

struct NamedFault {
  const char* name;
  Int8Fault fault;
};
constexpr NamedFault kFaults[] = {{"Nearest", Int8Fault::kNearest},
                                  {"NearestV", Int8Fault::kNearestV},
                                  {"Down", Int8Fault::kDown},
                                  {"ZeroV", Int8Fault::kZeroV},
                                  {"RoundedUpdate", Int8Fault::kRoundedUpdate},
                                  {"StaleScale", Int8Fault::kStaleScale},
                                  {"SharedScale", Int8Fault::kSharedScale},
                                  {"VInsteadOfRoot", Int8Fault::kVInsteadOfRoot},
                                  {"SignLost", Int8Fault::kSignLost},
                                  {"SameForAll", Int8Fault::kSameForAll},
                                  {"UpBySameBit", Int8Fault::kUpBySameBit},
                                  {"WeightNearest", Int8Fault::kWeightNearest},
                                  {"WeightDown", Int8Fault::kWeightDown}};

class UpdateInt8MutantTest : public testing::TestWithParam<NamedFault> {};
INSTANTIATE_TEST_SUITE_P(Fault, UpdateInt8MutantTest, testing::ValuesIn(kFaults),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(UpdateInt8MutantTest, IsRefused) {
  const Findings findings = check_int8(model_step(kRule, GetParam().fault));
  EXPECT_FALSE(findings.empty()) << "the checks accept a wrong optimizer";
  std::printf("%s:%s\n", GetParam().name, joined(findings).c_str());
}

TEST(Codes8Test, AreWhatTheFormulaSaysInOrderAndKeptByRounding) {
  using scalar::Kit;
  const auto codes_of = [](const math::CodeForm& form, int bits) {
    double before = -1.0;
    for (int c = 0; c < 1 << bits; ++c) {
      const auto code = Kit::set_u32(static_cast<std::uint32_t>(c));
      const float value = max_lanes(math::code_value<Kit>(form, code));
      EXPECT_EQ(static_cast<double>(value), int8_value(c, bits)) << c;
      EXPECT_GT(static_cast<double>(value), before);
      before = static_cast<double>(value);
      for (const std::uint32_t random : {0U, 1U, 0x8000U, 0xffffU}) {
        const auto back =
            math::code_of<Kit>(form, Kit::set(value), Kit::set(0.0F), Kit::set_u32(random));
        EXPECT_EQ(max_lanes(back), static_cast<std::uint32_t>(c)) << random;
      }
    }
    EXPECT_EQ(before, static_cast<double>(form.largest_value));
  };
  codes_of(math::kCodeM, 7);
  codes_of(math::kCodeR, 8);
  EXPECT_EQ(int8_value(1, 8), 0x1p-32);
  EXPECT_EQ(int8_value(1, 7), 0x1p-28);
  EXPECT_EQ(int8_value(128, 8), 0x1p-4);  // t = 1/2
}

}  // namespace
}  // namespace penstock::test
