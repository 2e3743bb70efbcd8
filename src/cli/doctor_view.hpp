#pragma once

/// How the checks of `penstock doctor` are shown. Threads: pure functions.

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "measure/check.hpp"

namespace penstock {

/// Columns of the text; a fix is never broken, so that it can be copied.
inline constexpr std::size_t kDoctorColumns = 100;

/// One check as lines: name, status and what was found; cost and fix below, where there are any.
[[nodiscard]] std::string check_lines(const Check& check);
[[nodiscard]] nlohmann::json check_json(const Check& check);

/// "2 warnings, 1 failure: A training cannot run ..."
[[nodiscard]] std::string summary_line(const CheckSummary& summary);

}  // namespace penstock
