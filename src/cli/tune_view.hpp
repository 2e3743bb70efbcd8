#pragma once

/// How a tuning is shown: a curve for each knob, and the same as JSON.
///
/// Threads: pure functions.

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "measure/tune.hpp"

namespace penstock {

[[nodiscard]] std::vector<std::string> tune_lines(const TuneReport& report);

/// All but what becomes of the profile; schema "penstock.tune/1".
[[nodiscard]] nlohmann::json tune_json(const TuneReport& report, const TuneOptions& options);

}  // namespace penstock
