#pragma once

/// What lies under a directory: its mount, the layers of devices down to the drives, and the
/// drives.
///
/// Threads: pure functions of the files they read. Errors: none; what is not readable is empty.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "topo/block_devices.hpp"
#include "topo/drive_wear.hpp"

namespace penstock {

struct Mount {
  std::string type;    ///< "ext4", "nfs4", "fuse.sshfs"
  std::string source;  ///< "/dev/nvme0n1p2", "server:/export"
  std::string point;   ///< where it is mounted
  DeviceNumber device;
};

/// From /proc/self/mountinfo, by its id, or by the device where the id is 0 (not known).
[[nodiscard]] std::optional<Mount> find_mount(std::uint64_t id, DeviceNumber device,
                                              const SystemFiles& files);

/// One clause for each layer, from the top: "partition nvme0n1p2", "logical volume vg-data",
/// "encrypted volume x", "RAID raid0 md0", "loop device loop3 on /var/disk.img".
[[nodiscard]] std::vector<std::string> layers_under(const Mount& mount, const SystemFiles& files);

struct DriveFacts {
  std::string name;         ///< "nvme0n1"
  std::string model{};      ///< empty: not known
  std::string scheduler{};  ///< the one in use; empty: not known
  std::optional<bool> is_rotational{};
  std::uint64_t sector_bytes = 0, physical_sector_bytes = 0;  ///< 0: not known
  std::optional<DriveHealth> health{};
  std::string health_note{};  ///< why there is no health
};

[[nodiscard]] DriveFacts read_drive_facts(const std::string& name, const WearSources& sources);

}  // namespace penstock
