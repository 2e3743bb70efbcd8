// Method: samples with noise from a seed, around rates that the test chooses.

#include "measure/tune_rule.hpp"

#include <gtest/gtest.h>

#include "base/random.hpp"

namespace penstock {
namespace {

/// Uniform noise of +-`noise` around `rate`; mixtures run at 0.8 of it.
TunePoint point(double rate, double noise, std::uint64_t seed, std::size_t rounds = 9) {
  TunePoint made;
  for (std::size_t i = 0; i < rounds; ++i) {
    const auto unit = [&](std::uint64_t which) {
      return 2.0 * static_cast<double>(mix64(seed, i, which) >> 11) * 0x1p-53 - 1.0;
    };
    made.samples.push_back({rate * (1.0 + noise * unit(0)), 0.8 * rate * (1.0 + noise * unit(1))});
  }
  return made;
}

TEST(TuneRule, NoiseIsNoGain) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const TunePoint a = point(1e9, 0.01, 2 * seed), b = point(1e9, 0.01, 2 * seed + 1);
    ASSERT_FALSE(is_clear_gain(a, b)) << "seed " << seed;
  }
  // Where the noise is large, quartiles of equals seldom part, and by chance they do.
  std::size_t mistakes = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    mistakes += is_clear_gain(point(1e9, 0.2, 2 * seed), point(1e9, 0.2, 2 * seed + 1)) ? 1 : 0;
  }
  EXPECT_LT(mistakes, 60U) << "3 %, before the comparison that confirms";
}

TEST(TuneRule, AClearGainIsSeen) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    EXPECT_TRUE(is_clear_gain(point(1e9, 0.02, 2 * seed), point(1.2e9, 0.02, 2 * seed + 1)));
    EXPECT_FALSE(is_clear_gain(point(1.2e9, 0.02, 2 * seed), point(1e9, 0.02, 2 * seed + 1)));
  }
}

TEST(TuneRule, AGainBelowThreePerCentIsLeftAlone) {
  EXPECT_FALSE(is_clear_gain(point(1e9, 0.0, 1), point(1.029e9, 0.0, 1)));
  EXPECT_TRUE(is_clear_gain(point(1e9, 0.0, 1), point(1.031e9, 0.0, 1)));
}

TEST(TuneRule, FewRoundsSayNothing) {
  const TunePoint base = point(1e9, 0.0, 1, kLeastTuneRounds);
  EXPECT_FALSE(is_clear_gain(base, point(2e9, 0.0, 1, kLeastTuneRounds - 1)));
  EXPECT_FALSE(is_clear_gain(point(1e9, 0.0, 1, kLeastTuneRounds - 1), point(2e9, 0.0, 1)));
  EXPECT_FALSE(is_hopeless(base, point(1e8, 0.0, 1, kLeastTuneRounds - 1)));
  EXPECT_TRUE(is_clear_gain(base, point(2e9, 0.0, 1, kLeastTuneRounds)));
  EXPECT_TRUE(is_hopeless(base, point(1e8, 0.0, 1, kLeastTuneRounds)));
  EXPECT_EQ(gain_over(base, TunePoint{}), 0.0);
  EXPECT_FALSE(is_clear_gain(TunePoint{}, TunePoint{}));
}

TEST(TuneRule, AGainOfOneKindOfTrafficDoesNotPayForTheOther) {
  const TunePoint base = point(1e9, 0.0, 1);
  TunePoint more_mixed = base, more_read = base;
  for (TuneSample& sample : more_mixed.samples) {
    sample.mixed *= 2.0;
    sample.read *= 0.9;
  }
  for (TuneSample& sample : more_read.samples) {
    sample.read *= 10.0;
    sample.mixed *= 0.96;
  }
  EXPECT_GT(gain_over(base, more_mixed), kLeastGain);
  EXPECT_FALSE(is_clear_gain(base, more_mixed));
  EXPECT_GT(gain_over(base, more_read), kLeastGain);
  EXPECT_FALSE(is_clear_gain(base, more_read));
}

// One round more may tell; a loss that the noise may have made ends nothing.
TEST(TuneRule, IsDroppedForALossOnlyWhereItIsBeyondTheNoise) {
  const TunePoint base = point(1e9, 0.1, 1);
  TunePoint other = base;
  for (TuneSample& sample : other.samples) {
    sample.mixed *= 1.2;
    sample.read *= 0.95;
  }
  EXPECT_FALSE(is_hopeless(base, other));
  EXPECT_FALSE(is_clear_gain(base, other));
  for (TuneSample& sample : other.samples) sample.read *= 0.8;
  EXPECT_TRUE(is_hopeless(base, other));
}

TEST(TuneRule, TheFirstOfEqualGainsIsPreferred) {
  // 0: worse; 1: the base; 2 and 3: gains that the noise does not tell apart; 4: less of one.
  const std::vector<TunePoint> points = {point(0.9e9, 0.01, 1), point(1e9, 0.01, 2),
                                         point(1.5e9, 0.02, 3), point(1.51e9, 0.02, 4),
                                         point(1.2e9, 0.01, 5)};
  EXPECT_EQ(choose_point(points, 1), 2U);
  std::vector<TunePoint> clear = points;
  clear[3] = point(2e9, 0.01, 4);
  EXPECT_EQ(choose_point(clear, 1), 3U);
  clear[3].is_dropped = true;
  EXPECT_EQ(choose_point(clear, 1), 2U);
  EXPECT_EQ(choose_point({points[1], points[0]}, 0), 0U);
  EXPECT_EQ(choose_point({points[1]}, 0), 0U);
}

}  // namespace
}  // namespace penstock
