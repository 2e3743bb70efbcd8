#pragma once

/// The limits that control groups put on this process; containers set them.
/// Threads: pure functions of the files they read.

#include <cstdint>
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

struct MemoryLimit {
  std::uint64_t limit_bytes = 0;
  std::uint64_t used_bytes = 0;  ///< by the whole group, page cache included; 0: not readable

  [[nodiscard]] std::uint64_t left_bytes() const {
    return limit_bytes > used_bytes ? limit_bytes - used_bytes : 0;
  }
};

/// Of the group that leaves least: its own limit or that of a group above it, version 1
/// (memory.limit_in_bytes) and 2 (memory.max). None: no limit, or not readable.
[[nodiscard]] std::optional<MemoryLimit> read_memory_limit(
    const std::filesystem::path& proc_self = "/proc/self", const std::filesystem::path& root = "/");

}  // namespace penstock
