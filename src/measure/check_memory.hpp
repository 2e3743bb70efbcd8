#pragma once

/// Memory: how much there is, whether it comes in huge pages, and the limits of this process.
///
/// Threads: pure functions of what they are given and of the files they read.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "measure/check.hpp"
#include "mem/arena.hpp"
#include "topo/block_devices.hpp"
#include "topo/cgroup.hpp"

namespace penstock {

struct MemoryFacts {
  std::optional<std::uint64_t> total_bytes{}, available_bytes{};  ///< none: not readable
  std::uint64_t swap_bytes = 0, swap_used_bytes = 0;
  std::optional<MemoryLimit> group{};  ///< of a container or a job; none: no limit
};

/// From /proc/meminfo and the control groups; `root` stands before the mount points of the latter.
[[nodiscard]] MemoryFacts read_memory_facts(const SystemFiles& files,
                                            const std::filesystem::path& root = "/");
[[nodiscard]] Check check_memory(const MemoryFacts& facts);

struct HugePageFacts {
  Result<std::uint64_t> huge_bytes = std::uint64_t{0};  ///< of those asked for; or no memory at all
  std::uint64_t asked_bytes = 0;
  std::string setting{};       ///< of the system, as it stands in /sys; empty: this kernel has none
  bool disabled_here = false;  ///< for this process, by prctl(PR_SET_THP_DISABLE)
};

/// `arena` is what was got when `asked_bytes` were asked for.
[[nodiscard]] HugePageFacts read_huge_page_facts(const Result<Arena>& arena,
                                                 std::uint64_t asked_bytes,
                                                 const SystemFiles& files);
[[nodiscard]] Check check_huge_pages(const HugePageFacts& facts);

/// Limits of this process; none: unlimited.
struct LimitFacts {
  std::optional<std::uint64_t> open_files{}, file_bytes{}, address_bytes{};
};

[[nodiscard]] LimitFacts read_limit_facts();
[[nodiscard]] Check check_limits(const LimitFacts& facts);

}  // namespace penstock
