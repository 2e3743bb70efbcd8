#include "measure/check.hpp"

#include <fmt/format.h>

namespace penstock {
namespace {

/// "huge pages, direct I/O (/mnt/a)"
std::string names_of(const std::vector<Check>& checks, CheckStatus status) {
  std::string names;
  for (const Check& check : checks) {
    if (check.status != status) continue;
    if (!names.empty()) names += ", ";
    names += check.name;
    if (!check.path.empty()) names += fmt::format(" ({})", check.path);
  }
  return names;
}

}  // namespace

std::string_view check_status_name(CheckStatus status) {
  switch (status) {
    case CheckStatus::kOk:
      return "OK";
    case CheckStatus::kWarn:
      return "WARN";
    case CheckStatus::kFail:
      return "FAIL";
    case CheckStatus::kSkip:
      return "SKIP";
  }
  return "FAIL";
}

CheckSummary summarize_checks(const std::vector<Check>& checks) {
  CheckSummary summary;
  for (const Check& check : checks) {
    switch (check.status) {
      case CheckStatus::kOk:
        ++summary.ok;
        break;
      case CheckStatus::kWarn:
        ++summary.warnings;
        break;
      case CheckStatus::kFail:
        ++summary.failures;
        break;
      case CheckStatus::kSkip:
        ++summary.skipped;
        break;
    }
  }
  if (summary.failures > 0) {
    summary.text = fmt::format("A training cannot run like this: {} failed.",
                               names_of(checks, CheckStatus::kFail));
  } else if (summary.warnings > 0) {
    summary.text = fmt::format("A training can run; it would run better without the warnings: {}.",
                               names_of(checks, CheckStatus::kWarn));
  } else {
    summary.text = "A training can run, and nothing that was checked holds it back.";
  }
  return summary;
}

}  // namespace penstock
