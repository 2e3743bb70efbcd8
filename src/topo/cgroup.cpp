#include "topo/cgroup.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {
namespace {

namespace fs = std::filesystem;

/// One hierarchy this process is in: where it is mounted and which of its groups is ours.
struct Hierarchy {
  bool is_v2 = false;
  fs::path mount_point;
  fs::path mount_root;  // the group that the mount point shows; "/" but in containers
  fs::path group;
};

bool has_item(std::string_view list, std::string_view item) {
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    if (list.substr(0, comma) == item) return true;
    if (comma == std::string_view::npos) return false;
    list.remove_prefix(comma + 1);
  }
  return false;
}

/// /proc/self/cgroup: lines "hierarchy:controllers:path"; version 2 is hierarchy 0, no controllers.
std::optional<fs::path> group_of(const fs::path& proc_self, bool is_v2,
                                 std::string_view controller) {
  std::ifstream file(proc_self / "cgroup");
  std::string line;
  while (std::getline(file, line)) {
    const std::size_t first = line.find(':');
    if (first == std::string::npos) continue;
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string_view controllers =
        std::string_view(line).substr(first + 1, second - first - 1);
    const bool matches = is_v2 ? controllers.empty() : has_item(controllers, controller);
    if (matches) return fs::path(line.substr(second + 1));
  }
  return std::nullopt;
}

/// /proc/self/mountinfo: "id parent major:minor root mount_point options [tags] - type source
/// super_options" (proc(5)). Spaces in paths are written as \040 there; no cgroup mount has any.
std::vector<Hierarchy> find_hierarchies(const fs::path& proc_self, std::string_view controller) {
  std::vector<Hierarchy> found;
  std::ifstream file(proc_self / "mountinfo");
  std::string line;
  while (std::getline(file, line)) {
    const std::size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream before(line.substr(0, dash));
    std::istringstream after(line.substr(dash + 3));
    std::string id, parent, device, mount_root, mount_point, type, source, super_options;
    if (!(before >> id >> parent >> device >> mount_root >> mount_point)) continue;
    if (!(after >> type >> source)) continue;
    after >> super_options;
    const bool is_v2 = type == "cgroup2";
    if (!is_v2 && !(type == "cgroup" && has_item(super_options, controller))) continue;
    if (const auto group = group_of(proc_self, is_v2, controller)) {
      found.push_back(Hierarchy{is_v2, mount_point, mount_root, *group});
    }
  }
  return found;
}

std::optional<double> quota_of(const fs::path& directory, bool is_v2) {
  double quota_us = 0;
  double period_us = 0;
  if (is_v2) {
    std::ifstream file(directory / "cpu.max");  // "150000 100000", or "max 100000"
    if (!(file >> quota_us >> period_us)) return std::nullopt;
  } else {
    std::ifstream quota_file(directory / "cpu.cfs_quota_us");  // -1: none
    std::ifstream period_file(directory / "cpu.cfs_period_us");
    if (!(quota_file >> quota_us) || !(period_file >> period_us)) return std::nullopt;
  }
  if (quota_us <= 0 || period_us <= 0) return std::nullopt;
  return quota_us / period_us;
}

/// Limits at and above this are how version 1 says "none".
constexpr std::uint64_t kNoLimitBytes = std::uint64_t{1} << 62;

std::optional<MemoryLimit> memory_limit_of(const fs::path& directory, bool is_v2) {
  MemoryLimit result;
  std::ifstream limit(directory / (is_v2 ? "memory.max" : "memory.limit_in_bytes"));
  if (!(limit >> result.limit_bytes) || result.limit_bytes >= kNoLimitBytes) return std::nullopt;
  std::ifstream used(directory / (is_v2 ? "memory.current" : "memory.usage_in_bytes"));
  if (!(used >> result.used_bytes)) result.used_bytes = 0;
  return result;
}

/// Calls `look(directory, is_v2)` for the group of this process and all groups above it.
template <class Look>
void for_each_group(const fs::path& proc_self, const fs::path& root, std::string_view controller,
                    const Look& look) {
  for (const Hierarchy& hierarchy : find_hierarchies(proc_self, controller)) {
    fs::path directory = root / hierarchy.mount_point.relative_path();
    look(directory, hierarchy.is_v2);
    // Inside a container the mount may show only our part of the tree; a path that leaves it
    // (begins with "..") cannot be followed and belongs to groups that we cannot read.
    const fs::path below = hierarchy.group.lexically_relative(hierarchy.mount_root);
    if (below.empty() || *below.begin() == "..") continue;
    for (const fs::path& part : below) {
      if (part == ".") continue;
      directory /= part;
      look(directory, hierarchy.is_v2);
    }
  }
}

}  // namespace

std::optional<double> read_cpu_quota(const fs::path& proc_self, const fs::path& root) {
  std::optional<double> result;
  for_each_group(proc_self, root, "cpu", [&](const fs::path& directory, bool is_v2) {
    const std::optional<double> quota = quota_of(directory, is_v2);
    if (quota && (!result || *quota < *result)) result = quota;
  });
  return result;
}

std::optional<MemoryLimit> read_memory_limit(const fs::path& proc_self, const fs::path& root) {
  std::optional<MemoryLimit> result;
  for_each_group(proc_self, root, "memory", [&](const fs::path& directory, bool is_v2) {
    const std::optional<MemoryLimit> limit = memory_limit_of(directory, is_v2);
    if (limit && (!result || limit->left_bytes() < result->left_bytes())) result = limit;
  });
  return result;
}

}  // namespace penstock
