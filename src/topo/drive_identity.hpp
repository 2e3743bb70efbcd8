#pragma once

/// What a directory lies on, by names that are the same after the next start of the machine.
///
/// Figures and tuned settings hold for one device and filesystem: by these they find their way
/// back, and are not used on others.
/// Threads: pure functions of the files they read.
/// Errors:  none; what cannot be told is empty, and `id` then says where the directory is mounted.

#include <cstdint>
#include <string>
#include <vector>

#include "topo/block_devices.hpp"

namespace penstock {

struct DriveIdentity {
  std::vector<std::string> drives;  ///< "nvme0n1"; empty: none of its own (tmpfs, network)
  std::string filesystem;           ///< "ext4"; empty: not known
  std::uint64_t bytes = 0;          ///< of all drives
  /// Serial number or world-wide name and size of each drive, else its device number and size:
  /// "nvme.144d-53...:3840755982336".
  std::string id;
};

/// `path` is a directory or a file.
[[nodiscard]] DriveIdentity identify_drives(const std::string& path, const SystemFiles& files = {});
/// The same of a device, for a file system whose number `path`'s is.
[[nodiscard]] DriveIdentity identify_drives_of(DeviceNumber device, const std::string& path,
                                               const SystemFiles& files);

}  // namespace penstock
