#pragma once

/// Tries everything a training needs on this machine and in some directories, and says what works.
///
/// Nothing is left behind, no privileges are needed, and every wait has a limit: what may hang is
/// tried in a child process.
/// Threads: one caller; it starts and ends a few. It forks, so the process should be small.
/// Errors:  kArgument (a directory that is missing or is none, with its name), kCancelled (`stop`);
///          all else is a check that failed.

#include <atomic>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "measure/check.hpp"
#include "measure/check_libraries.hpp"
#include "topo/drive_wear.hpp"
#include "topo/profile_file.hpp"

namespace penstock {

struct DoctorOptions {
  std::vector<std::string> paths;  ///< directories; checked in this order, each once
  bool probe = true;               ///< measure the drives: up to about two seconds a directory
  const std::atomic<bool>* stop = nullptr;
  /// Called with each check as soon as it is made; may be empty.
  std::function<void(const Check&)> report{};
  // Where the machine describes itself; elsewhere in tests.
  WearSources sources{};
  ProfilePlace profile{};
  std::filesystem::path root = "/";
  LibraryNames libraries{};
};

/// All checks: of the machine first, then of each directory.
[[nodiscard]] Result<std::vector<Check>> run_doctor(const DoctorOptions& options);

}  // namespace penstock
