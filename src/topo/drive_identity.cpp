#include "topo/drive_identity.hpp"

#include <algorithm>
#include <cctype>
#include <fstream>

#include <fmt/format.h>

#include "topo/mounts.hpp"

namespace penstock {
namespace {

namespace fs = std::filesystem;

/// The first line of a file, printable characters without blanks only; empty where there is none.
std::string first_word(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  std::string word;
  for (const char c : line) {
    if (std::isgraph(static_cast<unsigned char>(c)) != 0) word += c;
  }
  return word;
}

std::uint64_t size_bytes(const fs::path& device) {
  std::uint64_t sectors = 0;
  std::ifstream(device / "size") >> sectors;  // of 512 bytes, whatever the drive's own are
  return sectors * 512;
}

/// What names this very drive. NVMe shows a world-wide name beside the disk, SCSI below its device;
/// virtio has a serial number, mostly one that all disks share, so the device number goes with it.
std::string name_of(const fs::path& device) {
  for (const char* place : {"wwid", "device/wwid", "device/serial"}) {
    std::string name = first_word(device / place);
    if (!name.empty()) return name;
  }
  const std::string number = first_word(device / "dev");
  const std::string serial = first_word(device / "serial");
  return serial.empty() ? number : fmt::format("{}@{}", serial, number);
}

}  // namespace

DriveIdentity identify_drives_of(DeviceNumber device, const std::string& path,
                                 const SystemFiles& files) {
  DriveIdentity identity;
  const Mount mount = find_mount(0, device, files).value_or(Mount{});
  identity.filesystem = mount.type;
  if (auto drives = drives_under(device, path, files)) identity.drives = std::move(drives).value();
  for (const std::string& drive : identity.drives) {
    const fs::path place = files.sys / "class" / "block" / drive;
    const std::uint64_t bytes = size_bytes(place);
    identity.bytes += bytes;
    if (!identity.id.empty()) identity.id += '+';
    identity.id += fmt::format("{}:{}", name_of(place), bytes);
  }
  if (identity.id.empty()) {
    identity.id = fmt::format("{}:{}", mount.type.empty() ? "unknown" : mount.type,
                              mount.point.empty() ? path : mount.point);
  }
  return identity;
}

DriveIdentity identify_drives(const std::string& path, const SystemFiles& files) {
  const auto device = device_of(path, files);
  return identify_drives_of(device ? device.value() : DeviceNumber{}, path, files);
}

}  // namespace penstock
