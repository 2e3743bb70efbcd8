#include "measure/tune_search.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "base/units.hpp"
#include "io/storage.hpp"
#include "measure/statistics.hpp"

namespace penstock {
namespace {

constexpr std::size_t kMostStageRounds = 9, kMostFinalRounds = 15;
constexpr double kShortestSliceSeconds = 0.05, kLongestSliceSeconds = 0.5;
constexpr double kMeasurements = 2.0;    // of a setting in a round: reads, and reads and writes
constexpr double kFinalWeight = 2.0;     // it decides
constexpr double kFirstOverhead = 0.03;  // seconds beside a slice, until it was measured
constexpr std::uint32_t kMi = 1U << 20;

/// Alternatives in the order of preference: few bytes in flight make nobody wait, large pieces cost
/// less CPU time. 0: the default.
const std::vector<std::uint32_t>& sizes_of(TuneKnob knob) {
  static const std::vector<std::uint32_t> pieces = {2 * kMi, 0, kMi / 2, kMi / 4};
  static const std::vector<std::uint32_t> reads = {kMi, 2 * kMi, 0, 8 * kMi, 16 * kMi};
  static const std::vector<std::uint32_t> writes = {kMi, 0, 4 * kMi, 8 * kMi, 16 * kMi};
  static const std::vector<std::uint32_t> none;
  switch (knob) {
    case TuneKnob::kPiece:
      return pieces;
    case TuneKnob::kReadCredit:
      return reads;
    case TuneKnob::kWriteCredit:
      return writes;
    case TuneKnob::kQueue:
    case TuneKnob::kMemory:
      return none;
  }
  return none;
}

std::uint32_t QueueTuning::*size_member(TuneKnob knob) {
  if (knob == TuneKnob::kPiece) return &QueueTuning::piece_bytes;
  return knob == TuneKnob::kReadCredit ? &QueueTuning::read_credit_bytes
                                       : &QueueTuning::write_credit_bytes;
}

TuneCurve make_curve(TuneKnob knob, const QueueTuning& base) {
  TuneCurve curve;
  curve.knob = knob;
  const auto add = [&](const QueueTuning& setting) {
    if (setting == base) curve.base = curve.chosen = curve.points.size();
    curve.points.push_back({setting});
  };
  QueueTuning other = base;
  if (knob == TuneKnob::kQueue || knob == TuneKnob::kMemory) {
    add(base);
    bool QueueTuning::*const flag =
        knob == TuneKnob::kQueue ? &QueueTuning::threads : &QueueTuning::plain_memory;
    other.*flag = !(other.*flag);
    add(other);
    return curve;
  }
  for (const std::uint32_t size : sizes_of(knob)) {
    other.*size_member(knob) = size;
    add(other);
  }
  return curve;
}

class Search {
 public:
  Search(const TuneParts& parts, std::uint64_t deadline_ns, std::uint64_t seed)
      : parts_(parts), deadline_ns_(deadline_ns), seed_(seed) {}

  Result<TuneOutcome> run() {
    std::vector<TuneKnob> knobs;
    if (parts_.has_uring) knobs.push_back(TuneKnob::kQueue);
    for (const TuneKnob knob :
         {TuneKnob::kPiece, TuneKnob::kReadCredit, TuneKnob::kWriteCredit, TuneKnob::kMemory}) {
      knobs.push_back(knob);
    }
    for (std::size_t i = 0; i < knobs.size(); ++i) {
      // Only io_uring registers memory.
      const bool is_idle = knobs[i] == TuneKnob::kMemory && (!parts_.has_uring || found_.threads);
      if (!is_idle) PENSTOCK_CHECK_OK(run_stage(knobs, i));
    }
    const bool has_any =
        std::any_of(outcome_.curves.begin(), outcome_.curves.end(),
                    [](const TuneCurve& curve) { return curve.rounds >= kLeastTuneRounds; });
    if (!has_any) {
      return make_error(
          Errc::kArgument,
          fmt::format("the budget did not suffice for {} rounds of one setting, "
                      "since a round took up to {:.1f} s; grant more with --budget "
                      "({:.0f}s, for example)",
                      kLeastTuneRounds, longest_round_seconds_,
                      std::max(2.0 * kLeastTuneSeconds, longest_round_seconds_ * 50.0)));
    }
    PENSTOCK_CHECK_OK(confirm());
    return std::move(outcome_);
  }

 private:
  static std::uint64_t to_ns(double seconds) { return static_cast<std::uint64_t>(seconds * 1e9); }

  [[nodiscard]] double seconds_left() const {
    const std::uint64_t now = parts_.now_ns();
    return now < deadline_ns_ ? static_cast<double>(deadline_ns_ - now) * 1e-9 : 0.0;
  }

  Status run_stage(const std::vector<TuneKnob>& knobs, std::size_t index) {
    TuneCurve curve = make_curve(knobs[index], found_);
    double weight = kFinalWeight * 2.0;
    for (std::size_t i = index; i < knobs.size(); ++i) {
      weight += static_cast<double>(make_curve(knobs[i], found_).points.size());
    }
    const auto own = static_cast<double>(curve.points.size());
    // What confirms comes last, and is not to be left without time.
    const double final_seconds = kMeasurements * 2.0 * static_cast<double>(kLeastTuneRounds) *
                                 (kShortestSliceSeconds + overhead_seconds_);
    PENSTOCK_TAKE(rounds, run_rounds(curve.points, curve.base, seconds_left() * own / weight,
                                     deadline_ns_ - std::min(deadline_ns_, to_ns(final_seconds)),
                                     kMostStageRounds, name_of(curve.knob)));
    curve.rounds = rounds;
    if (rounds >= kLeastTuneRounds) curve.chosen = choose_point(curve.points, curve.base);
    found_ = curve.points[curve.chosen].setting;
    outcome_.curves.push_back(std::move(curve));
    return ok();
  }

  /// What was found against the defaults, on samples that had no part in the choice.
  Status confirm() {
    outcome_.found = found_;
    if (found_.is_default()) {
      // The defaults are in every stage; those of the longest stand for them.
      for (const TuneCurve& curve : outcome_.curves) {
        const TunePoint& point = curve.points[curve.base];
        if (point.samples.size() > outcome_.by_default.samples.size()) {
          outcome_.by_default = outcome_.tuned = point;
        }
      }
      return ok();
    }
    std::vector<TunePoint> points = {{QueueTuning{}}, {found_}};
    PENSTOCK_TAKE(rounds, run_rounds(points, 0, seconds_left(), deadline_ns_, kMostFinalRounds,
                                     "what was found and the defaults"));
    outcome_.by_default = std::move(points[0]);
    outcome_.tuned = std::move(points[1]);
    outcome_.is_tuned =
        rounds >= kLeastTuneRounds && is_clear_gain(outcome_.by_default, outcome_.tuned);
    return ok();
  }

  /// How many whole rounds were run: in `seconds`, but the least that says anything is always
  /// tried, until `end_ns`; where not even that fits, it is given up at once.
  Result<std::size_t> run_rounds(std::vector<TunePoint>& points, std::size_t base, double seconds,
                                 std::uint64_t end_ns, std::size_t most, std::string_view what) {
    ++stage_;
    const auto measurements = kMeasurements * static_cast<double>(points.size());
    const std::uint64_t soft_end_ns = parts_.now_ns() + to_ns(seconds);
    const double fitting = seconds / (measurements * static_cast<double>(most)) - overhead_seconds_;
    const double slice = std::clamp(fitting, kShortestSliceSeconds, kLongestSliceSeconds);
    std::uint64_t longest_ns = to_ns(measurements * (slice + overhead_seconds_));
    std::size_t round = 0;
    for (; round < most; ++round) {
      const std::uint64_t start = parts_.now_ns();
      const std::size_t missing = kLeastTuneRounds - std::min(round, kLeastTuneRounds);
      if (start + longest_ns * missing > end_ns) break;
      if (missing == 0 && start + longest_ns > std::min(soft_end_ns, end_ns)) break;
      PENSTOCK_TAKE(is_whole, run_round(points, slice, end_ns,
                                        shuffled_order(points.size(), seed_ + stage_, round),
                                        fmt::format("{}, round {}", what, round + 1)));
      if (!is_whole) break;
      const std::uint64_t took_ns = parts_.now_ns() - start;
      longest_ns = round == 0 ? took_ns : std::max(longest_ns, took_ns);
      longest_round_seconds_ =
          std::max(longest_round_seconds_, static_cast<double>(longest_ns) * 1e-9);
      if (drop_hopeless(points, base)) {
        ++round;
        break;
      }
    }
    return round;
  }

  /// False where the time was over before its end; its samples are not kept.
  Result<bool> run_round(std::vector<TunePoint>& points, double slice, std::uint64_t end_ns,
                         const std::vector<std::size_t>& order, std::string_view text) {
    std::vector<std::optional<TuneSample>> samples(points.size());
    for (const std::size_t i : order) {
      if (points[i].is_dropped) continue;
      const std::uint64_t start = parts_.now_ns();
      if (start >= end_ns) return false;
      parts_.on_progress(text);
      PENSTOCK_TAKE(sample, parts_.measure(points[i].setting, slice));
      samples[i] = sample;
      const double took = static_cast<double>(parts_.now_ns() - start) * 1e-9 / kMeasurements;
      // Of the last one, smoothed: what a drive takes beside a slice changes with its load.
      overhead_seconds_ = 0.75 * overhead_seconds_ + 0.25 * std::max(0.0, took - slice);
    }
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (samples[i]) points[i].samples.push_back(*samples[i]);
    }
    return true;
  }

  /// Whether none but the base is left.
  static bool drop_hopeless(std::vector<TunePoint>& points, std::size_t base) {
    bool is_alone = true;
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (i == base) continue;
      if (is_hopeless(points[base], points[i])) points[i].is_dropped = true;
      is_alone = is_alone && points[i].is_dropped;
    }
    return is_alone;
  }

  const TuneParts& parts_;
  const std::uint64_t deadline_ns_, seed_;
  std::uint64_t stage_ = 0;
  double overhead_seconds_ = kFirstOverhead;
  double longest_round_seconds_ = 0.0;
  QueueTuning found_;
  TuneOutcome outcome_;
};

}  // namespace

std::string_view name_of(TuneKnob knob) {
  switch (knob) {
    case TuneKnob::kQueue:
      return "queue";
    case TuneKnob::kPiece:
      return "piece";
    case TuneKnob::kReadCredit:
      return "reads in flight";
    case TuneKnob::kWriteCredit:
      return "writes in flight";
    case TuneKnob::kMemory:
      return "memory";
  }
  return "memory";
}

std::uint64_t bytes_of(TuneKnob knob, const QueueTuning& setting) {
  const QueueOptions usual;
  const auto either = [](std::uint32_t value, std::uint32_t by_default) -> std::uint64_t {
    return value != 0 ? value : by_default;
  };
  switch (knob) {
    case TuneKnob::kPiece:
      return either(setting.piece_bytes, usual.piece_bytes);
    case TuneKnob::kReadCredit:
      return either(setting.read_credit_bytes, usual.read_credit_bytes);
    case TuneKnob::kWriteCredit:
      return either(setting.write_credit_bytes, usual.write_credit_bytes);
    case TuneKnob::kQueue:
    case TuneKnob::kMemory:
      return 0;
  }
  return 0;
}

std::string value_of(TuneKnob knob, const QueueTuning& setting) {
  if (knob == TuneKnob::kQueue) return setting.threads ? "threads" : "io_uring";
  if (knob == TuneKnob::kMemory) return setting.plain_memory ? "not registered" : "registered";
  return format_bytes(bytes_of(knob, setting));
}

Result<TuneOutcome> search_tuning(const TuneParts& parts, std::uint64_t deadline_ns,
                                  std::uint64_t seed) {
  return Search(parts, deadline_ns, seed).run();
}

}  // namespace penstock
