#pragma once

/// How wear is shown, alike by `penstock train` and `penstock inspect`.
///
/// Threads: pure functions.

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "cli/flags.hpp"
#include "topo/drive_wear.hpp"

namespace penstock {

/// --endurance SIZE; `bytes` stays 0 where it is not given.
void declare_endurance(Flags& flags, std::uint64_t& bytes);

/// "; 0.014 % of 600 TB", or nothing where no endurance was given.
[[nodiscard]] std::string endurance_text(std::uint64_t bytes, std::uint64_t endurance_bytes);
/// The same as a share of 1, or null.
[[nodiscard]] nlohmann::json endurance_json(std::uint64_t bytes, std::uint64_t endurance_bytes);

/// One line a drive, what the system counted beside what we wrote, and one for each thing that is
/// not known.
[[nodiscard]] std::vector<std::string> wear_lines(const WearReport& report);
[[nodiscard]] nlohmann::json drives_json(const WearReport& report);

}  // namespace penstock
