// Casts, the split master and accumulation, against references that share no method with the
// kernels: nearest values are found by exact arithmetic in double.
//
// By default 2^24 bit patterns, one from each run of 256; PENSTOCK_EXHAUSTIVE=1 takes all 2^32.

#include <cmath>
#include <cstdlib>

#include "kernels/cpu/optimizer.hpp"
#include "kernels/kernel_test_support.hpp"

namespace penstock::test {
namespace {

class CastTest : public IsaTest {
 protected:
  const OptimizerKernels& kernels() const { return optimizer_kernels(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Isa, CastTest, all_isas(), isa_test_name);

constexpr std::size_t kChunk = 1U << 16;

/// Calls check(bits) for chunks that cover the sweep.
template <class Check>
void sweep(Check check) {
  const char* exhaustive = std::getenv("PENSTOCK_EXHAUSTIVE");
  const bool all = exhaustive != nullptr && std::string(exhaustive) == "1";
  const std::uint64_t run = all ? 1 : 256;
  std::vector<std::uint32_t> bits(kChunk);
  RandomBits random(43);
  for (std::uint64_t first = 0; first < (1ULL << 32); first += kChunk * run) {
    for (std::size_t i = 0; i < kChunk; ++i) {
      bits[i] = static_cast<std::uint32_t>(first + i * run + (all ? 0 : random.next() % run));
    }
    // The ends of a run hold the special values: zero, ties, infinity.
    if (!all) {
      for (std::size_t i = 0; i < kChunk; i += 2) bits[i] &= ~0xffU;
    }
    check(bits);
    if (testing::Test::HasFatalFailure()) return;
  }
}

std::vector<float> as_floats(const std::vector<std::uint32_t>& bits) {
  std::vector<float> values(bits.size());
  std::memcpy(values.data(), bits.data(), bits.size() * sizeof(float));
  return values;
}

std::uint16_t bf16_reference(std::uint32_t bits) {
  const float x = float_of(bits);
  if (x != x) return 0x7fc0;
  if (std::fpclassify(x) == FP_SUBNORMAL) return std::signbit(x) ? 0x8000 : 0;
  const auto down = static_cast<std::uint16_t>(bits >> 16);
  if ((bits & 0xffffU) == 0) return down;
  // The neighbour above in magnitude; past the largest finite one it stands for 2^128.
  const auto up = static_cast<std::uint16_t>(down + 1);
  const double magnitude = std::fabs(static_cast<double>(x));
  const double low = std::fabs(static_cast<double>(bf16_value(down)));
  const double high =
      (up & 0x7fffU) == 0x7f80U ? 0x1p128 : std::fabs(static_cast<double>(bf16_value(up)));
  if (magnitude - low != high - magnitude) return magnitude - low < high - magnitude ? down : up;
  return (down & 1U) == 0 ? down : up;
}

std::uint16_t f16_reference(std::uint32_t bits) {
  const float x = float_of(bits);
  if (x != x) return 0x7e00;
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const double magnitude = std::fabs(static_cast<double>(x));
  if (magnitude >= 65520.0) return sign | 0x7c00U;
  if (magnitude < 0x1p-26) return sign;
  int exponent = std::ilogb(magnitude);
  if (exponent < -14) exponent = -14;
  // In units of the last place; counting units from zero numbers the f16 values.
  const double units = std::nearbyint(std::ldexp(magnitude, 10 - exponent));
  const int code = static_cast<int>(units) + (exponent + 14) * 1024;
  return static_cast<std::uint16_t>(sign | code);
}

float f16_value_reference(std::uint16_t half) {
  const int exponent = (half >> 10) & 0x1f;
  const int fraction = half & 0x3ff;
  const float sign = (half & 0x8000U) != 0 ? -1.0F : 1.0F;
  if (exponent == 31) return fraction != 0 ? std::nanf("") : sign * HUGE_VALF;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
}

TEST_P(CastTest, SplitAndJoinAreExactInverses) {
  std::vector<std::uint16_t> hi(kChunk), lo(kChunk);
  std::vector<float> back(kChunk);
  sweep([&](const std::vector<std::uint32_t>& bits) {
    const std::vector<float> in = as_floats(bits);
    kernels().split(kChunk, in.data(), hi.data(), lo.data());
    kernels().join(kChunk, hi.data(), lo.data(), back.data());
    for (std::size_t i = 0; i < kChunk; ++i) {
      const std::uint32_t want = canonical_bits(in[i]);
      ASSERT_EQ(bits_of(back[i]), want) << std::hex << bits[i];
      ASSERT_EQ(hi[i], split_hi(want)) << std::hex << bits[i];
      ASSERT_EQ(lo[i], split_lo(want)) << std::hex << bits[i];
      ASSERT_EQ(join_master_bits(hi[i], lo[i]), want) << std::hex << bits[i];
    }
  });
}

TEST_P(CastTest, SplitHiIsTheNearestBf16) {
  // Ties go away from zero and denormals are kept; everything else is as the cast has it.
  std::vector<std::uint16_t> hi(kChunk), lo(kChunk);
  sweep([&](const std::vector<std::uint32_t>& bits) {
    const std::vector<float> in = as_floats(bits);
    kernels().split(kChunk, in.data(), hi.data(), lo.data());
    for (std::size_t i = 0; i < kChunk; ++i) {
      const bool tie = (bits[i] & 0xffffU) == 0x8000U;
      if (tie || (bits[i] & 0x7f800000U) == 0) continue;
      ASSERT_EQ(hi[i], bf16_reference(bits[i])) << std::hex << bits[i];
    }
  });
}

TEST_P(CastTest, NarrowsToTheNearestBf16) {
  std::vector<std::uint16_t> out(kChunk);
  sweep([&](const std::vector<std::uint32_t>& bits) {
    const std::vector<float> in = as_floats(bits);
    kernels().f32_to_bf16(kChunk, in.data(), out.data());
    for (std::size_t i = 0; i < kChunk; ++i) {
      ASSERT_EQ(out[i], bf16_reference(bits[i])) << std::hex << bits[i];
    }
  });
}

TEST_P(CastTest, NarrowsToTheNearestF16) {
  std::vector<std::uint16_t> out(kChunk);
  sweep([&](const std::vector<std::uint32_t>& bits) {
    const std::vector<float> in = as_floats(bits);
    kernels().f32_to_f16(kChunk, in.data(), out.data());
    for (std::size_t i = 0; i < kChunk; ++i) {
      ASSERT_EQ(out[i], f16_reference(bits[i])) << std::hex << bits[i];
    }
  });
}

/// The f16 values, their midpoints and the floats on both sides of either: where rounding decides.
TEST_P(CastTest, RoundsF16TiesToEven) {
  std::vector<float> in;
  for (std::uint32_t half = 0; half < 0x7c00U; ++half) {
    const double here = static_cast<double>(f16_value_reference(static_cast<std::uint16_t>(half)));
    const double next =
        half == 0x7bffU
            ? 65536.0
            : static_cast<double>(f16_value_reference(static_cast<std::uint16_t>(half + 1)));
    for (const double x : {here, (here + next) / 2.0}) {
      const float centre = static_cast<float>(x);
      for (const float y : {centre, std::nextafter(centre, 0.0F), std::nextafter(centre, 1e9F)}) {
        in.push_back(y);
        in.push_back(-y);
      }
    }
  }
  std::vector<std::uint16_t> out(in.size());
  kernels().f32_to_f16(in.size(), in.data(), out.data());
  for (std::size_t i = 0; i < in.size(); ++i) {
    ASSERT_EQ(out[i], f16_reference(bits_of(in[i]))) << in[i];
  }
}

std::vector<std::uint16_t> all_halves() {
  std::vector<std::uint16_t> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  return halves;
}

TEST_P(CastTest, WidensEveryBf16ExactlyAndNarrowsItBack) {
  const std::vector<std::uint16_t> in = all_halves();
  std::vector<float> wide(in.size());
  std::vector<std::uint16_t> back(in.size());
  kernels().bf16_to_f32(in.size(), in.data(), wide.data());
  kernels().f32_to_bf16(in.size(), wide.data(), back.data());
  for (std::size_t i = 0; i < in.size(); ++i) {
    ASSERT_EQ(bits_of(wide[i]), canonical_bits(bf16_value(in[i]))) << i;
    const bool denormal = (in[i] & 0x7f80U) == 0;
    const bool nan = (in[i] & 0x7fffU) > 0x7f80U;
    ASSERT_EQ(back[i], nan ? 0x7fc0U : denormal ? in[i] & 0x8000U : in[i]) << i;
  }
}

TEST_P(CastTest, WidensEveryF16ExactlyAndNarrowsItBack) {
  const std::vector<std::uint16_t> in = all_halves();
  std::vector<float> wide(in.size());
  std::vector<std::uint16_t> back(in.size());
  kernels().f16_to_f32(in.size(), in.data(), wide.data());
  kernels().f32_to_f16(in.size(), wide.data(), back.data());
  for (std::size_t i = 0; i < in.size(); ++i) {
    ASSERT_EQ(bits_of(wide[i]), canonical_bits(f16_value_reference(in[i]))) << i;
    const bool nan = (in[i] & 0x7fffU) > 0x7c00U;
    ASSERT_EQ(back[i], nan ? 0x7e00U : in[i]) << i;  // subnormals too
  }
}

TEST_P(CastTest, AddsEachElementOnce) {
  const std::vector<std::uint16_t> halves = all_halves();
  const std::size_t n = halves.size();
  std::vector<float> start(n), in(n);
  RandomBits random(47);
  for (std::size_t i = 0; i < n; ++i) {
    start[i] = float_of(random.next_u32());
    in[i] = float_of(random.next_u32());
  }
  std::vector<float> plus_f32 = start, plus_bf16 = start, plus_f16 = start;
  kernels().add_f32(n, in.data(), plus_f32.data());
  kernels().add_bf16(n, halves.data(), plus_bf16.data());
  kernels().add_f16(n, halves.data(), plus_f16.data());
  // Denormals count as zero going in and coming out.
  const auto flushed = [](float x) {
    return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0F, x) : x;
  };
  const auto sum = [&](float a, float b) {
    return canonical_bits(flushed(flushed(a) + flushed(b)));
  };
  for (std::size_t i = 0; i < n; ++i) {
    ASSERT_EQ(bits_of(plus_f32[i]), sum(start[i], in[i])) << i;
    ASSERT_EQ(bits_of(plus_bf16[i]), sum(start[i], bf16_value(halves[i]))) << i;
    ASSERT_EQ(bits_of(plus_f16[i]), sum(start[i], f16_value_reference(halves[i]))) << i;
  }
}

}  // namespace
}  // namespace penstock::test
