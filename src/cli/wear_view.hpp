#pragma once

/// How wear is shown, alike by `penstock train` and `penstock inspect`.
///
/// Threads: pure functions.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "cli/flags.hpp"
#include "io/store.hpp"
#include "topo/drive_wear.hpp"

namespace penstock {

/// --endurance SIZE; `bytes` stays 0 where it is not given.
void declare_endurance(Flags& flags, std::uint64_t& bytes);

/// "; 0.014 % of 600 TB", or nothing where no endurance was given.
[[nodiscard]] std::string endurance_text(std::uint64_t bytes, std::uint64_t endurance_bytes);
/// The same as a share of 1, or null.
[[nodiscard]] nlohmann::json endurance_json(std::uint64_t bytes, std::uint64_t endurance_bytes);

/// What was written to a store in its life, in all and, of several directories, to each; as a share
/// of the endurance. How many steps that were is not known: a store may have gone back.
[[nodiscard]] std::vector<std::string> lifetime_lines(const LifetimeBytes& lifetime,
                                                      const std::vector<std::string>& directories,
                                                      std::uint64_t endurance_bytes);
/// The same, and for each of the `steps` that led to the state, where all was counted; null where
/// it is not known.
[[nodiscard]] nlohmann::json lifetime_json(const std::optional<LifetimeBytes>& lifetime,
                                           const std::vector<std::string>& directories,
                                           std::uint64_t steps, std::uint64_t endurance_bytes);

/// One line a drive, what the system counted beside what we wrote, and one for each thing that is
/// not known.
[[nodiscard]] std::vector<std::string> wear_lines(const WearReport& report);
[[nodiscard]] nlohmann::json drives_json(const WearReport& report);

}  // namespace penstock
