#include "base/random.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace penstock {
namespace {

constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

// Computed by a program in another language from the description in the header. Files and
// initial weights depend on these values: they never change.
TEST(RandomTest, ValuesAreFixedForever) {
  EXPECT_EQ(mix64(0, 0, 0), 0x65DFD9DDC091AD0EU);
  EXPECT_EQ(mix64(1, 0, 0), 0x641CA69E137FB2FFU);
  EXPECT_EQ(mix64(0, 1, 0), 0x5E7A18E50076EA44U);
  EXPECT_EQ(mix64(0, 0, 1), 0xDD508FF750309C29U);
  EXPECT_EQ(mix64(42, 0xDEADBEEF, 123456789012), 0x448062187BA14335U);
  EXPECT_EQ(mix64(kMax, kMax, kMax), 0xD388A27D08E7B91AU);
  EXPECT_EQ(approximately_normal(0, 0, 0), 0x1.421a66p+0F);
  EXPECT_EQ(approximately_normal(1, 0, 0), -0x1.725c68p-1F);
  EXPECT_EQ(approximately_normal(0, 0, 1), 0x1.8e592ap+0F);
  EXPECT_EQ(approximately_normal(42, 0xDEADBEEF, 123456789012), 0x1.eed0eap-2F);
  EXPECT_EQ(uniform01(0, 0, 0), static_cast<double>(0x65DFD9DDC091AD0EU >> 11) / 0x1p53);
}

// Small keys are what callers use. A cancellation between the hashes of the three inputs would
// repeat values here.
TEST(RandomTest, SmallKeysNeverCollide) {
  std::vector<std::uint64_t> values;
  for (std::uint64_t seed = 0; seed < 64; ++seed) {
    for (std::uint64_t stream = 0; stream < 64; ++stream) {
      for (std::uint64_t index = 0; index < 64; ++index) {
        values.push_back(mix64(seed, stream, index));
      }
    }
  }
  std::sort(values.begin(), values.end());
  EXPECT_EQ(std::adjacent_find(values.begin(), values.end()), values.end());
}

// Method: flip each bit of each input; each output bit must flip in half of 2,000 trials, within
// 7 standard deviations (0.5 / sqrt(2000) each). The inputs are fixed, so this passes or fails for
// good.
TEST(RandomTest, EveryInputBitReachesEveryOutputBit) {
  constexpr int kTrials = 2000;
  constexpr double kTolerance = 7 * 0.5 * 0.0223607;
  for (int input = 0; input < 3; ++input) {
    for (int bit = 0; bit < 64; ++bit) {
      int flips[64] = {};
      for (std::uint64_t trial = 0; trial < kTrials; ++trial) {
        std::uint64_t keys[3] = {trial / 100, trial % 10, trial};
        const std::uint64_t before = mix64(keys[0], keys[1], keys[2]);
        keys[input] ^= std::uint64_t{1} << bit;
        std::uint64_t changed = before ^ mix64(keys[0], keys[1], keys[2]);
        for (; changed != 0; changed &= changed - 1) ++flips[std::countr_zero(changed)];
      }
      for (int output = 0; output < 64; ++output) {
        ASSERT_NEAR(flips[output] / double{kTrials}, 0.5, kTolerance)
            << "input " << input << " bit " << bit << " to output bit " << output;
      }
    }
  }
}

TEST(RandomTest, Uniform01StaysBelowOne) {
  double sum = 0;
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    const double value = uniform01(3, 4, i);
    ASSERT_GE(value, 0.0);
    ASSERT_LT(value, 1.0);
    sum += value;
  }
  EXPECT_NEAR(sum / 100'000, 0.5, 6 * 0.2887 / std::sqrt(100'000.0));
}

// The first four moments of the Irwin-Hall distribution of eight: 0, 1, 0, 3 - 1.2 / 8.
TEST(RandomTest, ApproximatelyNormalHasItsMoments) {
  constexpr int kCount = 200'000;
  for (const std::uint64_t stream : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{0xABCDEF}}) {
    double moments[4] = {};
    double lag = 0;
    double previous = 0;
    for (std::uint64_t i = 0; i < kCount; ++i) {
      const double value = approximately_normal(11, stream, i);
      ASSERT_LE(std::abs(value), 4.9);
      double power = 1;
      for (double& moment : moments) moment += (power *= value);
      lag += value * previous;
      previous = value;
    }
    const double sigma = 1 / std::sqrt(double{kCount});
    EXPECT_NEAR(moments[0] / kCount, 0.0, 6 * sigma);
    EXPECT_NEAR(moments[1] / kCount, 1.0, 6 * 1.4 * sigma);
    EXPECT_NEAR(moments[2] / kCount, 0.0, 6 * 3.5 * sigma);
    EXPECT_NEAR(moments[3] / kCount, 2.85, 6 * 9.0 * sigma);
    EXPECT_NEAR(lag / kCount, 0.0, 6 * sigma) << "neighbours are correlated";
  }
}

TEST(RandomTest, IsAConstantExpression) {
  static_assert(mix64(0, 0, 0) == 0x65DFD9DDC091AD0EU);
  constexpr float kValue = approximately_normal(0, 0, 0);
  EXPECT_EQ(kValue, approximately_normal(0, 0, 0));
}

}  // namespace
}  // namespace penstock
