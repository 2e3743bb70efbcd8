#pragma once

/// Which drive a device is, as a number, and which CPUs are close to it.
///
/// Threads: pure functions of the files they read. Errors: none; what the system does not say is
/// left out.

#include <cstdint>
#include <string>
#include <vector>

#include "topo/block_devices.hpp"
#include "topo/topology.hpp"

namespace penstock {

/// The same for all partitions of a drive, and for all that lies on the same set of drives. A
/// device of which /sys shows no drive counts as one of its own.
[[nodiscard]] std::uint64_t drive_number(DeviceNumber device,
                                         const SystemFiles& files = {}) noexcept;

/// The NUMA node that the device is attached to; -1: none, or not known.
[[nodiscard]] int numa_node_of(DeviceNumber device, const SystemFiles& files = {});

/// "0-3,8" as numbers; what is no list gives none.
[[nodiscard]] std::vector<int> cpu_numbers(const std::string& list);

}  // namespace penstock
