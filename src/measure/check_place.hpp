#pragma once

/// Whether a directory can hold a store, and what lies under it.
///
/// Threads: pure functions, but for read_place(), which tries it.

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "measure/check.hpp"
#include "measure/drive_facts.hpp"
#include "measure/place_trial.hpp"

namespace penstock {

struct PlaceFacts {
  std::string path;
  PlaceTrial trial{};
  uid_t user = 0;  ///< who asks
  std::optional<Mount> mount{};
  std::vector<std::string> layers{};
  std::vector<DriveFacts> drives{};
  std::string drives_note{};  ///< why no drive is known
};

[[nodiscard]] PlaceFacts read_place(const std::string& path, const WearSources& sources);

/// Whether the trial came to its end, so that the other checks mean something.
[[nodiscard]] bool is_usable(const PlaceFacts& facts);

[[nodiscard]] Check check_directory(const PlaceFacts& facts);
[[nodiscard]] Check check_filesystem(const PlaceFacts& facts);
[[nodiscard]] Check check_direct(const PlaceFacts& facts);
[[nodiscard]] Check check_space(const PlaceFacts& facts);
[[nodiscard]] Check check_drive(const PlaceFacts& facts);

/// Drives that several of the directories lie on, and directories that were given twice; none where
/// there is nothing to say.
[[nodiscard]] std::optional<Check> check_shared_drives(const std::vector<PlaceFacts>& places);

}  // namespace penstock
