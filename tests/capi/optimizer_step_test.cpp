// Level 0 against the formula of AdamW, computed here with one rounding per operation.

#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/random.hpp"
#include "capi/half.hpp"
#include "penstock/penstock.hpp"

namespace penstock::capi_testing {
namespace {

// More than one task of the pool, and a tail.
constexpr std::size_t kElements = 3 * 65536 + 2049 + 7;

std::uint16_t bf16_of(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}
float widen(std::uint16_t half) {
  const std::uint32_t bits = static_cast<std::uint32_t>(half) << 16;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
struct State {
  std::vector<float> p, m, v;
  State() : p(kElements), m(kElements), v(kElements) {
    for (std::size_t i = 0; i < kElements; ++i) p[i] = approximately_normal(1, 2, i);
  }
};

/// Gradients as they are stored, and as the formula sees them.
struct Gradient {
  std::vector<std::uint16_t> half;
  std::vector<float> wide;
  Gradient(penstock_dtype dtype, std::uint64_t t) : half(kElements), wide(kElements) {
    for (std::size_t i = 0; i < kElements; ++i) {
      const float value = approximately_normal(3 + t, 4, i);
      half[i] = dtype == PENSTOCK_F16 ? f16_of(value) : bf16_of(value);
      wide[i] = dtype == PENSTOCK_F32   ? value
                : dtype == PENSTOCK_F16 ? from_f16(half[i])
                                        : widen(half[i]);
    }
  }
  [[nodiscard]] const void* data(penstock_dtype dtype) const {
    return dtype == PENSTOCK_F32 ? static_cast<const void*>(wide.data()) : half.data();
  }
};

void reference_step(const penstock_optimizer_args& a, const Gradient& gradient, State& s) {
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(saved | 0x8040U);  // denormals are zero, as the kernels are specified
  const auto t = static_cast<double>(a.t);
  const double bc1 = -std::expm1(t * std::log(a.beta1)), bc2 = -std::expm1(t * std::log(a.beta2));
  const auto gs = static_cast<float>(a.gradient_factor);
  const auto w1 = static_cast<float>(1 - a.beta1), w2 = static_cast<float>(1 - a.beta2);
  const auto ns = static_cast<float>(-a.lr / bc1), is = static_cast<float>(1 / std::sqrt(bc2));
  const auto eps = static_cast<float>(a.eps), nd = static_cast<float>(-a.lr * a.weight_decay);
  for (std::size_t i = 0; i < kElements; ++i) {
    float &p = s.p[i], &m = s.m[i], &v = s.v[i];
    const float g = gs * gradient.wide[i];
    m = std::fma(w1, g - m, m);
    v = std::fma(w2, std::fma(g, g, -v), v);
    const float u = m / std::fma(std::sqrt(v), is, eps);
    p = p + std::fma(ns, u, nd * p);
  }
  _mm_setcsr(saved);
}

struct Case {
  const char* name;
  penstock_dtype gradient, out;
  std::uint32_t threads;  // 0: the calling thread
};

class OptimizerStepTest : public ::testing::TestWithParam<Case> {};

TEST_P(OptimizerStepTest, EqualsTheFormulaBitForBit) {
  const Case& c = GetParam();
  State expected, got;
  std::vector<std::uint16_t> out(kElements);
  std::vector<Pool> pools;
  if (c.threads > 0) pools.emplace_back(c.threads);
  penstock_optimizer_args args = optimizer_args();
  args.lr = 1e-2;
  args.weight_decay = 0.1;
  args.gradient_factor = 0.25;
  for (args.t = 1; args.t <= 3; ++args.t) {
    const Gradient gradient(c.gradient, args.t);
    reference_step(args, gradient, expected);
    ASSERT_EQ(penstock_cpu_optimizer_step(&args, kElements, got.p.data(), got.m.data(),
                                          got.v.data(), gradient.data(c.gradient), c.gradient,
                                          c.out == PENSTOCK_DTYPE_NONE ? nullptr : out.data(),
                                          c.out, pools.empty() ? nullptr : pools.front().get()),
              PENSTOCK_OK)
        << penstock_last_error();
  }
  const std::size_t bytes = kElements * sizeof(float);
  EXPECT_EQ(std::memcmp(got.p.data(), expected.p.data(), bytes), 0);
  EXPECT_EQ(std::memcmp(got.m.data(), expected.m.data(), bytes), 0);
  EXPECT_EQ(std::memcmp(got.v.data(), expected.v.data(), bytes), 0);
  for (std::size_t i = 0; c.out != PENSTOCK_DTYPE_NONE && i < kElements; ++i) {
    ASSERT_EQ(out[i], c.out == PENSTOCK_BF16 ? bf16_of(expected.p[i]) : f16_of(expected.p[i])) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, OptimizerStepTest,
                         ::testing::Values(Case{"f32", PENSTOCK_F32, PENSTOCK_DTYPE_NONE, 0},
                                           Case{"f32_to_bf16_pool", PENSTOCK_F32, PENSTOCK_BF16, 2},
                                           Case{"bf16_to_bf16", PENSTOCK_BF16, PENSTOCK_BF16, 0},
                                           Case{"bf16_to_f16_pool", PENSTOCK_BF16, PENSTOCK_F16, 2},
                                           Case{"f16_to_f16_pool_of_1", PENSTOCK_F16, PENSTOCK_F16,
                                                1},
                                           Case{"f16_pool", PENSTOCK_F16, PENSTOCK_DTYPE_NONE, 2}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace penstock::capi_testing
