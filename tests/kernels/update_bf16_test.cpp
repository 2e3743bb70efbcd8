// States in bf16: bits against the formulas and a hash written down here again, and what rounding
// at random must do: the right mean, v that decays, a result that hangs on seed, tensor, element
// and t alone.

#include <algorithm>
#include <cmath>

#include "base/random.hpp"
#include "kernels/update_model.hpp"

namespace penstock::test {
namespace {

class UpdateBf16Test : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isa, UpdateBf16Test, all_isas(), isa_test_name);

std::uint16_t nearest(float x) {
  const std::uint32_t bits = canonical_bits(x);
  if ((bits & 0x7f800000U) == 0) return static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

std::uint16_t at_random(float x, std::uint64_t key, std::uint64_t element) {
  key += (element >> 32) * 0x9e3779b97f4a7c15U;
  const auto low = static_cast<std::uint32_t>(element);
  std::uint32_t random = low / 32 * 16 + low % 16 + static_cast<std::uint32_t>(key);
  random = (random ^ (random >> 16)) * 0x7feb352dU;
  random = ((random ^ (random >> 15)) + static_cast<std::uint32_t>(key >> 32)) * 0x846ca68bU;
  random ^= random >> 16;
  const std::uint32_t half = low % 32 < 16 ? random >> 16 : random & 0xffffU;
  const std::uint32_t bits = canonical_bits(x);
  const std::uint32_t up = (bits + half) >> 16;
  return static_cast<std::uint16_t>((up & 0x7f80U) == 0x7f80U ? bits >> 16 : up);
}

struct Arrays {
  std::vector<float> p, gradient;
  std::vector<std::uint16_t> m, v, v_max;

  explicit Arrays(std::size_t n) : p(n), gradient(n), m(n), v(n), v_max(n) {}
  [[nodiscard]] UpdateArrays all(std::uint64_t first_element) {
    UpdateArrays a;
    a.n = p.size();
    a.p = p.data();
    a.m = m.data();
    a.v = v.data();
    a.v_max = v_max.data();
    a.state_type = DType::kBf16;
    a.first_element = first_element;
    a.gradient = gradient.data();
    a.gradient_type = DType::kF32;
    return a;
  }
  /// To the bit: a NaN equals itself.
  bool operator==(const Arrays& other) const {
    return m == other.m && v == other.v && v_max == other.v_max &&
           std::memcmp(p.data(), other.p.data(), p.size() * sizeof(float)) == 0;
  }
};

Arrays random_arrays(std::size_t n, std::uint64_t seed) {
  RandomBits random(seed);
  Arrays out(n);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t special = random.next() % 16;
    out.p[i] = static_cast<float>(random.normal());
    out.gradient[i] = static_cast<float>(random.normal());
    out.m[i] = random.next_u16();
    out.v[i] = nearest(static_cast<float>(random.uniform()));
    out.v_max[i] = nearest(static_cast<float>(random.uniform()));
    if (special == 0) out.v[i] = random.next_u16();
    if (special == 1) out.v[i] = 0x7f7f;  // the largest finite number
    if (special == 2) out.gradient[i] = float_of(random.next_u32());
  }
  return out;
}

const std::vector<UpdateRule>& rules() {
  static const std::vector<UpdateRule> all = {
      {.rule = Rule::kAdamW, .weight_decay = 0.1},
      {.rule = Rule::kAdam, .amsgrad = true, .weight_decay = 0.1},
      {.rule = Rule::kSgd, .nesterov = true, .momentum = 0.9},
      {.rule = Rule::kSgd},
      {.rule = Rule::kAdagrad, .weight_decay = 0.1},
      {.rule = Rule::kLion, .weight_decay = 0.1, .beta2 = 0.99}};
  return all;
}

void run(Isa isa, const UpdateRule& rule, std::uint64_t t, std::uint64_t key,
         const UpdateArrays& arrays) {
  UpdateScalars scalars = update_scalars(rule, t, 1.0);
  scalars.key = key;
  update_kernel(isa, rule, arrays.gradient_type, Master::kF32, arrays.state_type)(scalars, arrays);
}

TEST_P(UpdateBf16Test, GivesTheBitsOfTheFormulasWithRoundedStates) {
  constexpr std::size_t kCount = 1U << 14;
  const std::uint64_t key = rounding_key(5, 6, 7);
  EXPECT_EQ(key, mix64(5, 6, 7));
  for (const UpdateRule& rule : rules()) {
    const UpdateStates states = update_states(rule);
    const UpdateScalars scalars = update_scalars(rule, 7, 1.0);
    const Arrays old = random_arrays(kCount, 3);
    Arrays got = old;
    // The index of an element passes 2^32 on the way.
    constexpr std::uint64_t kFirst = (1ULL << 32) - 1000;
    run(GetParam(), rule, 7, key, got.all(kFirst));
    for (std::size_t i = 0; i < kCount; ++i) {
      float p = old.p[i], m = bf16_value(old.m[i]), v = bf16_value(old.v[i]),
            v_max = bf16_value(old.v_max[i]);
      {
        const FloatModeGuard guard;
        model_update_f32(rule, scalars, old.gradient[i], p, m, v, v_max);
      }
      ASSERT_EQ(bits_of(got.p[i]), canonical_bits(p)) << static_cast<int>(rule.rule) << " " << i;
      ASSERT_EQ(got.m[i], states.m ? nearest(m) : old.m[i]) << i;
      ASSERT_EQ(got.v[i], states.v ? at_random(v, key, kFirst + i) : old.v[i]) << i;
      ASSERT_EQ(got.v_max[i], states.v_max ? nearest(v_max) : old.v_max[i]) << i;
    }
  }
}

TEST_P(UpdateBf16Test, HangsOnTheElementAndNotOnHowArraysAreCut) {
  constexpr std::size_t kCount = 100;
  for (const std::uint64_t first : {std::uint64_t{0}, (std::uint64_t{1} << 32) - 37}) {
    for (const UpdateRule& rule : rules()) {
      const Arrays old = random_arrays(kCount, 9);
      Arrays want = old;
      run(GetParam(), rule, 3, 77, want.all(first));
      for (std::size_t cut = 0; cut <= kCount; ++cut) {
        Arrays got = old;
        run(GetParam(), rule, 3, 77, got.all(first).part(cut, kCount - cut));
        run(GetParam(), rule, 3, 77, got.all(first).part(0, cut));
        ASSERT_TRUE(got == want) << cut;
      }
    }
  }
}

/// v after one step of Adagrad from zero: g^2, rounded.
std::vector<std::uint16_t> squares(Isa isa, float g, std::size_t n, std::uint64_t key,
                                   std::uint64_t first) {
  Arrays x(n);
  x.gradient.assign(n, g);
  run(isa, {.rule = Rule::kAdagrad}, 1, key, x.all(first));
  return x.v;
}

TEST_P(UpdateBf16Test, RoundsToTheRightMean) {
  constexpr std::size_t kCount = 1000000;
  for (const float g : {1.0009765625F, 0.3F, 1.99F, 3e-9F, 1e15F}) {
    double sum = 0;
    std::size_t odd = 0;
    for (const std::uint16_t half : squares(GetParam(), g, kCount, rounding_key(1, 2, 3), 0)) {
      sum += static_cast<double>(bf16_value(half));
      odd += half & 1U;
    }
    const double want = static_cast<double>(g * g);
    EXPECT_NEAR(sum / static_cast<double>(kCount) / want, 1.0, 3e-5) << g;
    EXPECT_GT(odd, 0U);
    EXPECT_LT(odd, kCount);
  }
  // What bf16 holds stays: 1.5^2 = 2.25.
  for (const std::uint16_t half : squares(GetParam(), 1.5F, 4096, 99, 0)) {
    ASSERT_EQ(bf16_value(half), 2.25F);
  }
}

TEST_P(UpdateBf16Test, HangsOnSeedTensorStepAndEveryBitOfTheElement) {
  constexpr std::size_t kCount = 4096;
  const auto base = squares(GetParam(), 0.3F, kCount, rounding_key(1, 2, 3), 0);
  const auto other = [&](std::uint64_t key, std::uint64_t first) {
    const auto found = squares(GetParam(), 0.3F, kCount, key, first);
    std::size_t different = 0;
    for (std::size_t i = 0; i < kCount; ++i) different += found[i] != base[i] ? 1U : 0U;
    return static_cast<double>(different) / kCount;
  };
  EXPECT_EQ(other(rounding_key(1, 2, 3), 0), 0.0);
  // Up with probability a: two independent draws differ with 2 a (1 - a).
  const auto ups = static_cast<double>(std::count(base.begin(), base.end(), base[0])) / kCount;
  const double want = 2.0 * ups * (1.0 - ups);
  ASSERT_GT(want, 0.2);
  for (const double found :
       {other(rounding_key(2, 2, 3), 0), other(rounding_key(1, 3, 3), 0),
        other(rounding_key(1, 2, 4), 0), other(rounding_key(1, 2, 3), 1),
        other(rounding_key(1, 2, 3), 16), other(rounding_key(1, 2, 3), 32),
        other(rounding_key(1, 2, 3), 1ULL << 20), other(rounding_key(1, 2, 3), 1ULL << 32),
        other(rounding_key(1, 2, 3), 1ULL << 45)}) {
    EXPECT_NEAR(found, want, 0.05);
  }
}

TEST_P(UpdateBf16Test, SecondMomentsDecayAsNearestOnesWouldNot) {
  constexpr std::size_t kCount = 4096;
  Arrays x(kCount);
  x.v.assign(kCount, nearest(1.0F));
  x.p.assign(kCount, 1.0F);
  float to_nearest = 1.0F;
  for (std::uint64_t t = 1; t <= 1000; ++t) {
    run(GetParam(), {.rule = Rule::kAdamW}, t, rounding_key(1, 2, t), x.all(0));
    to_nearest = bf16_value(nearest(to_nearest - 0.001F * to_nearest));
  }
  double sum = 0, largest = 0;
  for (const std::uint16_t half : x.v) {
    const auto v = static_cast<double>(bf16_value(half));
    sum += v;
    largest = std::fmax(largest, v);
  }
  EXPECT_NEAR(sum / kCount, std::pow(0.999, 1000), 0.01);
  EXPECT_LT(largest, 0.5);
  EXPECT_GT(to_nearest, 0.99F);  // the reason for all this
}

TEST_P(UpdateBf16Test, UpdatesStayCloseToThoseOfExactStates) {
  constexpr std::size_t kCount = 4096;
  RandomBits random(47);
  Arrays x(kCount);
  std::vector<ExactUpdate> exact(kCount);
  const UpdateRule rule = {.rule = Rule::kAdamW, .lr = 1e-3};
  double error = 0, size = 0;
  for (std::uint64_t t = 1; t <= 300; ++t) {
    for (float& g : x.gradient) g = static_cast<float>(0.3 + random.normal());
    const std::vector<float> old = x.p;
    run(GetParam(), rule, t, rounding_key(1, 2, t), x.all(0));
    for (std::size_t i = 0; i < kCount; ++i) {
      const double before = exact[i].p;
      exact[i] = exact_update(rule, t, static_cast<double>(x.gradient[i]), before, exact[i].m,
                              exact[i].v, 0.0);
      if (t < 200) continue;
      const double moved = static_cast<double>(x.p[i]) - static_cast<double>(old[i]);
      error += std::pow(moved - (exact[i].p - before), 2);
      size += std::pow(exact[i].p - before, 2);
    }
  }
  EXPECT_LT(std::sqrt(error / size), 0.01);
  EXPECT_GT(std::sqrt(error / size), 0.001);  // bf16 it is
}

// ==== bf16 weights ============================================================================

/// The weight's own random bits: the same hash of the element itself, with another second key.
std::uint16_t weight_at_random(float x, std::uint64_t key, std::uint64_t element) {
  key += (element >> 32) * 0x9e3779b97f4a7c15U;
  std::uint32_t random = static_cast<std::uint32_t>(element) + static_cast<std::uint32_t>(key);
  random = (random ^ (random >> 16)) * 0x7feb352dU;
  random = ((random ^ (random >> 15)) + (static_cast<std::uint32_t>(key >> 32) ^ 0x9e3779b9U)) *
           0x846ca68bU;
  random ^= random >> 16;
  const std::uint32_t bits = canonical_bits(x);
  const std::uint32_t up = (bits + (random >> 16)) >> 16;
  return static_cast<std::uint16_t>((up & 0x7f80U) == 0x7f80U ? bits >> 16 : up);
}

struct HalfWeights {
  std::vector<std::uint16_t> hi, m, v;
  std::vector<float> m_f32, v_f32, gradient;

  explicit HalfWeights(const Arrays& from) : m(from.m), v(from.v), gradient(from.gradient) {
    for (const float p : from.p) hi.push_back(static_cast<std::uint16_t>(bits_of(p) >> 16));
    for (const std::uint16_t half : m) m_f32.push_back(bf16_value(half));
    for (const std::uint16_t half : v) v_f32.push_back(bf16_value(half));
  }
  [[nodiscard]] UpdateArrays all(DType states, std::uint64_t first_element) {
    UpdateArrays a;
    a.n = hi.size();
    a.hi = hi.data();
    a.m = states == DType::kBf16 ? static_cast<void*>(m.data()) : m_f32.data();
    a.v = states == DType::kBf16 ? static_cast<void*>(v.data()) : v_f32.data();
    a.state_type = states;
    a.first_element = first_element;
    a.gradient = gradient.data();
    a.gradient_type = DType::kF32;
    return a;
  }
};

void run_half(Isa isa, const UpdateRule& rule, std::uint64_t key, const UpdateArrays& arrays) {
  UpdateScalars scalars = update_scalars(rule, 7, 1.0);
  scalars.key = key;
  update_kernel(isa, rule, DType::kF32, Master::kBf16, arrays.state_type)(scalars, arrays);
}

TEST_P(UpdateBf16Test, WeightsInBf16AreTheFormulasRoundedAtRandomForEveryCut) {
  constexpr std::size_t kCount = 3000;
  constexpr std::uint64_t kFirst = (1ULL << 32) - 1001, kKey = 0x123456789abcdefU;
  for (const DType states : {DType::kF32, DType::kBf16}) {
    for (const UpdateRule& rule : {UpdateRule{.rule = Rule::kAdamW, .weight_decay = 0.1},
                                   UpdateRule{.rule = Rule::kAdam, .weight_decay = 0.1}}) {
      const HalfWeights old(random_arrays(kCount, 5));
      HalfWeights whole = old;
      run_half(GetParam(), rule, kKey, whole.all(states, kFirst));
      for (std::size_t i = 0; i < kCount; ++i) {
        float p = bf16_value(old.hi[i]), m = bf16_value(old.m[i]), v = bf16_value(old.v[i]),
              v_max = 0.0F;
        {
          const FloatModeGuard guard;
          model_update_f32(rule, update_scalars(rule, 7, 1.0), old.gradient[i], p, m, v, v_max);
        }
        ASSERT_EQ(whole.hi[i], weight_at_random(p, kKey, kFirst + i)) << i;
        if (states != DType::kBf16) continue;
        ASSERT_EQ(whole.v[i], at_random(v, kKey, kFirst + i)) << i;
      }
      for (std::size_t cut = 0; cut <= 100; ++cut) {
        HalfWeights got = old;
        run_half(GetParam(), rule, kKey, got.all(states, kFirst).part(cut, kCount - cut));
        run_half(GetParam(), rule, kKey, got.all(states, kFirst).part(0, cut));
        ASSERT_EQ(got.hi, whole.hi) << cut;
        ASSERT_EQ(got.v, whole.v) << cut;
      }
    }
  }
}

// One step of a thousandth from 1.5, where bf16 has steps of 1/128.
TEST_P(UpdateBf16Test, WeightsInBf16MoveByTheRightMean) {
  constexpr std::size_t kCount = 1U << 20;
  Arrays start(kCount);
  start.p.assign(kCount, 1.5F);
  start.gradient.assign(kCount, 1.0F);
  HalfWeights x(start);
  UpdateScalars scalars = update_scalars({.rule = Rule::kAdamW}, 1, 1.0);
  scalars.key = 3;
  update_kernel(GetParam(), {.rule = Rule::kAdamW}, DType::kF32, Master::kBf16)(
      scalars, x.all(DType::kF32, 0));
  double sum = 0;
  for (const std::uint16_t half : x.hi) sum += static_cast<double>(bf16_value(half)) - 1.5;
  // Five deviations of a mean of 2^20 draws of which an eighth moves: 5 sqrt(.11) / 128 / 1024.
  EXPECT_NEAR(sum / kCount, -1e-3, 1.3e-5);
}

}  // namespace
}  // namespace penstock::test
