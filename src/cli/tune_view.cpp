#include "cli/tune_view.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/units.hpp"

namespace penstock {
namespace {

using nlohmann::json;

constexpr double kBarColumns = 40.0;
constexpr double kGb = 1e-9;

/// Small sizes first, whatever was preferred.
std::vector<std::size_t> shown_order(const TuneCurve& curve) {
  std::vector<std::size_t> order(curve.points.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return bytes_of(curve.knob, curve.points[a].setting) <
           bytes_of(curve.knob, curve.points[b].setting);
  });
  return order;
}

std::string note_of(const TuneCurve& curve, std::size_t index) {
  std::string note;
  const auto add = [&note](std::string_view word) {
    note += note.empty() ? "" : ", ";
    note += word;
  };
  if (index == curve.base) add("as before");
  if (index == curve.chosen && index != curve.base) add("chosen");
  if (curve.points[index].is_dropped) add("dropped");
  return note;
}

void add_curve(const TuneCurve& curve, std::vector<std::string>& lines) {
  const bool is_decided = curve.rounds >= kLeastTuneRounds;
  lines.push_back(fmt::format(
      "{}{}", name_of(curve.knob),
      is_decided ? std::string()
                 : fmt::format(": {} of {} rounds fitted into the budget, so it stays as it is",
                               curve.rounds, kLeastTuneRounds)));
  double best = 0.0;
  for (const TunePoint& point : curve.points) {
    best = std::max(best, rate_quartiles(point.samples).median);
  }
  for (const std::size_t i : shown_order(curve)) {
    const TunePoint& point = curve.points[i];
    if (point.samples.empty()) continue;
    const Quartiles rate = rate_quartiles(point.samples);
    const auto length = static_cast<std::size_t>(kBarColumns * rate.median / best + 0.5);
    std::string line = fmt::format(
        " {} {:<14} {:>7.3f} {:>15} {:>6}  {:<{}}  {}", i == curve.chosen ? '>' : ' ',
        value_of(curve.knob, point.setting), rate.median * kGb,
        fmt::format("{:.3f}-{:.3f}", rate.low * kGb, rate.high * kGb), point.samples.size(),
        std::string(length, '#'), static_cast<std::size_t>(kBarColumns), note_of(curve, i));
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(std::move(line));
  }
}

json quartiles_json(const Quartiles& of) {
  return {{"p25", of.low * kGb}, {"median", of.median * kGb}, {"p75", of.high * kGb}};
}

json rates_json(const TunePoint& point) {
  std::vector<double> read, mixed;
  for (const TuneSample& sample : point.samples) {
    read.push_back(sample.read);
    mixed.push_back(sample.mixed);
  }
  return {{"gb_per_second", quartiles_json(rate_quartiles(point.samples))},
          {"read_gb_per_second", quartiles_json(quartiles_of(std::move(read)))},
          {"mixed_gb_per_second", quartiles_json(quartiles_of(std::move(mixed)))},
          {"rounds", point.samples.size()}};
}

json curve_json(const TuneCurve& curve) {
  json points = json::array();
  for (const std::size_t i : shown_order(curve)) {
    const TunePoint& point = curve.points[i];
    json one = rates_json(point);
    one["value"] = value_of(curve.knob, point.setting);
    const std::uint64_t bytes = bytes_of(curve.knob, point.setting);
    one["bytes"] = bytes == 0 ? json() : json(bytes);
    one["dropped"] = point.is_dropped;
    points.push_back(std::move(one));
  }
  return {{"knob", name_of(curve.knob)},
          {"before", value_of(curve.knob, curve.points[curve.base].setting)},
          {"chosen", value_of(curve.knob, curve.points[curve.chosen].setting)},
          {"rounds", curve.rounds},
          {"decided", curve.rounds >= kLeastTuneRounds},
          {"points", std::move(points)}};
}

/// Whole settings, defaults included.
json setting_json(const QueueTuning& setting) {
  return {{"queue", setting.threads ? "threads" : "auto"},
          {"piece_bytes", bytes_of(TuneKnob::kPiece, setting)},
          {"read_credit_bytes", bytes_of(TuneKnob::kReadCredit, setting)},
          {"write_credit_bytes", bytes_of(TuneKnob::kWriteCredit, setting)},
          {"register_memory", !setting.plain_memory}};
}

json drive_json(const TunedDrive& drive) {
  json curves = json::array();
  for (const TuneCurve& curve : drive.outcome.curves) curves.push_back(curve_json(curve));
  return {{"path", drive.target.path},
          {"device", drive.target.device},
          {"device_id", drive.profile.device},
          {"filesystem", drive.profile.filesystem},
          {"file_bytes", drive.target.file_bytes},
          {"direct", drive.target.direct},
          {"queue", drive.queue},
          {"queue_reason", drive.queue_reason},
          {"curves", std::move(curves)},
          {"default", rates_json(drive.outcome.by_default)},
          {"found", rates_json(drive.outcome.tuned)},
          {"found_setting", setting_json(drive.outcome.found)},
          {"gain", gain_over(drive.outcome.by_default, drive.outcome.tuned)},
          {"tuned", drive.outcome.is_tuned},
          {"setting", setting_json(drive.profile.tuning)},
          {"words", tune_words(drive)}};
}

}  // namespace

std::vector<std::string> tune_lines(const TuneReport& report) {
  std::vector<std::string> lines;
  for (const TunedDrive& drive : report.drives) {
    lines.push_back(fmt::format(
        "{}: {} on {}, file of {}, {}; queue: {}", drive.target.path,
        drive.target.filesystem.empty() ? "filesystem" : drive.target.filesystem,
        drive.target.device.empty() ? "no drive of its own" : drive.target.device,
        format_bytes(drive.target.file_bytes),
        drive.target.direct ? "direct transfers" : "through the page cache", drive.queue));
    lines.push_back(fmt::format("   {:<14} {:>7} {:>15} {:>6}", "", "GB/s", "quartiles", "rounds"));
    for (const TuneCurve& curve : drive.outcome.curves) add_curve(curve, lines);
    lines.push_back(tune_words(drive));
    lines.emplace_back();
  }
  for (const std::string& note : report.notes) lines.push_back("note: " + note);
  return lines;
}

json tune_json(const TuneReport& report, const TuneOptions& options) {
  json drives = json::array();
  for (const TunedDrive& drive : report.drives) drives.push_back(drive_json(drive));
  return {{"schema", "penstock.tune/1"},         {"version", options.version},
          {"unix_seconds", report.unix_seconds}, {"budget_seconds", options.seconds},
          {"seconds", report.seconds},           {"seed", options.seed},
          {"drives", std::move(drives)},         {"notes", report.notes}};
}

}  // namespace penstock
