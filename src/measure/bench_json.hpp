#pragma once

/// A bench report as one JSON object, schema "penstock.bench/1" (docs/cli.md), and back.
///
/// What was not measured is null or not there, never 0.
/// Threads: pure functions. Errors: kArgument (no such report, another schema), naming what.

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "base/result.hpp"
#include "measure/bench_report.hpp"

namespace penstock {

inline constexpr const char* kBenchSchema = "penstock.bench/1";

[[nodiscard]] nlohmann::json to_json(const BenchReport& report);

/// `what` names the text in messages.
Result<BenchReport> parse_bench_report(std::string_view text, const std::string& what);
/// A file that `penstock bench --json` wrote.
Result<BenchReport> read_bench_report(const std::string& path);

}  // namespace penstock
