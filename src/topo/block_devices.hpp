#pragma once

/// Which drives a directory lies on, as the system names them ("nvme0n1", "sda").
///
/// A partition stands for its drive, a device mapper or RAID device for all drives under it, a
/// file system over several drives (btrfs) for all of them.
/// Threads: pure functions of the files they read.
/// Errors:  kIo (the directory), kUnsupported (no drive, or /sys does not say which).

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace penstock {

/// Where the system describes itself; other directories in tests.
struct SystemFiles {
  std::filesystem::path sys = "/sys";
  std::filesystem::path proc = "/proc";
  std::filesystem::path dev = "/dev";
};

/// A device as a file system has it. Major 0: not a block device's own.
struct DeviceNumber {
  std::uint32_t major = 0, minor = 0;
};

/// The device that a file or directory is on. Subvolumes of btrfs have numbers of their own that
/// nothing else knows: of those it is the number of the whole filesystem.
[[nodiscard]] Result<DeviceNumber> device_of(const std::string& path,
                                             const SystemFiles& files = {});

/// The drives under a device, each once, by name. `what` names the directory in messages.
[[nodiscard]] Result<std::vector<std::string>> drives_under(DeviceNumber device,
                                                            const std::string& what,
                                                            const SystemFiles& files = {});

}  // namespace penstock
