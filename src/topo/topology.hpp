#pragma once

/// What this process may use of the machine, as plain numbers.
///
/// Read once at start and passed on as a value; tests make one from a description instead.
/// Threads: pure functions.
/// Errors:  kUnsupported when the machine cannot be read, kArgument for a bad description.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace penstock {

struct NumaNode {
  int index = 0;                   ///< as the system numbers it
  std::uint64_t memory_bytes = 0;  ///< 0: not known
  std::string cpus;                ///< hardware threads close to it, as a list: "0-3,8-11"
};

struct Topology {
  int cores = 0;             ///< physical cores with at least one allowed hardware thread
  int hardware_threads = 0;  ///< allowed to this process (cpuset, taskset)
  int usable_threads = 0;    ///< of these, what a CPU quota leaves (rounded down); at least 1
  double cpu_quota = 0;      ///< CPUs granted by the cgroup; 0: no quota
  std::vector<NumaNode> numa_nodes;  ///< by index, with memory only ("cpus" may be empty)
  std::uint64_t l2_bytes = 0;        ///< the smallest L2 of the machine, 0: not known
  std::uint64_t l3_bytes = 0;        ///< the smallest L3 of the machine, 0: not known
};

/// The machine, as this process is allowed to use it.
[[nodiscard]] Result<Topology> read_topology();

/// From an hwloc synthetic description, such as "node:2 l3:1 core:4 pu:2".
[[nodiscard]] Result<Topology> topology_from_synthetic(const std::string& description);

/// From a file that hwloc's lstopo wrote as XML.
[[nodiscard]] Result<Topology> topology_from_xml(const std::filesystem::path& path);

}  // namespace penstock
