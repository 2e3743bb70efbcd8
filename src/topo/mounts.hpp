#pragma once

/// Mounts, as /proc/self/mountinfo has them (proc(5)): "id parent major:minor root mount_point
/// options [tags] - type source super_options".
///
/// Threads: pure functions of the file they read. Errors: none; what is not readable is not there.

#include <cstdint>
#include <optional>
#include <string>

#include "topo/block_devices.hpp"

namespace penstock {

struct Mount {
  std::string type;    ///< "ext4", "nfs4", "fuse.sshfs"
  std::string source;  ///< "/dev/nvme0n1p2", "server:/export"
  std::string point;   ///< where it is mounted
  DeviceNumber device;
};

/// By its id, or by the device where the id is 0 (not known): then the last mount of it, which
/// covers those before it in the same place.
[[nodiscard]] std::optional<Mount> find_mount(std::uint64_t id, DeviceNumber device,
                                              const SystemFiles& files);

}  // namespace penstock
