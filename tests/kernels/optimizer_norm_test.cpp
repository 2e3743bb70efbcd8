// The gradient norm: its value against double, its bits against the stated order of additions, and
// its verdict on inf and NaN, on which skipping a whole step depends.

#include <array>
#include <cmath>
#include <limits>

#include "kernels/cpu/optimizer.hpp"
#include "kernels/kernel_test_support.hpp"

namespace penstock::test {
namespace {

class NormTest : public IsaTest {
 protected:
  const OptimizerKernels& kernels() const { return optimizer_kernels(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Isa, NormTest, all_isas(), isa_test_name);

/// Element i goes to lane i mod 16; then lanes j and j + 8, j + 4, j + 2, j + 1.
double block_reference(const std::vector<std::uint16_t>& in) {
  std::array<float, 16> lane{};
  for (std::size_t i = 0; i < in.size(); ++i) {
    const float x = bf16_value(in[i]);
    lane[i % 16] = std::fma(x, x, lane[i % 16]);
  }
  for (std::size_t step = 8; step > 0; step /= 2) {
    for (std::size_t j = 0; j < step; ++j) lane[j] += lane[j + step];
  }
  return static_cast<double>(lane[0]);
}

std::vector<std::uint16_t> gradient_like(std::size_t n, std::uint64_t seed) {
  RandomBits random(seed);
  std::vector<std::uint16_t> out(n);
  for (auto& x : out) {
    x = static_cast<std::uint16_t>(bits_of(static_cast<float>(0.01 * random.normal())) >> 16);
  }
  return out;
}

TEST_P(NormTest, AddsInTheStatedOrderForEveryLength) {
  std::vector<std::size_t> lengths = {255, 256, 257, 4095, 4096};
  for (std::size_t n = 0; n <= 100; ++n) lengths.push_back(n);
  for (const std::size_t n : lengths) {
    const std::vector<std::uint16_t> in = gradient_like(n, n + 1);
    GuardedBuffer guarded(n * 2);
    ASSERT_NE(guarded.data(), nullptr);
    if (n != 0) std::memcpy(guarded.data(), in.data(), n * 2);
    const NormPart part =
        kernels().norm_bf16(n, reinterpret_cast<const std::uint16_t*>(guarded.data()));
    EXPECT_EQ(part.sum_of_squares, block_reference(in)) << n;
    EXPECT_TRUE(part.finite);
  }
}

TEST_P(NormTest, IsCloseToTheTrueSum) {
  const std::vector<std::uint16_t> in = gradient_like(1000003, 53);
  double want = 0;
  for (const std::uint16_t x : in) {
    want += static_cast<double>(bf16_value(x)) * static_cast<double>(bf16_value(x));
  }
  const NormPart part = tensor_norm(kernels(), in.size(), in.data());
  // At most 256 + 4 roundings of 2^-24 each, all of one sign.
  EXPECT_NEAR(part.sum_of_squares, want, want * 260.0 * 0x1p-24);
  EXPECT_TRUE(part.finite);
}

TEST_P(NormTest, OfATensorAddsItsBlocksInOrder) {
  for (const std::size_t n : {0U, 1U, 4096U, 4097U, 12288U, 50001U}) {
    const std::vector<std::uint16_t> in = gradient_like(n, n + 3);
    double want = 0;
    for (std::size_t first = 0; first < n; first += kNormBlock) {
      const std::size_t last = first + kNormBlock < n ? first + kNormBlock : n;
      want += block_reference({in.begin() + static_cast<std::ptrdiff_t>(first),
                               in.begin() + static_cast<std::ptrdiff_t>(last)});
    }
    EXPECT_EQ(tensor_norm(kernels(), n, in.data()).sum_of_squares, want) << n;
  }
}

TEST_P(NormTest, SeesANonFiniteElementAnywhere) {
  for (const std::uint16_t bad : {std::uint16_t{0x7f80}, std::uint16_t{0xff80},
                                  std::uint16_t{0x7fc0}, std::uint16_t{0xff81}}) {
    for (std::size_t at = 0; at < 83; ++at) {
      std::vector<std::uint16_t> in = gradient_like(83, 59);
      in[at] = bad;
      const NormPart part = kernels().norm_bf16(in.size(), in.data());
      EXPECT_FALSE(part.finite) << at;
      EXPECT_EQ(part.sum_of_squares, std::numeric_limits<double>::infinity());
    }
  }
  std::vector<std::uint16_t> in = gradient_like(10000, 61);
  in[9000] = 0x7fc0;
  EXPECT_FALSE(tensor_norm(kernels(), in.size(), in.data()).finite);
}

TEST_P(NormTest, JudgesEveryBf16AsTheStandardDoes) {
  for (std::uint32_t half = 0; half < 65536; ++half) {
    const auto in = static_cast<std::uint16_t>(half);
    const NormPart part = kernels().norm_bf16(1, &in);
    ASSERT_EQ(part.finite, std::isfinite(bf16_value(in))) << half;
  }
}

TEST_P(NormTest, TooLargeASumIsInfiniteButTheElementsAreFinite) {
  const std::uint16_t largest = 0x7f7f;
  const NormPart part = kernels().norm_bf16(1, &largest);
  EXPECT_TRUE(part.finite);
  EXPECT_EQ(part.sum_of_squares, std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace penstock::test
