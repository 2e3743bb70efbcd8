#include "measure/check_place.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <system_error>

#include <fmt/format.h>

#include "base/units.hpp"

namespace penstock {
namespace {

// A store of the smallest model that is worth a training.
constexpr std::uint64_t kLeastFreeBytes = 64 * kMiB;
constexpr std::uint64_t kLittleFreeBytes = kGiB;
// Weights and moments, 12 bytes a parameter, in two slots each.
constexpr std::uint64_t kStoreBytesPerParameter = 24;

std::string text_of(int error) {
  return fmt::format("{} ({})", std::generic_category().message(error), error);
}

std::string_view waiting_for(TrialStage stage) {
  switch (stage) {
    case TrialStage::kLook:
      return "to look at it";
    case TrialStage::kFilesystem:
      return "for its free space";
    case TrialStage::kCreate:
      return "to create a file";
    case TrialStage::kWrite:
      return "to write 64 KiB";
    case TrialStage::kSync:
      return "to make 64 KiB durable";
    case TrialStage::kRead:
    case TrialStage::kDone:
    case TrialStage::kNotStarted:
      return "to read 64 KiB";
  }
  return "to read 64 KiB";
}

/// What failed to be created, and how to mend it.
void creation_failed(const PlaceFacts& facts, Check& check) {
  const int error = facts.trial.create_errno;
  const std::string why = fmt::format("no file can be created: {}", text_of(error));
  std::string fix;
  switch (error) {
    case EACCES:
    case EPERM:
      fix =
          fmt::format("sudo chown {} {}, or name a directory of your own", facts.user, facts.path);
      break;
    case ENOSPC:
    case EDQUOT:
      fix = fmt::format("free space or raise the quota: df -h {0}; df -i {0}", facts.path);
      break;
    case EMFILE:
    case ENFILE:
      fix = "ulimit -n 1024";
      break;
    default:
      fix = "dmesg | tail; or name another directory";
  }
  check.found(CheckStatus::kFail, why, "a store cannot be made here", std::move(fix));
}

/// Whether stores may be this directory itself, or only be made inside.
void judge_privacy(const PlaceFacts& facts, Check& check) {
  const PlaceTrial& trial = facts.trial;
  std::string why;
  if (trial.is_link) {
    why = "but it is a symbolic link";
  } else if (trial.owner != facts.user) {
    why = fmt::format("but it belongs to user {}, not to user {}", trial.owner, facts.user);
  } else if ((trial.mode & (S_IWGRP | S_IWOTH)) != 0) {
    why = fmt::format("but others may write in it (mode {:04o})", trial.mode);
  } else {
    check.found(CheckStatus::kOk,
                fmt::format("writable, by its owner only (mode {:04o})", trial.mode));
    return;
  }
  check.found(CheckStatus::kWarn, "files can be created, " + why,
              "a store is refused as this directory itself, since others could exchange its files",
              fmt::format("--store {}{}run1: a directory inside, which is made private", facts.path,
                          facts.path.ends_with('/') ? "" : "/"));
}

std::string transfer_fix(int error, const PlaceFacts& facts) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return fmt::format("free space or raise the quota: df -h {}", facts.path);
    case EFBIG:
      return "ulimit -f unlimited";
    case EIO:
      return "dmesg | tail; the drive or its server reports an error";
    default:
      return "dmesg | tail; or name a directory on ext4 or xfs";
  }
}

std::uint64_t room_bytes(const PlaceTrial& trial) {
  std::uint64_t room = trial.free_bytes;
  if (trial.quota_bytes > 0) {
    room = std::min(room, trial.quota_bytes - std::min(trial.quota_bytes, trial.quota_used_bytes));
  }
  return room;
}

/// "130 M parameters", "5.4 billion parameters"
std::string parameters_in(std::uint64_t bytes) {
  const double count = static_cast<double>(bytes / kStoreBytesPerParameter);
  return count < 1e9 ? fmt::format("{:.0f} million parameters", count * 1e-6)
                     : fmt::format("{:.3g} billion parameters", count * 1e-9);
}

}  // namespace

PlaceFacts read_place(const std::string& path, const WearSources& sources) {
  PlaceFacts facts{.path = path};
  facts.user = ::geteuid();
  facts.trial = try_place(path);
  const PlaceTrial& trial = facts.trial;
  if (trial.stage == TrialStage::kLook || trial.stage == TrialStage::kNotStarted) return facts;
  DeviceNumber device{trial.device_major, trial.device_minor};
  facts.mount = find_mount(trial.mount_id, device, sources.files);
  if (facts.mount) {
    device = facts.mount->device;  // a btrfs subvolume has a number that nothing else knows
    facts.layers = layers_under(*facts.mount, sources.files);
  }
  const auto drives = drives_under(device, path, sources.files);
  if (!drives) {
    facts.drives_note = drives.error().message;
    return facts;
  }
  for (const std::string& name : drives.value()) {
    facts.drives.push_back(read_drive_facts(name, sources));
  }
  return facts;
}

bool is_usable(const PlaceFacts& facts) {
  const PlaceTrial& trial = facts.trial;
  return trial.stage == TrialStage::kDone && !trial.is_late && trial.is_same;
}

Check check_directory(const PlaceFacts& facts) {
  Check check{.name = "directory", .path = facts.path};
  const PlaceTrial& trial = facts.trial;
  check.data = {{"mode", fmt::format("{:04o}", trial.mode)},
                {"owner", std::uint64_t{trial.owner}},
                {"user", std::uint64_t{facts.user}}};
  const std::string point = facts.mount ? facts.mount->point : facts.path;
  if (trial.stage == TrialStage::kNotStarted) {
    check.found(CheckStatus::kFail, "no process could be started to try it",
                "neither can a training's threads", "ulimit -u; end other programs");
  } else if (trial.is_late) {
    check.found(CheckStatus::kFail,
                fmt::format("no answer in {} s {}", kTrialLimitNs / 1'000'000'000,
                            waiting_for(trial.stage)),
                "a training would hang as well",
                fmt::format("look at the server or the drive (dmesg | tail); umount -l {} leaves "
                            "one that is gone",
                            point));
  } else if (trial.look_errno != 0 || trial.filesystem_errno != 0) {
    const int error = trial.look_errno != 0 ? trial.look_errno : trial.filesystem_errno;
    check.found(CheckStatus::kFail, fmt::format("cannot be looked at: {}", text_of(error)),
                "a store cannot be made here",
                "check the rights of the directories above: namei -l " + facts.path);
  } else if (trial.is_read_only) {
    check.found(CheckStatus::kFail, fmt::format("{} is mounted read-only", point),
                "a store cannot be made here", fmt::format("sudo mount -o remount,rw {}", point));
  } else if (trial.create_errno != 0) {
    creation_failed(facts, check);
  } else {
    judge_privacy(facts, check);
  }
  return check;
}

Check check_direct(const PlaceFacts& facts) {
  Check check{.name = "direct I/O", .path = facts.path};
  const PlaceTrial& trial = facts.trial;
  const std::string type = facts.mount ? facts.mount->type : "the filesystem";
  check.data = {{"direct", trial.is_direct},
                {"offset_alignment_bytes", std::uint64_t{trial.offset_alignment}},
                {"memory_alignment_bytes", std::uint64_t{trial.memory_alignment}},
                {"takes_misaligned", trial.takes_misaligned}};
  constexpr const char* kCacheCost =
      "every byte is copied through the page cache, which takes memory that --ram does not count";
  const bool is_local = !facts.drives.empty();
  for (const auto& [error, what] : {std::pair{trial.write_errno, "writing 64 KiB"},
                                    std::pair{trial.sync_errno, "making 64 KiB durable"},
                                    std::pair{trial.read_errno, "reading 64 KiB back"}}) {
    if (error == 0) continue;
    check.found(CheckStatus::kFail, fmt::format("{} failed: {}", what, text_of(error)),
                "a store cannot be made here", transfer_fix(error, facts));
    return check;
  }
  if (!trial.is_same) {
    check.found(CheckStatus::kFail, "what was read is not what was written",
                "checksums would refuse what a training reads",
                "do not use this drive: look at dmesg, and test drive and memory");
  } else if (!trial.is_direct) {
    check.found(CheckStatus::kWarn, fmt::format("{} refuses O_DIRECT; transfers work", type),
                kCacheCost, "name a directory on ext4 or xfs");
  } else if (trial.takes_misaligned && is_local && !trial.writes_in_place) {
    check.found(CheckStatus::kWarn,
                fmt::format("{} takes O_DIRECT but also transfers that cannot be direct, so it is "
                            "buffered in disguise",
                            type),
                kCacheCost,
                type == "btrfs"
                    ? fmt::format("chattr +C {}, or mount without compression", facts.path)
                    : std::string("name a directory on ext4 or xfs"));
  } else if (trial.takes_misaligned && is_local) {
    check.found(CheckStatus::kOk,
                "written and read back; btrfs overwrites files of a store in place (chattr +C)");
  } else if (trial.offset_alignment != 0) {
    check.found(CheckStatus::kOk,
                fmt::format("written and read back, alignment {} B on the drive, {} B in memory",
                            trial.offset_alignment, trial.memory_alignment));
  } else {
    check.found(CheckStatus::kOk, "written and read back, alignment not reported (4096 B is used)");
  }
  return check;
}

Check check_space(const PlaceFacts& facts) {
  Check check{.name = "space", .path = facts.path};
  const PlaceTrial& trial = facts.trial;
  const std::uint64_t room = room_bytes(trial);
  check.data = {
      {"total_bytes", trial.total_bytes},
      {"free_bytes", trial.free_bytes},
      {"quota_bytes", trial.quota_bytes > 0 ? CheckValue(trial.quota_bytes) : CheckValue()}};
  std::string why =
      fmt::format("{} free of {}", format_bytes(trial.free_bytes), format_bytes(trial.total_bytes));
  if (room < trial.free_bytes) why += fmt::format(", the quota leaves {}", format_bytes(room));
  const std::string fix =
      fmt::format("free space (penstock clean {}), or name another drive", facts.path);
  if (trial.total_files > 0 && trial.free_files == 0) {
    check.found(CheckStatus::kFail, why + ", but no inode is free", "no file can be created",
                fmt::format("remove files: df -i {}", facts.path));
  } else if (room < kLeastFreeBytes) {
    check.found(CheckStatus::kFail, why, "no store worth a training fits", fix);
  } else if (room < kLittleFreeBytes) {
    check.found(CheckStatus::kWarn, why,
                fmt::format("a store of at most about {} fits", parameters_in(room)), fix);
  } else {
    check.found(CheckStatus::kOk,
                fmt::format("{}: stores of up to about {}", why, parameters_in(room)));
  }
  return check;
}

}  // namespace penstock
