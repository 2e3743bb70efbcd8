#pragma once

/// The CPU quota that a control group puts on this process; containers set one.
/// Threads: pure functions of the files they read.

#include <filesystem>
#include <optional>

namespace penstock {

/// CPUs' worth of time per second that the process may use: the smallest quota of its cgroup and
/// of all groups above it, version 1 (cpu.cfs_quota_us) and 2 (cpu.max). None: no quota, or not
/// readable.
///
/// proc_self: the process's directory in /proc.  root: put in front of the mount points found
/// there; both are other directories in tests.
[[nodiscard]] std::optional<double> read_cpu_quota(
    const std::filesystem::path& proc_self = "/proc/self", const std::filesystem::path& root = "/");

}  // namespace penstock
