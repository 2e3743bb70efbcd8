#pragma once

/// Profiles with everything set, for tests.

#include "topo/drive_profile.hpp"

namespace penstock::testing {

inline DriveProfile sample_profile(const std::string& device = "nvme.144d-53:3840755982336") {
  DriveProfile profile;
  profile.device = device;
  profile.filesystem = "ext4";
  profile.path = "/mnt/a \"b\\c\n\x7F\xC3\xA4";
  profile.version = "0.1.0";
  profile.unix_seconds = 1'769'860'800;
  profile.tuning = {.threads = true,
                    .piece_bytes = 1U << 19,
                    .read_credit_bytes = 1U << 24,
                    .write_credit_bytes = 1U << 23,
                    .plain_memory = true};
  profile.by_default = {3'000'000'000, 2'000'000'000};
  profile.tuned = {3'100'000'001, 2'600'000'000};
  return profile;
}

}  // namespace penstock::testing
