// Level 0 against the formulas of docs/numerics.md, computed here with one rounding per operation:
// every rule, gradient type, form of the weights, copy and number of threads, to the bit.

#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#include "base/random.hpp"
#include "capi/half.hpp"
#include "capi/level0.hpp"

namespace penstock::capi_testing {
namespace {

// More than one task of the pool, and a tail.
constexpr std::size_t kElements = 2 * 65536 + 2049 + 7;

/// Gradients as they are stored, and as the formulas see them.
struct Gradient {
  std::vector<std::uint16_t> half;
  std::vector<float> wide;
  Gradient(penstock_dtype dtype, std::uint64_t t) : half(kElements), wide(kElements) {
    for (std::size_t i = 0; i < kElements; ++i) {
      const float value = approximately_normal(3 + t, 4, i);
      half[i] = dtype == PENSTOCK_F16 ? f16_of(value) : bf16_of(value);
      wide[i] = dtype == PENSTOCK_F32   ? value
                : dtype == PENSTOCK_F16 ? from_f16(half[i])
                                        : from_bf16(half[i]);
    }
  }
  [[nodiscard]] const void* data(penstock_dtype dtype) const {
    return dtype == PENSTOCK_F32 ? static_cast<const void*>(wide.data()) : half.data();
  }
};

/// What a step multiplies with.
struct Scalars {
  float gs, l2, nd, w1, w2, ns, is, eps, mu, keep;
  explicit Scalars(const penstock_optimizer_args& a) {
    const bool decoupled = a.kind == PENSTOCK_ADAMW || a.kind == PENSTOCK_LION;
    const bool adam = a.kind == PENSTOCK_ADAMW || a.kind == PENSTOCK_ADAM;
    const auto t = static_cast<double>(a.t);
    const double bc1 = -std::expm1(t * std::log(a.beta1)), bc2 = -std::expm1(t * std::log(a.beta2));
    double rate = a.lr;
    if (adam) rate = a.lr / bc1;
    if (a.kind == PENSTOCK_ADAGRAD) rate = a.lr / (1.0 + (t - 1.0) * a.lr_decay);
    gs = static_cast<float>(a.maximize != 0 ? -a.gradient_factor : a.gradient_factor);
    l2 = decoupled ? 0.0F : static_cast<float>(a.weight_decay);
    nd = decoupled ? static_cast<float>(-a.lr * a.weight_decay) : 0.0F;
    w1 = static_cast<float>(1 - a.beta1);
    w2 = static_cast<float>(1 - a.beta2);
    ns = static_cast<float>(-rate);
    is = static_cast<float>(1 / std::sqrt(bc2));
    eps = static_cast<float>(a.eps);
    mu = static_cast<float>(a.momentum);
    keep = static_cast<float>(1 - a.dampening);
  }
};

void reference_element(const penstock_optimizer_args& a, const Scalars& s, float gradient, float& p,
                       float& m, float& v, float& v_max) {
  float g = s.gs * gradient;
  if (s.l2 > 0) g = std::fma(s.l2, p, g);
  float u = g;
  if (a.kind == PENSTOCK_ADAMW || a.kind == PENSTOCK_ADAM) {
    m = std::fma(s.w1, g - m, m);
    v = std::fma(s.w2, std::fma(g, g, -v), v);
    if (a.amsgrad != 0) v_max = v_max > v ? v_max : v;
    u = m / std::fma(std::sqrt(a.amsgrad != 0 ? v_max : v), s.is, s.eps);
  } else if (a.kind == PENSTOCK_SGD && a.momentum != 0) {
    m = a.t == 1 ? g : std::fma(s.mu, m, s.keep * g);
    u = a.nesterov != 0 ? std::fma(s.mu, m, g) : m;
  } else if (a.kind == PENSTOCK_ADAGRAD) {
    v = std::fma(g, g, v);
    u = g / (std::sqrt(v) + s.eps);
  } else if (a.kind == PENSTOCK_LION) {
    const float c = std::fma(s.w1, g - m, m);
    u = c > 0 ? 1.0F : c < 0 ? -1.0F : 0.0F;
    m = std::fma(s.w2, g - m, m);
  }
  p = s.nd < 0 ? p + std::fma(s.ns, u, s.nd * p) : std::fma(s.ns, u, p);
}

void reference_step(const penstock_optimizer_args& a, const Gradient& gradient, State& x) {
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(saved | 0x8040U);  // denormals are zero, as the kernels are specified
  const Scalars scalars(a);
  for (std::size_t i = 0; i < kElements; ++i) {
    reference_element(a, scalars, gradient.wide[i], x.p[i], x.m[i], x.v[i], x.v_max[i]);
  }
  _mm_setcsr(saved);
}

struct Case {
  const char* name;
  penstock_dtype gradient, out;
  bool halves;
  std::uint32_t threads;  // 0: the calling thread
};

class OptimizerStepTest : public ::testing::TestWithParam<Case> {};

void run_case(const Case& c, penstock_optimizer_args args, const Pool* pool) {
  State expected(kElements), got(kElements);
  for (std::size_t i = 0; i < kElements; ++i) {
    expected.p[i] = got.p[i] = approximately_normal(1, 2, i);
  }
  got.split();
  std::vector<std::uint32_t> out(kElements);
  for (args.t = 1; args.t <= 3; ++args.t) {
    const Gradient gradient(c.gradient, args.t);
    reference_step(args, gradient, expected);
    penstock_optimizer_arrays arrays = got.arrays(c.halves);
    arrays.grad = gradient.data(c.gradient);
    arrays.grad_dtype = c.gradient;
    arrays.out_dtype = c.out;
    arrays.out = c.out == PENSTOCK_DTYPE_NONE ? nullptr : out.data();
    ASSERT_TRUE(optimizer_step(args, arrays, pool));
  }
  if (c.halves) got.join();
  const std::size_t bytes = kElements * sizeof(float);
  EXPECT_EQ(std::memcmp(got.p.data(), expected.p.data(), bytes), 0);
  EXPECT_EQ(std::memcmp(got.m.data(), expected.m.data(), bytes), 0);
  EXPECT_EQ(std::memcmp(got.v.data(), expected.v.data(), bytes), 0);
  EXPECT_EQ(std::memcmp(got.v_max.data(), expected.v_max.data(), bytes), 0);
  std::uint16_t half = 0;
  for (std::size_t i = 0; c.out == PENSTOCK_F32 && i < kElements; ++i) {
    ASSERT_EQ(std::memcmp(&out[i], &expected.p[i], sizeof out[i]), 0) << i;
  }
  const bool is_half = c.out == PENSTOCK_BF16 || c.out == PENSTOCK_F16;
  for (std::size_t i = 0; is_half && i < kElements; ++i) {
    std::memcpy(&half, reinterpret_cast<const char*>(out.data()) + 2 * i, sizeof half);
    ASSERT_EQ(half, c.out == PENSTOCK_BF16 ? bf16_of(expected.p[i]) : f16_of(expected.p[i])) << i;
  }
}

TEST_P(OptimizerStepTest, EqualsTheFormulasBitForBit) {
  const Case& c = GetParam();
  std::vector<Pool> pools;
  if (c.threads > 0) pools.emplace_back(c.threads);
  for (const NamedArgs& named : every_rule()) {
    SCOPED_TRACE(named.name);
    penstock_optimizer_args args = named.args;
    args.lr = 1e-2;
    args.weight_decay = 0.1;
    args.gradient_factor = 0.25;
    run_case(c, args, pools.empty() ? nullptr : &pools.front());
    args.maximize = 1;
    args.weight_decay = 0.0;
    run_case(c, args, pools.empty() ? nullptr : &pools.front());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, OptimizerStepTest,
    ::testing::Values(Case{"f32", PENSTOCK_F32, PENSTOCK_DTYPE_NONE, false, 0},
                      Case{"f32_to_bf16_pool", PENSTOCK_F32, PENSTOCK_BF16, false, 2},
                      Case{"f32_halves_to_f32_pool", PENSTOCK_F32, PENSTOCK_F32, true, 3},
                      Case{"bf16_to_bf16", PENSTOCK_BF16, PENSTOCK_BF16, false, 0},
                      Case{"bf16_halves_pool", PENSTOCK_BF16, PENSTOCK_DTYPE_NONE, true, 2},
                      Case{"bf16_halves_to_f16_pool", PENSTOCK_BF16, PENSTOCK_F16, true, 2},
                      Case{"f16_to_f16_pool_of_1", PENSTOCK_F16, PENSTOCK_F16, false, 1},
                      Case{"f16_halves", PENSTOCK_F16, PENSTOCK_DTYPE_NONE, true, 0},
                      Case{"f16_to_f32_pool", PENSTOCK_F16, PENSTOCK_F32, false, 2}),
    [](const auto& info) { return info.param.name; });

TEST(OptimizerStepTest, ThreadsMayShareAPool) {
  const Pool pool(2);
  const Gradient gradient(PENSTOCK_BF16, 1);
  const auto step = [&](State& x) {
    penstock_optimizer_args args = optimizer_args();
    penstock_optimizer_arrays arrays = x.arrays(false);
    arrays.grad = gradient.half.data();
    arrays.grad_dtype = PENSTOCK_BF16;
    for (args.t = 1; args.t <= 20; ++args.t) ASSERT_TRUE(optimizer_step(args, arrays, &pool));
  };
  State alone(kElements);
  step(alone);
  std::vector<State> states(4, State(kElements));
  std::vector<std::thread> threads;
  for (State& x : states) threads.emplace_back([&step, &x] { step(x); });
  for (std::thread& thread : threads) thread.join();
  for (const State& x : states) EXPECT_EQ(x.p, alone.p);
  EXPECT_NE(alone.p[0], 0.0F);
}

// What bf16 states hold is tested beside the kernels (update_bf16_test.cpp); here, that they are
// reached, and that neither threads nor the cut over calls matter.
TEST(OptimizerStepTest, StatesInBf16DoNotDependOnThreadsOrOnTheCutOverCalls) {
  struct Halves {
    std::vector<float> p = std::vector<float>(kElements);
    std::vector<std::uint16_t> m = std::vector<std::uint16_t>(kElements), v = m, v_max = m;
  };
  const Pool pool(3);
  const auto run = [&](penstock_optimizer_args args, std::size_t part, const Pool* used) {
    Halves x;
    for (args.t = 1; args.t <= 2; ++args.t) {
      const Gradient gradient(PENSTOCK_BF16, args.t);
      for (std::size_t at = 0; at < kElements; at += part) {
        penstock_optimizer_arrays arrays = optimizer_arrays();
        arrays.n = std::min(part, kElements - at);
        arrays.p = x.p.data() + at;
        arrays.m = x.m.data() + at;
        arrays.v = x.v.data() + at;
        arrays.v_max = x.v_max.data() + at;
        arrays.state_dtype = PENSTOCK_BF16;
        arrays.grad = gradient.half.data() + at;
        arrays.grad_dtype = PENSTOCK_BF16;
        arrays.tensor = 5;
        arrays.first_element = at;
        EXPECT_TRUE(optimizer_step(args, arrays, used));
      }
    }
    return x;
  };
  for (const NamedArgs& named : every_rule()) {
    penstock_optimizer_args args = named.args;
    args.seed = 1;
    const Halves want = run(args, kElements, nullptr);
    for (const auto& got : {run(args, kElements, &pool), run(args, 1001, nullptr)}) {
      EXPECT_EQ(got.p, want.p) << named.name;
      EXPECT_EQ(got.m, want.m) << named.name;
      EXPECT_EQ(got.v, want.v) << named.name;
      EXPECT_EQ(got.v_max, want.v_max) << named.name;
    }
    args.seed = 2;
    const bool has_v = want.v != std::vector<std::uint16_t>(kElements);
    EXPECT_EQ(run(args, kElements, nullptr).v != want.v, has_v) << named.name;
  }
}

// The same for 8-bit states and for every form of the weights that goes with them.
TEST(OptimizerStepTest, StatesOf8BitsDoNotDependOnThreadsOrOnTheCutOverCalls) {
  struct Bytes {
    std::vector<float> p = std::vector<float>(kElements);
    std::vector<std::uint16_t> hi = std::vector<std::uint16_t>(kElements), lo = hi;
    std::vector<std::int8_t> lo8 = std::vector<std::int8_t>(kElements), m = lo8, v = lo8;
    std::vector<float> m_scale = std::vector<float>(kElements / 256 + 1), v_scale = m_scale;
    bool operator==(const Bytes&) const = default;
  };
  enum Form { kF32, kLo, kLo8, kHiAlone };
  const Pool pool(3);
  const auto run = [&](Form form, std::uint64_t seed, std::size_t part, const Pool* used) {
    penstock_optimizer_args args = optimizer_args();
    args.seed = seed;
    Bytes x;
    for (args.t = 1; args.t <= 2; ++args.t) {
      const Gradient gradient(PENSTOCK_BF16, args.t);
      for (std::size_t at = 0; at < kElements; at += part) {
        penstock_optimizer_arrays arrays = optimizer_arrays();
        arrays.n = std::min(part, kElements - at);
        if (form == kF32) arrays.p = x.p.data() + at;
        if (form != kF32) arrays.hi = x.hi.data() + at;
        if (form == kLo) arrays.lo = x.lo.data() + at;
        if (form == kLo8) arrays.lo8 = x.lo8.data() + at;
        arrays.bf16_weights = form == kHiAlone ? 1 : 0;
        arrays.m = x.m.data() + at;
        arrays.v = x.v.data() + at;
        arrays.m_scale = x.m_scale.data() + at / 256;
        arrays.v_scale = x.v_scale.data() + at / 256;
        arrays.state_dtype = PENSTOCK_I8;
        arrays.grad = gradient.half.data() + at;
        arrays.grad_dtype = PENSTOCK_BF16;
        arrays.tensor = 5;
        arrays.first_element = at;
        EXPECT_TRUE(optimizer_step(args, arrays, used));
      }
    }
    return x;
  };
  for (const Form form : {kF32, kLo, kLo8, kHiAlone}) {
    const Bytes want = run(form, 1, kElements, nullptr);
    EXPECT_TRUE(run(form, 1, kElements, &pool) == want);
    EXPECT_TRUE(run(form, 1, 256 * 13, nullptr) == want);
    const Bytes other = run(form, 2, kElements, nullptr);
    EXPECT_NE(other.m, want.m);
    EXPECT_NE(other.v, want.v);
    EXPECT_NE(form == kF32 ? want.p[9] : static_cast<float>(want.hi[9]), 0.0F);
  }
}

/// Every byte of the state, to see that none has changed.
std::vector<std::vector<float>> bytes_of(const State& x) {
  std::vector<std::vector<float>> out = {x.p, x.m, x.v, x.v_max};
  for (const auto* half : {&x.hi, &x.lo}) out.emplace_back(half->begin(), half->end());
  return out;
}

TEST(OptimizerStepTest, OneBadGradientLeavesEveryByteAsItWas) {
  const Pool pool(2);
  const float inf = INFINITY, nan = std::nanf("");
  for (const NamedArgs& named : every_rule()) {
    for (const std::size_t at : {std::size_t{0}, std::size_t{70000}, kElements - 1}) {
      for (const float value : {inf, -inf, nan, 2e19F}) {
        for (const penstock_dtype type : {PENSTOCK_F32, PENSTOCK_F16, PENSTOCK_BF16}) {
          if (type == PENSTOCK_F16 && std::isfinite(value)) continue;  // f16 ends below
          Gradient gradient(type, 1);
          gradient.wide[at] = value;
          std::uint32_t bits = 0;
          std::memcpy(&bits, &value, sizeof bits);
          gradient.half[at] = type == PENSTOCK_F16
                                  ? static_cast<std::uint16_t>(value != value ? 0x7e00
                                                               : value > 0.0F ? 0x7c00
                                                                              : 0xfc00)
                                  : static_cast<std::uint16_t>(bits >> 16);
          State x(kElements);
          x.m.assign(kElements, 0.5F);
          x.split();
          const auto old = bytes_of(x);
          std::vector<std::uint16_t> out(kElements, 0x1234);
          penstock_optimizer_arrays arrays = x.arrays(type == PENSTOCK_BF16);
          arrays.grad = gradient.data(type);
          arrays.grad_dtype = type;
          arrays.out = out.data();
          arrays.out_dtype = PENSTOCK_BF16;
          EXPECT_FALSE(optimizer_step(named.args, arrays, at == 0 ? nullptr : &pool))
              << named.name << ", " << value << " at " << at;
          EXPECT_EQ(bytes_of(x), old);
          EXPECT_EQ(out, std::vector<std::uint16_t>(kElements, 0x1234));
        }
      }
    }
  }
}

TEST(OptimizerStepTest, TheFactorCountsForWhatIsTooLarge) {
  float p = 1, m = 0, v = 0, g = 1e19F;
  penstock_optimizer_arrays arrays = optimizer_arrays();
  arrays.n = 1;
  arrays.p = &p, arrays.m = &m, arrays.v = &v, arrays.grad = &g;
  penstock_optimizer_args args = optimizer_args();
  EXPECT_TRUE(optimizer_step(args, arrays));
  args.gradient_factor = -2.0;
  EXPECT_FALSE(optimizer_step(args, arrays));
  g = 3e38F;
  EXPECT_FALSE(optimizer_step(args, arrays));
  args.gradient_factor = 1e-30;
  EXPECT_TRUE(optimizer_step(args, arrays));
  args.gradient_factor = 0.0;
  EXPECT_TRUE(optimizer_step(args, arrays));
  g = INFINITY;
  EXPECT_FALSE(optimizer_step(args, arrays));
  EXPECT_TRUE(std::isfinite(p) && std::isfinite(m) && std::isfinite(v));
  args.gradients_checked = 1;  // the caller's word is taken
  EXPECT_TRUE(optimizer_step(args, arrays));
  EXPECT_TRUE(std::isnan(p));
}

}  // namespace
}  // namespace penstock::capi_testing
