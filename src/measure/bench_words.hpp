#pragma once

/// A bench report in plain words: what the tiers can do, and which limits what.
///
/// A sentence appears only where what it says was measured.
/// Threads: pure functions.

#include <string>
#include <vector>

#include "measure/bench_report.hpp"

namespace penstock {

[[nodiscard]] std::vector<std::string> bench_words(const BenchReport& report);

}  // namespace penstock
