#pragma once

/// What one check of the machine found.
///
/// A check tries the thing itself and says what happened, so it has one of four ends: it works; it
/// works, but slower or less safely than it could; it does not, and a training would fail; or the
/// thing is not there and not needed.
/// Threads: plain values.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace penstock {

enum class CheckStatus : std::uint8_t { kOk, kWarn, kFail, kSkip };

/// "OK", "WARN", "FAIL", "SKIP".
[[nodiscard]] std::string_view check_status_name(CheckStatus status);

/// monostate: not known.
using CheckValue = std::variant<std::monostate, bool, std::uint64_t, double, std::string,
                                std::vector<std::string>>;

struct Check {
  std::string name;
  std::string path{};  ///< empty: of the machine
  CheckStatus status = CheckStatus::kOk;
  std::string why{};   ///< what was found, in a clause
  std::string cost{};  ///< what that costs; empty: nothing
  std::string fix{};   ///< a command, or what to do; empty: nothing to mend
  std::vector<std::pair<std::string, CheckValue>> data{};  ///< the same as numbers

  void found(CheckStatus new_status, std::string new_why, std::string new_cost = {},
             std::string new_fix = {}) {
    status = new_status;
    why = std::move(new_why);
    cost = std::move(new_cost);
    fix = std::move(new_fix);
  }
};

/// Counts, and one sentence for people: whether a training can run here, and what limits it.
struct CheckSummary {
  std::size_t ok = 0, warnings = 0, failures = 0, skipped = 0;
  std::string text;
};

[[nodiscard]] CheckSummary summarize_checks(const std::vector<Check>& checks);

}  // namespace penstock
