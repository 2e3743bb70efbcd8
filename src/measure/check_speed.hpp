#pragma once

/// What a probe of a drive means for a training. Threads: pure functions.

#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "measure/check.hpp"
#include "measure/drive_probe.hpp"

namespace penstock {

/// How much of a drive with that much free space the probe's file may take; 0: too little for it.
[[nodiscard]] std::uint64_t probe_bytes(std::uint64_t free_bytes, std::uint64_t longest_file_bytes);

/// Of a probe that was made.
[[nodiscard]] Check check_speed(const std::string& path, const Result<ProbeResult>& probe);
/// Of one that was not.
[[nodiscard]] Check skip_speed(const std::string& path, std::string why);

}  // namespace penstock
