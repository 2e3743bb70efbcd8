#pragma once

/// How a bench report is shown: a table, and the comparison with an older one.
///
/// Threads: pure functions.

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "measure/bench_compare.hpp"
#include "measure/bench_report.hpp"

namespace penstock {

/// The machine, the targets and one line for each row.
[[nodiscard]] std::vector<std::string> bench_lines(const BenchReport& report);

[[nodiscard]] std::vector<std::string> comparison_lines(const BenchComparison& comparison,
                                                        const std::string& before);
[[nodiscard]] nlohmann::json comparison_json(const BenchComparison& comparison,
                                             const std::string& before, double tolerance);

}  // namespace penstock
