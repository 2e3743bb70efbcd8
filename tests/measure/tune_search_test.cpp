// Method: a drive that is a function of the setting, with noise from a seed, and a clock that only
// measurements move.

#include "measure/tune_search.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "base/random.hpp"

namespace penstock {
namespace {

constexpr double kOverhead = 0.02;  // seconds beside a slice, twice in a measurement

class Drive {
 public:
  std::function<double(const QueueTuning&)> rate = [](const QueueTuning&) { return 1e9; };
  double noise = 0.01;
  double slowness = 1.0;         ///< how much longer a measurement takes than it should
  std::uint64_t fail_after = 0;  ///< measurements; 0: never
  bool has_uring = true;

  Result<TuneOutcome> tune(double seconds, std::uint64_t seed = 1) {
    seed_ = seed;
    deadline_ns_ = static_cast<std::uint64_t>(seconds * 1e9);
    TuneParts parts;
    parts.has_uring = has_uring;
    parts.now_ns = [this] { return now_ns_; };
    parts.on_progress = [](std::string_view) {};
    parts.measure = [this](const QueueTuning& setting, double slice) -> Result<TuneSample> {
      EXPECT_LT(now_ns_, deadline_ns_) << "nothing begins when the time is over";
      ++count_;
      if (fail_after != 0 && count_ > fail_after) return make_error(Errc::kCancelled, "stopped");
      const double took = slowness * 2.0 * (slice + kOverhead);
      longest_seconds_ = std::max(longest_seconds_, took);
      now_ns_ += static_cast<std::uint64_t>(took * 1e9);
      const auto noisy = [&](std::uint64_t which) {
        const double unit = static_cast<double>(mix64(seed_, count_, which) >> 11) * 0x1p-53;
        return rate(setting) * (1.0 + noise * (2.0 * unit - 1.0));
      };
      return TuneSample{noisy(0), noisy(1)};
    };
    auto outcome = search_tuning(parts, deadline_ns_, seed);
    EXPECT_LE(static_cast<double>(now_ns_) * 1e-9, seconds + longest_seconds_)
        << "the budget is exceeded by one measurement at most";
    return outcome;
  }
  [[nodiscard]] double seconds_used() const { return static_cast<double>(now_ns_) * 1e-9; }

 private:
  std::uint64_t now_ns_ = 0, deadline_ns_ = 0, count_ = 0, seed_ = 1;
  double longest_seconds_ = 0.0;
};

TEST(TuneSearch, NoiseLeavesTheDefaults) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Drive drive;
    drive.noise = seed % 2 == 0 ? 0.01 : 0.1;
    const auto outcome = drive.tune(60.0, seed);
    ASSERT_TRUE(outcome) << outcome.error().message;
    ASSERT_FALSE(outcome.value().is_tuned) << "seed " << seed;
    EXPECT_FALSE(outcome.value().by_default.samples.empty());
  }
}

TEST(TuneSearch, ClearGainsAreFoundAndConfirmed) {
  Drive drive;
  drive.rate = [](const QueueTuning& setting) {
    double rate = 1e9;
    if (setting.piece_bytes == 1U << 21) rate *= 1.2;
    if (setting.read_credit_bytes == 1U << 23) rate *= 1.3;
    if (setting.threads) rate *= 0.5;
    return rate;
  };
  const auto outcome = drive.tune(60.0);
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_TRUE(outcome.value().is_tuned);
  const QueueTuning wanted{.piece_bytes = 1U << 21, .read_credit_bytes = 1U << 23};
  EXPECT_EQ(outcome.value().found, wanted) << words_of(outcome.value().found);
  EXPECT_NEAR(gain_over(outcome.value().by_default, outcome.value().tuned), 0.56, 0.03);
  EXPECT_EQ(outcome.value().curves.size(), 5U);
}

// The second stage goes on from what the first one found.
TEST(TuneSearch, KnobsThatOnlyHelpTogetherAreFoundInTheirOrder) {
  Drive drive;
  drive.rate = [](const QueueTuning& setting) {
    return setting.threads ? (setting.piece_bytes == 1U << 18 ? 2e9 : 1.2e9) : 1e9;
  };
  const auto outcome = drive.tune(60.0);
  ASSERT_TRUE(outcome);
  EXPECT_TRUE(outcome.value().found.threads);
  EXPECT_EQ(outcome.value().found.piece_bytes, 1U << 18);
  EXPECT_EQ(outcome.value().curves.size(), 4U) << "threads register no memory";
}

TEST(TuneSearch, AmongEqualsTheFewestBytesInFlightAreTaken) {
  Drive drive;
  drive.rate = [](const QueueTuning& setting) {
    return setting.write_credit_bytes >= 1U << 22 ? 1.5e9 : 1e9;
  };
  const auto outcome = drive.tune(60.0);
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome.value().found.write_credit_bytes, 1U << 22);
}

// What was found in one stage by a drive's mood is not there when it is compared once more.
TEST(TuneSearch, AGainThatPassesIsNotConfirmed) {
  Drive drive;
  int calls = 0;
  drive.rate = [&calls](const QueueTuning& setting) {
    return ++calls < 40 && setting.threads ? 1.5e9 : 1e9;
  };
  const auto outcome = drive.tune(60.0);
  ASSERT_TRUE(outcome);
  EXPECT_TRUE(outcome.value().found.threads);
  EXPECT_FALSE(outcome.value().is_tuned);
  EXPECT_NEAR(gain_over(outcome.value().by_default, outcome.value().tuned), 0.0, 0.02);
}

TEST(TuneSearch, WithoutIoUringNeitherQueueNorMemoryIsTried) {
  Drive drive;
  drive.has_uring = false;
  drive.rate = [](const QueueTuning& setting) {
    EXPECT_FALSE(setting.threads || setting.plain_memory);
    return 1e9;
  };
  const auto outcome = drive.tune(60.0);
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome.value().curves.size(), 3U);
}

// A drive on which nothing helps is done before its time is over.
TEST(TuneSearch, StopsEarlyWhereNothingGains) {
  Drive drive;
  drive.noise = 0.0;
  ASSERT_TRUE(drive.tune(60.0));
  EXPECT_LT(drive.seconds_used(), 40.0);
}

TEST(TuneSearch, StaysWithinEveryBudget) {
  for (const double seconds : {10.0, 12.5, 20.0, 60.0, 300.0}) {
    for (const double slowness : {0.5, 1.0, 3.0, 10.0, 100.0}) {
      Drive drive;  // which checks it
      drive.slowness = slowness;
      drive.rate = [](const QueueTuning& setting) {
        return setting.read_credit_bytes == 1U << 23 ? 1.2e9 : 1e9;
      };
      const auto outcome = drive.tune(seconds);
      if (!outcome) {
        EXPECT_EQ(outcome.error().code, Errc::kArgument);
        EXPECT_NE(outcome.error().message.find("--budget"), std::string::npos);
        EXPECT_GT(slowness, 1.0) << "ten seconds do for a drive that does not dawdle";
      }
    }
  }
}

TEST(TuneSearch, AStageWithoutTimeLeavesItsKnobAlone) {
  Drive drive;
  drive.slowness = 4.0;
  drive.rate = [](const QueueTuning& setting) { return setting.plain_memory ? 2e9 : 1e9; };
  const auto outcome = drive.tune(20.0);
  ASSERT_TRUE(outcome) << outcome.error().message;
  for (const TuneCurve& curve : outcome.value().curves) {
    if (curve.rounds < kLeastTuneRounds) {
      EXPECT_EQ(curve.chosen, curve.base);
    }
  }
}

TEST(TuneSearch, AFailureIsReturned) {
  Drive drive;
  drive.fail_after = 17;
  const auto outcome = drive.tune(60.0);
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, Errc::kCancelled);
}

TEST(TuneSearch, ValuesHaveNames) {
  EXPECT_EQ(value_of(TuneKnob::kPiece, {}), "1 MiB");
  EXPECT_EQ(value_of(TuneKnob::kReadCredit, {}), "2 MiB");
  EXPECT_EQ(value_of(TuneKnob::kWriteCredit, {}), "2 MiB");
  EXPECT_EQ(value_of(TuneKnob::kQueue, {}), "io_uring");
  EXPECT_EQ(value_of(TuneKnob::kMemory, {.plain_memory = true}), "not registered");
}

}  // namespace
}  // namespace penstock
