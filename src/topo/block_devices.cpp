#include "topo/block_devices.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <set>
#include <system_error>

#include <fmt/format.h>

#include "topo/mounts.hpp"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxLayers = 16;  // of devices over devices; a limit on what a broken /sys can do

/// The name of a block device under /dev, through its links; empty where it is none.
std::string device_name(const std::string& source, const SystemFiles& files) {
  constexpr std::string_view kDev = "/dev/";
  if (!source.starts_with(kDev)) return {};
  std::error_code error;
  const fs::path real = fs::canonical(files.dev / source.substr(kDev.size()), error);
  return error ? std::string() : real.filename().string();
}

/// Adds the drives under a device that /sys shows at `place`.
void add_drives(const fs::path& place, int layers, std::set<std::string>& drives) {
  std::error_code error;
  fs::path real = fs::canonical(place, error);
  if (error || layers == 0) return;
  if (fs::exists(real / "partition", error)) real = real.parent_path();
  bool has_lower = false;
  for (fs::directory_iterator lower(real / "slaves", error), end; !error && lower != end;
       lower.increment(error)) {
    has_lower = true;
    add_drives(lower->path(), layers - 1, drives);
  }
  if (!has_lower) drives.insert(real.filename().string());
}

/// Names of all devices of the btrfs that `name` is part of; that one alone where it is of none.
std::set<std::string> with_companions(const std::string& name, const SystemFiles& files) {
  std::error_code error;
  for (fs::directory_iterator system(files.sys / "fs" / "btrfs", error), end;
       !error && system != end; system.increment(error)) {
    std::set<std::string> names;
    std::error_code inner;
    for (fs::directory_iterator device(system->path() / "devices", inner), last;
         !inner && device != last; device.increment(inner)) {
      names.insert(device->path().filename().string());
    }
    if (names.contains(name)) return names;
  }
  return {name};
}

/// As mountinfo numbers it; 0: the kernel does not say (before Linux 5.8).
std::uint64_t mount_id_of(const std::string& path) {
  struct statx facts {};
  if (::statx(AT_FDCWD, path.c_str(), 0, STATX_MNT_ID, &facts) != 0) return 0;
  return (facts.stx_mask & STATX_MNT_ID) != 0 ? facts.stx_mnt_id : 0;
}

}  // namespace

Result<DeviceNumber> device_of(const std::string& path, const SystemFiles& files) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    const int error = errno;
    return make_error(Errc::kIo,
                      fmt::format("cannot look at {}: {}; check the path", path,
                                  std::generic_category().message(error)),
                      error);
  }
  const DeviceNumber device{static_cast<std::uint32_t>(major(info.st_dev)),
                            static_cast<std::uint32_t>(minor(info.st_dev))};
  if (device.major != 0) return device;
  const std::uint64_t id = mount_id_of(path);
  const auto mount = id != 0 ? find_mount(id, device, files) : std::nullopt;
  return mount ? mount->device : device;
}

Result<std::vector<std::string>> drives_under(DeviceNumber device, const std::string& what,
                                              const SystemFiles& files) {
  std::set<std::string> drives;
  add_drives(files.sys / "dev" / "block" / fmt::format("{}:{}", device.major, device.minor),
             kMaxLayers, drives);
  if (drives.empty()) {
    const auto mount = find_mount(0, device, files);
    const std::string name = mount ? device_name(mount->source, files) : std::string();
    if (mount && name.empty()) {
      return make_error(Errc::kUnsupported, fmt::format("{} lies on {}, which has no drive of its "
                                                        "own",
                                                        what, mount->type));
    }
    if (!name.empty()) {
      for (const std::string& one : with_companions(name, files)) {
        add_drives(files.sys / "class" / "block" / one, kMaxLayers, drives);
      }
    }
  }
  if (!drives.empty()) return std::vector<std::string>(drives.begin(), drives.end());
  return make_error(Errc::kUnsupported,
                    fmt::format("the drive of {} is not known: {} does not show device {}:{}", what,
                                files.sys.string(), device.major, device.minor));
}

}  // namespace penstock
