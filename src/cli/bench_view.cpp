#include "cli/bench_view.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/units.hpp"

namespace penstock {
namespace {

using nlohmann::json;

std::string gb(double bytes_per_second) {
  return fmt::format("{:.2f}", bytes_per_second * 1e-9);
}

/// "812 us", "2.31 ms"; "-" where there is none.
std::string time_text(double ns) {
  if (ns <= 0.0) return "-";
  if (ns < 1e6) return fmt::format("{:.0f} us", ns * 1e-3);
  return ns < 1e9 ? fmt::format("{:.2f} ms", ns * 1e-6) : fmt::format("{:.2f} s", ns * 1e-9);
}

std::string row_line(const BenchRow& row, std::size_t width) {
  const Spread& rate = row.bytes_per_second;
  const std::string spread = fmt::format("{}-{}", gb(rate.p10), gb(rate.p90));
  const std::string cpu = row.cpu_seconds_per_gb.count == 0
                              ? std::string("-")
                              : fmt::format("{:.4f}", row.cpu_seconds_per_gb.median);
  const std::string limit =
      row.limit_bytes_per_second > 0.0
          ? fmt::format("{:.0f} %", 100.0 * rate.median / row.limit_bytes_per_second)
          : std::string("-");
  return fmt::format(
      "{:<{}} {:>8} {:>5} {:>7} {:>13} {:>9} {:>9} {:>9} {:>9} {:>8} {:>5} {:>6}", row.name, width,
      format_bytes(row.block_bytes), row.depth == 0 ? std::string("-") : std::to_string(row.depth),
      gb(rate.median), spread, time_text(row.p50_ns.median), time_text(row.p99_ns.median),
      time_text(row.p999_ns.median), time_text(row.max_ns), cpu,
      row.mean_depth > 0.0 ? fmt::format("{:.1f}", row.mean_depth) : std::string("-"), limit);
}

/// What stands below a row: what it is, its ratios, its drives.
std::vector<std::string> detail_lines(const BenchRow& row,
                                      const std::vector<BenchTarget>& targets) {
  std::vector<std::string> lines;
  if (!row.note.empty()) lines.push_back(row.note);
  for (const BenchRatio& ratio : row.ratios) {
    lines.push_back(fmt::format("{:.3f} of {} ({:.3f}-{:.3f})", ratio.ratio.median, ratio.to,
                                ratio.ratio.p10, ratio.ratio.p90));
  }
  for (std::size_t i = 0; i < std::min(row.drive_bytes_per_second.size(), targets.size()); ++i) {
    lines.push_back(
        fmt::format("{}: {}", targets[i].path, format_rate(row.drive_bytes_per_second[i])));
  }
  return lines;
}

void add_limits(const BenchReport& report, std::vector<std::string>& lines) {
  std::vector<std::string> said;
  for (const BenchRow& row : report.rows) {
    if (row.limit_of.empty() || (row.read_share != 0.0 && row.read_share != 1.0)) continue;
    std::string text = fmt::format("limit: the best {} of this run, \"{}\" with {}",
                                   row.read_share == 1.0 ? "reads" : "writes", row.limit_of,
                                   format_rate(row.limit_bytes_per_second));
    if (std::find(said.begin(), said.end(), text) == said.end()) said.push_back(std::move(text));
  }
  lines.insert(lines.end(), said.begin(), said.end());
}

}  // namespace

std::vector<std::string> bench_lines(const BenchReport& report) {
  std::vector<std::string> lines;
  for (const BenchTarget& target : report.targets) {
    lines.push_back(fmt::format("{}: {} on {}, file of {}, {}", target.path,
                                target.filesystem.empty() ? "filesystem" : target.filesystem,
                                target.device.empty() ? "no drive of its own" : target.device,
                                format_bytes(target.file_bytes),
                                target.direct ? "direct transfers" : "through the page cache"));
  }
  std::string how = fmt::format("{} rounds of {:.0f} ms for each row, in random order",
                                report.rounds, report.slice_seconds * 1e3);
  if (!report.queue.empty()) how += fmt::format("; queue: {}", report.queue);
  lines.push_back(how);
  std::size_t width = 4;
  for (const BenchRow& row : report.rows) width = std::max(width, row.name.size());
  lines.push_back(
      fmt::format("{:<{}} {:>8} {:>5} {:>7} {:>13} {:>9} {:>9} {:>9} {:>9} {:>8} {:>5} {:>6}", "",
                  width, "block", "depth", "GB/s", "p10-p90", "p50", "p99", "p99.9", "max",
                  "CPU-s/GB", "in fl", "limit"));
  double window = 0.0, dropped = 0.0;
  for (const BenchRow& row : report.rows) {
    lines.push_back(row_line(row, width));
    for (const std::string& detail : detail_lines(row, report.targets)) {
      lines.push_back("    " + detail);
    }
    if (row.name == "read" || row.name == "write") {
      window = row.window_seconds;
      dropped = row.dropped_seconds;
    }
  }
  if (window > 0.0) {
    lines.push_back(
        fmt::format("window: of each measurement the first {:.0f} ms are dropped and "
                    "{:.0f} ms counted",
                    dropped * 1e3, window * 1e3));
  }
  add_limits(report, lines);
  return lines;
}

std::vector<std::string> comparison_lines(const BenchComparison& comparison,
                                          const std::string& before) {
  std::vector<std::string> lines;
  lines.push_back(fmt::format("compared with {}:", before));
  for (const BenchChange& change : comparison.changes) {
    lines.push_back(
        fmt::format("  {:<9} {} {}: {:.3g} ({:.3g}-{:.3g}), was {:.3g} ({:.3g}-{:.3g})"
                    ", {:+.1f} %",
                    change.is_regression ? "REGRESSED" : "", change.row, change.figure,
                    change.now.median, change.now.p10, change.now.p90, change.before.median,
                    change.before.p10, change.before.p90, 100.0 * change.change));
  }
  if (!comparison.only_before.empty()) {
    lines.push_back(fmt::format("  not measured now: {}", fmt::join(comparison.only_before, "; ")));
  }
  return lines;
}

json comparison_json(const BenchComparison& comparison, const std::string& before,
                     double tolerance) {
  const auto spread = [](const Spread& of) {
    return json{{"p10", of.p10}, {"median", of.median}, {"p90", of.p90}, {"rounds", of.count}};
  };
  json changes = json::array();
  for (const BenchChange& change : comparison.changes) {
    changes.push_back({{"row", change.row},
                       {"figure", change.figure},
                       {"before", spread(change.before)},
                       {"now", spread(change.now)},
                       {"change", change.change},
                       {"regression", change.is_regression}});
  }
  return {{"with", before},
          {"tolerance", tolerance},
          {"changes", changes},
          {"only_before", comparison.only_before}};
}

}  // namespace penstock
