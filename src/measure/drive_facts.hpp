#pragma once

/// What lies under a mount: the layers of devices down to the drives, and the drives.
///
/// Threads: pure functions of the files they read. Errors: none; what is not readable is empty.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "topo/block_devices.hpp"
#include "topo/drive_wear.hpp"
#include "topo/mounts.hpp"

namespace penstock {

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
