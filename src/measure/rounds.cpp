#include "measure/rounds.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "base/clock.hpp"

namespace penstock {
namespace {

constexpr std::size_t kMostRounds = 31;

double seconds_until(std::uint64_t deadline_ns) {
  const std::uint64_t now = now_ns();
  return now < deadline_ns ? static_cast<double>(deadline_ns - now) * 1e-9 : 0.0;
}

/// Google Benchmark's own report is not shown: figures are kept, errors returned.
class SilentReporter final : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override { runs_ += runs.size(); }
  [[nodiscard]] std::size_t runs() const { return runs_; }

 private:
  std::size_t runs_ = 0;
};

/// One round: the cases in their order, until one fails.
class Round {
 public:
  Round(const std::vector<BenchCase>& cases, double slice_seconds, std::uint64_t deadline_ns)
      : cases_(cases),
        slice_seconds_(slice_seconds),
        deadline_ns_(deadline_ns),
        figures_(cases.size()) {}

  /// Whether run() failed because the time was over.
  [[nodiscard]] bool was_late() const { return late_; }

  Result<std::vector<RoundFigures>> run(const std::vector<std::size_t>& order,
                                        BenchObserver& observer, std::string_view round_text,
                                        const std::atomic<bool>& stop) {
    benchmark::ClearRegisteredBenchmarks();
    for (const std::size_t index : order) {
      const std::string& name = cases_[index].row.name;
      benchmark::RegisterBenchmark(
          name.c_str(),
          [&, index](benchmark::State& state) {
            for ([[maybe_unused]] auto once : state) {
              if (!failed_ && stop.load()) failed_ = make_error(Errc::kCancelled, "stopped");
              if (!failed_ && now_ns() > deadline_ns_) {
                late_ = true;
                failed_ = make_error(Errc::kTimeout, "the time is over");
              }
              if (!failed_) observer.on_progress(fmt::format("{}: {}", round_text, name));
              state.SetIterationTime(failed_ ? 0.0 : take(index));
            }
            if (failed_) state.SkipWithError("see the error that is returned");
          })
          ->Iterations(1)
          ->UseManualTime();
    }
    SilentReporter reporter;
    benchmark::RunSpecifiedBenchmarks(&reporter, nullptr, ".");
    benchmark::ClearRegisteredBenchmarks();
    if (failed_) return std::move(*failed_);
    if (reporter.runs() < cases_.size()) {
      return make_error(Errc::kInternal, fmt::format("only {} of {} measurements were run",
                                                     reporter.runs(), cases_.size()));
    }
    return std::move(figures_);
  }

 private:
  double take(std::size_t index) {
    Result<RoundFigures> figures = cases_[index].run(slice_seconds_);
    if (!figures) {
      failed_ = std::move(figures).error();
      if (failed_->code != Errc::kCancelled) {
        failed_ = std::move(*failed_).in(fmt::format("measuring \"{}\"", cases_[index].row.name));
      }
      return 0.0;
    }
    figures_[index] = std::move(figures).value();
    return figures_[index].window_seconds;
  }

  const std::vector<BenchCase>& cases_;
  const double slice_seconds_;
  const std::uint64_t deadline_ns_;
  bool late_ = false;
  std::vector<RoundFigures> figures_;
  std::optional<Error> failed_;
};

}  // namespace

RoundPlan plan_rounds(double seconds, std::size_t cases, double overhead_seconds) {
  const auto count = static_cast<double>(cases);
  const auto wanted = static_cast<double>(kWantedRounds);
  if (cases == 0) return {};
  RoundPlan plan;
  const double fitting = (seconds / wanted - overhead_seconds) / count;
  plan.slice_seconds = std::clamp(fitting, kShortestSlice, kLongestSlice);
  const double round = plan.slice_seconds * count + overhead_seconds;
  const double rounds = std::floor(seconds / round + 1e-9);
  plan.rounds = static_cast<std::size_t>(std::clamp(rounds, 0.0, static_cast<double>(kMostRounds)));
  return plan;
}

Result<RoundResults> run_rounds(const std::vector<BenchCase>& cases, const RoundOptions& options,
                                BenchObserver& observer, const std::atomic<bool>& stop) {
  double overhead_seconds = 0.0;
  for (const BenchCase& one : cases) overhead_seconds += one.overhead_seconds;
  RoundResults results;
  results.plan = plan_rounds(seconds_until(options.deadline_ns), cases.size(), overhead_seconds);
  results.figures.resize(cases.size());
  if (results.plan.rounds == 0) {
    const double seconds = seconds_until(options.deadline_ns + options.grace_ns);
    results.plan.rounds =
        std::min<std::size_t>(plan_rounds(seconds, cases.size(), overhead_seconds).rounds, 1);
    results.plan.slice_seconds = kShortestSlice;
  }
  const std::size_t planned = results.plan.rounds;
  double longest_seconds = 0.0;
  std::size_t done = 0;
  // Where measurements take less than was planned for, there may be time for more rounds.
  const std::size_t most = planned == 0 ? 0 : std::max(planned, kWantedRounds);
  for (; done < most; ++done) {
    // Of the first round only the plan's estimate is known.
    if (done > 0 && seconds_until(options.deadline_ns) < longest_seconds) break;
    const std::uint64_t start = now_ns();
    Round round(cases, results.plan.slice_seconds,
                options.deadline_ns + (done == 0 ? options.grace_ns : 0));
    auto ran = round.run(shuffled_order(cases.size(), options.seed, done), observer,
                         fmt::format("round {} of {}", done + 1, most), stop);
    if (round.was_late()) break;
    if (!ran) return std::move(ran).error();
    std::vector<RoundFigures> figures = std::move(ran).value();
    longest_seconds = std::max(longest_seconds, static_cast<double>(now_ns() - start) * 1e-9);
    for (std::size_t i = 0; i < cases.size(); ++i) {
      results.figures[i].push_back(std::move(figures[i]));
    }
  }
  if (done == 0) {
    const double least = kShortestSlice * static_cast<double>(cases.size()) + overhead_seconds;
    return make_error(Errc::kArgument,
                      fmt::format("the time did not suffice for one round of {} measurements, "
                                  "which take {:.1f} s at least and more on a slow drive or a busy "
                                  "machine; grant more with --time",
                                  cases.size(), least));
  }
  results.plan.rounds = done;
  return results;
}

std::vector<double> values_of(const std::vector<RoundFigures>& rounds,
                              double RoundFigures::*figure) {
  std::vector<double> values;
  values.reserve(rounds.size());
  for (const RoundFigures& round : rounds) values.push_back(round.*figure);
  return values;
}

BenchRow row_of(const BenchCase& of, const std::vector<RoundFigures>& rounds) {
  BenchRow row = of.row;
  row.bytes_per_second = spread_of(values_of(rounds, &RoundFigures::bytes_per_second));
  const auto cpu = values_of(rounds, &RoundFigures::cpu_seconds_per_gb);
  if (std::any_of(cpu.begin(), cpu.end(), [](double value) { return value > 0.0; })) {
    row.cpu_seconds_per_gb = spread_of(cpu);
  }
  std::vector<double> p50, p99, p999;
  std::vector<std::vector<double>> drives;
  for (const RoundFigures& round : rounds) {
    if (round.latency.count == 0) continue;
    p50.push_back(round.latency.p50_ns);
    p99.push_back(round.latency.p99_ns);
    p999.push_back(round.latency.p999_ns);
    row.max_ns = std::max(row.max_ns, round.latency.max_ns);
  }
  row.p50_ns = spread_of(std::move(p50));
  row.p99_ns = spread_of(std::move(p99));
  row.p999_ns = spread_of(std::move(p999));
  row.mean_depth = median(values_of(rounds, &RoundFigures::mean_depth));
  row.window_seconds = median(values_of(rounds, &RoundFigures::window_seconds));
  row.dropped_seconds = median(values_of(rounds, &RoundFigures::dropped_seconds));
  const double share = median(values_of(rounds, &RoundFigures::read_share));
  row.read_share = share;
  const std::size_t count = rounds.empty() ? 0 : rounds.front().drive_bytes_per_second.size();
  for (std::size_t drive = 0; count > 1 && drive < count; ++drive) {
    std::vector<double> rates;
    for (const RoundFigures& round : rounds) rates.push_back(round.drive_bytes_per_second[drive]);
    row.drive_bytes_per_second.push_back(median(std::move(rates)));
  }
  return row;
}

}  // namespace penstock
