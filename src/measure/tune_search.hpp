#pragma once

/// Finds the setting of the storage queue that a drive likes best, one knob after another.
///
/// Each knob is a stage: the setting found so far and its alternatives are measured in rounds, each
/// once a round, in a random order, so that whatever changes on the machine meanwhile meets all of
/// them. Alternatives that do not gain are dropped after a few rounds, and a stage without any left
/// ends early. At last what was found is measured anew against the defaults, in rounds of their
/// own: the best of several samples is by its choice better than it is.
/// Time:    a stage gets its part of what is left, or what the fewest rounds that say anything
///          take; where they do not fit, its knob stays as it is. No measurement begins after the
///          end, so the whole exceeds its budget by one at most.
/// Threads: one.
/// Errors:  the first of a measurement; kArgument where the time did not suffice for one stage.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "measure/tune_rule.hpp"

namespace penstock {

enum class TuneKnob : std::uint8_t { kQueue, kPiece, kReadCredit, kWriteCredit, kMemory };
/// "queue", "piece", "reads in flight", ...
[[nodiscard]] std::string_view name_of(TuneKnob knob);
/// What a setting has for it: "io_uring", "512 KiB"; the default where it says nothing.
[[nodiscard]] std::string value_of(TuneKnob knob, const QueueTuning& setting);

/// The same as a number, to put settings in order; 0 where it has none.
[[nodiscard]] std::uint64_t bytes_of(TuneKnob knob, const QueueTuning& setting);

/// One stage: what was tried and what came out.
struct TuneCurve {
  TuneKnob knob = TuneKnob::kQueue;
  std::vector<TunePoint> points;  ///< in the order of preference
  std::size_t base = 0;           ///< of points: what was used before
  std::size_t chosen = 0;
  std::size_t rounds = 0;  ///< fewer than kLeastTuneRounds: the time was over, nothing is said
};

struct TuneOutcome {
  std::vector<TuneCurve> curves;
  TunePoint by_default, tuned;  ///< measured against each other; tuned: what was found
  QueueTuning found;            ///< by the stages, whether or not it was confirmed
  bool is_tuned = false;        ///< confirmed; else the defaults stay
};

struct TuneParts {
  /// Both figures, each for about so long.
  std::function<Result<TuneSample>(const QueueTuning& setting, double seconds)> measure;
  std::function<std::uint64_t()> now_ns;
  std::function<void(std::string_view text)> on_progress;
  bool has_uring = true;
};

inline constexpr double kLeastTuneSeconds = 10.0;  ///< for a drive

[[nodiscard]] Result<TuneOutcome> search_tuning(const TuneParts& parts, std::uint64_t deadline_ns,
                                                std::uint64_t seed);

}  // namespace penstock
