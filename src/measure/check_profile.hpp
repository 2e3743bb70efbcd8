#pragma once

/// Whether the settings that were tuned for a directory's drive are there and still hold.
///
/// Threads: pure functions.

#include <cstdint>
#include <string>

#include "measure/check.hpp"
#include "topo/profile_file.hpp"

namespace penstock {

struct ProfileFacts {
  std::string path;      ///< as it was given
  std::string absolute;  ///< where profiles say they were measured
  DriveIdentity drive;
  ProfilePlace place;
  std::uint64_t unix_seconds = 0;  ///< now
};

[[nodiscard]] Check check_profile(const ProfileFacts& facts,
                                  const Result<std::vector<DriveProfile>>& profiles);

/// "3 hours", "1 day", "14 months"
[[nodiscard]] std::string age_text(std::uint64_t seconds);

}  // namespace penstock
