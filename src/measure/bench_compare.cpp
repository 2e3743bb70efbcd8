#include "measure/bench_compare.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

namespace penstock {
namespace {

Error other(const std::string& what, const std::string& before, const std::string& now) {
  return make_error(
      Errc::kArgument,
      fmt::format("the reports cannot be compared: {} was {} and is {}; compare "
                  "with a report of the same",
                  what, before.empty() ? "unknown" : before, now.empty() ? "unknown" : now));
}

std::vector<std::string> sorted(const std::vector<BenchTarget>& targets,
                                std::string BenchTarget::*field) {
  std::vector<std::string> values;
  for (const BenchTarget& target : targets) values.push_back(target.*field);
  std::sort(values.begin(), values.end());
  return values;
}

std::string list(const std::vector<std::string>& values) {
  return fmt::format("{}", fmt::join(values, ", "));
}

Status check_row(const BenchRow& before, const BenchRow& now) {
  const std::string what = fmt::format("of \"{}\" the ", now.name);
  if (before.block_bytes != now.block_bytes) {
    return other(what + "block", std::to_string(before.block_bytes),
                 std::to_string(now.block_bytes));
  }
  if (before.depth != now.depth) {
    return other(what + "depth", std::to_string(before.depth), std::to_string(now.depth));
  }
  if (before.threads != now.threads) {
    return other(what + "number of threads", std::to_string(before.threads),
                 std::to_string(now.threads));
  }
  const std::size_t rounds = std::min(before.bytes_per_second.count, now.bytes_per_second.count);
  if (rounds < kLeastComparedRounds) {
    return make_error(Errc::kArgument,
                      fmt::format("the reports cannot be compared: \"{}\" has {} rounds in one of "
                                  "them, and the noise is known from {} on; grant more with --time",
                                  now.name, rounds, kLeastComparedRounds));
  }
  return ok();
}

Spread scaled(const Spread& spread, double scale) {
  return {spread.p10 * scale, spread.median * scale, spread.p90 * scale, spread.count};
}

BenchChange change_of(const BenchRow& row, const char* figure, const Spread& before,
                      const Spread& now, bool more_is_better, double tolerance) {
  BenchChange change{row.name, figure, before, now, 0.0, false};
  if (before.median > 0.0) change.change = now.median / before.median - 1.0;
  change.is_regression = more_is_better ? change.change < -tolerance && now.p90 < before.p10
                                        : change.change > tolerance && now.p10 > before.p90;
  return change;
}

}  // namespace

std::vector<const BenchChange*> BenchComparison::regressions() const {
  std::vector<const BenchChange*> found;
  for (const BenchChange& change : changes) {
    if (change.is_regression) found.push_back(&change);
  }
  return found;
}

Status check_same_drives(const std::vector<BenchTarget>& before,
                         const std::vector<BenchTarget>& now) {
  const auto ids_before = sorted(before, &BenchTarget::device_id);
  const auto ids_now = sorted(now, &BenchTarget::device_id);
  if (ids_before != ids_now) return other("the device", list(ids_before), list(ids_now));
  const auto systems_before = sorted(before, &BenchTarget::filesystem);
  const auto systems_now = sorted(now, &BenchTarget::filesystem);
  if (systems_before != systems_now) {
    return other("the filesystem", list(systems_before), list(systems_now));
  }
  return ok();
}

Result<BenchComparison> compare_benches(const BenchReport& before, const BenchReport& now,
                                        double tolerance) {
  BenchComparison comparison;
  bool drives_checked = false;
  for (const BenchRow& row : now.rows) {
    const BenchRow* const old_row = before.find(row.name);
    if (old_row == nullptr) continue;
    if (is_of_drives(row) && !drives_checked) {
      PENSTOCK_CHECK_OK(check_same_drives(before.targets, now.targets));
      drives_checked = true;
    }
    if (!is_of_drives(row) && before.processor != now.processor) {
      return other("the processor", before.processor, now.processor);
    }
    PENSTOCK_CHECK_OK(check_row(*old_row, row));
    comparison.changes.push_back(change_of(row, "GB/s", scaled(old_row->bytes_per_second, 1e-9),
                                           scaled(row.bytes_per_second, 1e-9), true, tolerance));
    if (row.name.starts_with("demand") && old_row->p99_ns.count != 0 && row.p99_ns.count != 0) {
      comparison.changes.push_back(change_of(row, "p99 us", scaled(old_row->p99_ns, 1e-3),
                                             scaled(row.p99_ns, 1e-3), false, tolerance));
    }
  }
  if (comparison.changes.empty()) {
    return make_error(Errc::kArgument,
                      "the reports cannot be compared: they have no row in common; run the same "
                      "measurements again");
  }
  for (const BenchRow& row : before.rows) {
    if (now.find(row.name) == nullptr) comparison.only_before.push_back(row.name);
  }
  return comparison;
}

}  // namespace penstock
