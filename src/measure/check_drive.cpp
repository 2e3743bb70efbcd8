// What lies under a directory: check_place.hpp.

#include <algorithm>
#include <array>
#include <map>

#include <fmt/format.h>

#include "base/units.hpp"
#include "measure/check_place.hpp"

namespace penstock {
namespace {

constexpr std::uint32_t kWornPercent = 80;

template <std::size_t N>
bool is_one_of(std::string_view type, const std::array<std::string_view, N>& types) {
  return std::find(types.begin(), types.end(), type) != types.end();
}

bool is_network(std::string_view type) {
  static constexpr std::array<std::string_view, 14> kTypes = {
      "nfs", "nfs4", "cifs",     "smb3",   "ceph",      "lustre", "gpfs",
      "9p",  "afs",  "orangefs", "beegfs", "glusterfs", "ocfs2",  "virtiofs"};
  return is_one_of(type, kTypes);
}

bool is_in_memory(std::string_view type) {
  static constexpr std::array<std::string_view, 3> kTypes = {"tmpfs", "ramfs", "devtmpfs"};
  return is_one_of(type, kTypes);
}

bool is_tested(std::string_view type) {
  static constexpr std::array<std::string_view, 3> kTypes = {"ext4", "xfs", "btrfs"};
  return is_one_of(type, kTypes);
}

/// A hypervisor's drive says that it rotates unless it is told otherwise, and a loop device what
/// the one under it says.
bool rotates(const DriveFacts& drive) {
  static constexpr std::array<std::string_view, 4> kVirtual = {"vd", "xvd", "loop", "nbd"};
  const bool is_virtual = std::any_of(kVirtual.begin(), kVirtual.end(),
                                      [&](auto prefix) { return drive.name.starts_with(prefix); });
  return drive.is_rotational.value_or(false) && !is_virtual;
}

/// "nvme0n1: Samsung SSD 990 PRO, scheduler none, 3 % of its rated life used"
std::string describe(const DriveFacts& drive) {
  std::string text = drive.name;
  std::vector<std::string> parts;
  if (!drive.model.empty()) parts.push_back(drive.model);
  if (rotates(drive)) parts.emplace_back("rotating");
  if (drive.physical_sector_bytes > 0) {
    parts.push_back(
        fmt::format("sectors of {}/{} B", drive.sector_bytes, drive.physical_sector_bytes));
  }
  if (!drive.scheduler.empty()) {
    parts.push_back(fmt::format(
        "scheduler {} ({})", drive.scheduler,
        drive.scheduler == "none" ? "I/O priorities do nothing" : "I/O priorities work"));
  }
  if (drive.health) {
    parts.push_back(fmt::format("{} % of its rated life used, {} written",
                                drive.health->percent_used,
                                format_drive_bytes(drive.health->written_bytes)));
  }
  return parts.empty() ? text : fmt::format("{}: {}", text, fmt::join(parts, ", "));
}

void add_drive_data(const PlaceFacts& facts, Check& check) {
  std::vector<std::string> names, schedulers;
  for (const DriveFacts& drive : facts.drives) {
    names.push_back(drive.name);
    schedulers.push_back(drive.scheduler);
  }
  check.data = {{"drives", names}, {"layers", facts.layers}, {"schedulers", schedulers}};
  if (facts.drives.size() != 1) return;
  const DriveFacts& drive = facts.drives.front();
  check.data.emplace_back("rotational",
                          drive.is_rotational ? CheckValue(*drive.is_rotational) : CheckValue());
  check.data.emplace_back("sector_bytes", drive.sector_bytes);
  check.data.emplace_back("physical_sector_bytes", drive.physical_sector_bytes);
  check.data.emplace_back(
      "life_percent_used",
      drive.health ? CheckValue(std::uint64_t{drive.health->percent_used}) : CheckValue());
  check.data.emplace_back("life_written_bytes",
                          drive.health ? CheckValue(drive.health->written_bytes) : CheckValue());
}

}  // namespace

Check check_filesystem(const PlaceFacts& facts) {
  Check check{.name = "filesystem", .path = facts.path};
  if (!facts.mount) {
    check.found(CheckStatus::kWarn, "/proc/self/mountinfo does not show its mount",
                "what it costs is not known", "use a directory on ext4 or xfs");
    return check;
  }
  const Mount& mount = *facts.mount;
  check.data = {{"type", mount.type}, {"source", mount.source}, {"mount_point", mount.point}};
  const std::string where = fmt::format("{} at {}", mount.type, mount.point);
  const std::string own_drive = "use a directory on ext4 or xfs, on a drive of this machine";
  if (is_network(mount.type)) {
    check.found(
        CheckStatus::kWarn, fmt::format("{}, a network filesystem ({})", where, mount.source),
        "every step moves its states over the network, and commits wait for the server", own_drive);
  } else if (is_in_memory(mount.type)) {
    check.found(CheckStatus::kWarn, where + ", which keeps its files in memory",
                "a store there takes the memory it is to save, and is gone when the machine "
                "restarts",
                own_drive);
  } else if (mount.type.starts_with("fuse")) {
    check.found(CheckStatus::kWarn, where + ", a filesystem in a process of its own (FUSE)",
                "every transfer goes through that process, and what a commit means is up to it",
                own_drive);
  } else if (mount.type == "overlay") {
    check.found(CheckStatus::kWarn, where + ", the changing layer of a container",
                "a store is gone with the container",
                "docker run --volume /path/on/the/drive:/data, and a directory in /data");
  } else if (!is_tested(mount.type)) {
    check.found(CheckStatus::kWarn, where, "Penstock is tested on ext4, xfs and btrfs only",
                own_drive);
  } else {
    check.found(CheckStatus::kOk, where);
  }
  return check;
}

Check check_drive(const PlaceFacts& facts) {
  Check check{.name = "drive", .path = facts.path};
  add_drive_data(facts, check);
  if (facts.drives.empty()) {
    check.found(CheckStatus::kSkip, facts.drives_note);
    return check;
  }
  std::vector<std::string> texts, health_notes;
  bool is_rotational = false, is_worn = false;
  for (const DriveFacts& drive : facts.drives) {
    texts.push_back(describe(drive));
    is_rotational = is_rotational || rotates(drive);
    is_worn = is_worn || (drive.health && drive.health->percent_used >= kWornPercent);
    if (!drive.health_note.empty()) health_notes.push_back(drive.health_note);
  }
  std::string why = fmt::format("{}", fmt::join(texts, "; "));
  if (!facts.layers.empty()) why += fmt::format("; under {}", fmt::join(facts.layers, ", "));
  if (!health_notes.empty()) why += fmt::format("; health: {}", fmt::join(health_notes, ", "));
  if (is_worn) {
    check.found(CheckStatus::kWarn, why,
                fmt::format("a drive is near the end of its rated life (from {} %), and a training "
                            "writes most of its states in every step",
                            kWornPercent),
                "use another drive, or give more to --ram so that less is written");
  } else if (is_rotational) {
    check.found(CheckStatus::kWarn, why, "a rotating drive gives a tenth of an SSD's rate or less",
                "name a directory on an NVMe drive; where the drive is none, echo 0 | sudo tee "
                "/sys/block/DRIVE/queue/rotational");
  } else {
    check.found(CheckStatus::kOk, why);
  }
  return check;
}

std::optional<Check> check_shared_drives(const std::vector<PlaceFacts>& places) {
  std::map<std::string, std::vector<std::string>> paths_of;
  for (const PlaceFacts& place : places) {
    for (const DriveFacts& drive : place.drives) paths_of[drive.name].push_back(place.path);
  }
  std::vector<std::string> shared, names;
  for (const auto& [drive, paths] : paths_of) {
    if (paths.size() < 2) continue;
    names.push_back(drive);
    shared.push_back(fmt::format("{} lie on {}", fmt::join(paths, " and "), drive));
  }
  if (shared.empty()) return std::nullopt;
  Check check{.name = "shared drives"};
  check.data = {{"drives", names}};
  check.found(CheckStatus::kWarn, fmt::format("{}", fmt::join(shared, "; ")),
              "such directories count once: a store over both is no faster than over one",
              "name directories on different drives, one each");
  return check;
}

}  // namespace penstock
