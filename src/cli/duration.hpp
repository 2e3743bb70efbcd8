#pragma once

/// Flags of the commands that measure: for how long, and with how much.
///
/// Threads: one. Errors: kArgument, with the flag, the value and what would be right.

#include <cstdint>
#include <string>

#include "cli/flags.hpp"

namespace penstock {

/// "30s", "1.5", "2m", "500ms".
[[nodiscard]] Result<double> parse_seconds(const std::string& flag, const std::string& value);

/// A size that may not be 0, into `target`.
void size_flag(Flags& flags, const std::string& name, std::uint64_t& target,
               const std::string& help);

}  // namespace penstock
