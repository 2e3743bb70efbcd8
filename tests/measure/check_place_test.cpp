// Method: what a trial may find is given as facts, one after the other.

#include "measure/check_place.hpp"

#include <gtest/gtest.h>

#include <cerrno>

#include "base/units.hpp"

namespace penstock {
namespace {

constexpr uid_t kUser = 1000;

PlaceFacts good() {
  PlaceFacts facts{.path = "/mnt/a"};
  facts.user = kUser;
  PlaceTrial& trial = facts.trial;
  trial.stage = TrialStage::kDone;
  trial.is_directory = trial.is_direct = trial.is_same = true;
  trial.mode = 0700;
  trial.owner = kUser;
  trial.total_bytes = 100 * kGiB;
  trial.free_bytes = 48 * kGiB;
  trial.total_files = trial.free_files = 1000;
  trial.offset_alignment = trial.memory_alignment = 512;
  facts.mount = Mount{"ext4", "/dev/nvme0n1", "/mnt", {259, 0}};
  facts.drives = {DriveFacts{.name = "nvme0n1"}};
  return facts;
}

bool has(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

TEST(PlaceCheck, AGoodDirectoryHasNoWarning) {
  const PlaceFacts facts = good();
  EXPECT_TRUE(is_usable(facts));
  for (const Check& check : {check_directory(facts), check_filesystem(facts), check_direct(facts),
                             check_space(facts), check_drive(facts)}) {
    EXPECT_EQ(check.status, CheckStatus::kOk) << check.name << ": " << check.why;
    EXPECT_EQ(check.path, "/mnt/a");
    EXPECT_EQ(check.fix, "");
  }
}

TEST(DirectoryCheck, WhatStopsAStore) {
  struct Case {
    const char* why;
    const char* fix;
    void (*change)(PlaceTrial&);
  };
  const Case cases[] = {
      {"no process could be started", "ulimit -u",
       [](PlaceTrial& t) { t.stage = TrialStage::kNotStarted; }},
      {"no answer in 10 s to make 64 KiB durable", "umount -l /mnt",
       [](PlaceTrial& t) {
         t.stage = TrialStage::kSync;
         t.is_late = true;
       }},
      {"Permission denied", "namei -l /mnt/a",
       [](PlaceTrial& t) {
         t.stage = TrialStage::kLook;
         t.look_errno = EACCES;
       }},
      {"/mnt is mounted read-only", "sudo mount -o remount,rw /mnt",
       [](PlaceTrial& t) { t.is_read_only = true; }},
      {"Permission denied", "sudo chown 1000 /mnt/a",
       [](PlaceTrial& t) { t.create_errno = EACCES; }},
      {"No space left", "df -h /mnt/a", [](PlaceTrial& t) { t.create_errno = ENOSPC; }},
      {"Too many open files", "ulimit -n", [](PlaceTrial& t) { t.create_errno = EMFILE; }},
      {"Input/output error", "dmesg", [](PlaceTrial& t) { t.create_errno = EIO; }},
  };
  for (const Case& one : cases) {
    PlaceFacts facts = good();
    one.change(facts.trial);
    const Check check = check_directory(facts);
    EXPECT_EQ(check.status, CheckStatus::kFail) << one.why;
    EXPECT_TRUE(has(check.why, one.why)) << check.why;
    EXPECT_TRUE(has(check.fix, one.fix)) << check.fix;
  }
}

TEST(DirectoryCheck, WhatAStoreMustNotBeItself) {
  PlaceFacts facts = good();
  facts.trial.mode = 01777;
  Check check = check_directory(facts);
  EXPECT_EQ(check.status, CheckStatus::kWarn);
  EXPECT_TRUE(has(check.why, "others may write in it (mode 1777)")) << check.why;
  EXPECT_TRUE(has(check.fix, "--store /mnt/a/run1")) << check.fix;
  facts = good();
  facts.trial.owner = 0;
  EXPECT_TRUE(has(check_directory(facts).why, "belongs to user 0, not to user 1000"));
  facts = good();
  facts.trial.is_link = true;
  EXPECT_TRUE(has(check_directory(facts).why, "symbolic link"));
  EXPECT_EQ(check_directory(facts).status, CheckStatus::kWarn);
}

TEST(FilesystemCheck, EveryKind) {
  const std::pair<const char*, const char*> kinds[] = {
      {"nfs4", "network"},    {"cifs", "network"}, {"lustre", "network"},    {"tmpfs", "in memory"},
      {"fuse.sshfs", "FUSE"}, {"fuseblk", "FUSE"}, {"overlay", "container"}, {"zfs", "zfs at /mnt"},
  };
  for (const auto& [type, part] : kinds) {
    PlaceFacts facts = good();
    facts.mount->type = type;
    const Check check = check_filesystem(facts);
    EXPECT_EQ(check.status, CheckStatus::kWarn) << type;
    EXPECT_TRUE(has(check.why, part)) << check.why;
    EXPECT_FALSE(check.cost.empty());
    EXPECT_FALSE(check.fix.empty());
  }
  for (const char* type : {"xfs", "btrfs"}) {
    PlaceFacts facts = good();
    facts.mount->type = type;
    EXPECT_EQ(check_filesystem(facts).status, CheckStatus::kOk) << type;
  }
  PlaceFacts facts = good();
  facts.mount.reset();
  EXPECT_EQ(check_filesystem(facts).status, CheckStatus::kWarn);
}

TEST(DirectCheck, TransfersThatFail) {
  const std::pair<int PlaceTrial::*, const char*> steps[] = {
      {&PlaceTrial::write_errno, "writing 64 KiB failed"},
      {&PlaceTrial::sync_errno, "making 64 KiB durable failed"},
      {&PlaceTrial::read_errno, "reading 64 KiB back failed"},
  };
  for (const auto& [member, part] : steps) {
    PlaceFacts facts = good();
    facts.trial.*member = EIO;
    const Check check = check_direct(facts);
    EXPECT_EQ(check.status, CheckStatus::kFail);
    EXPECT_TRUE(has(check.why, part)) << check.why;
  }
  PlaceFacts facts = good();
  facts.trial.write_errno = EFBIG;
  EXPECT_EQ(check_direct(facts).fix, "ulimit -f unlimited");
  facts.trial.write_errno = ENOSPC;
  EXPECT_TRUE(has(check_direct(facts).fix, "df -h /mnt/a"));
  facts = good();
  facts.trial.is_same = false;
  EXPECT_EQ(check_direct(facts).status, CheckStatus::kFail);
  EXPECT_FALSE(is_usable(facts));
}

TEST(DirectCheck, WhereThePageCacheIsInBetween) {
  PlaceFacts facts = good();
  facts.trial.is_direct = false;
  EXPECT_EQ(check_direct(facts).status, CheckStatus::kWarn);
  EXPECT_TRUE(has(check_direct(facts).why, "ext4 refuses O_DIRECT"));

  facts = good();
  facts.mount->type = "btrfs";
  facts.trial.offset_alignment = 0;
  facts.trial.takes_misaligned = true;
  EXPECT_EQ(check_direct(facts).status, CheckStatus::kWarn);
  EXPECT_TRUE(has(check_direct(facts).why, "buffered in disguise"));
  EXPECT_TRUE(has(check_direct(facts).fix, "chattr +C /mnt/a"));
  facts.trial.writes_in_place = true;
  EXPECT_EQ(check_direct(facts).status, CheckStatus::kOk);
  facts.mount->type = "zfs";
  facts.trial.writes_in_place = false;
  EXPECT_TRUE(has(check_direct(facts).fix, "ext4 or xfs"));

  facts = good();  // a network has no sectors to be aligned to
  facts.mount->type = "nfs4";
  facts.drives.clear();
  facts.trial.takes_misaligned = true;
  EXPECT_EQ(check_direct(facts).status, CheckStatus::kOk);
}

TEST(DirectCheck, SaysTheAlignment) {
  PlaceFacts facts = good();
  facts.trial.offset_alignment = 4096;
  EXPECT_TRUE(has(check_direct(facts).why, "4096 B on the drive, 512 B in memory"));
  facts.trial.offset_alignment = 0;
  EXPECT_TRUE(has(check_direct(facts).why, "not reported"));
}

TEST(SpaceCheck, EveryEnd) {
  PlaceFacts facts = good();
  EXPECT_TRUE(has(check_space(facts).why, "2.15 billion parameters")) << check_space(facts).why;
  facts.trial.free_bytes = 500 * kMiB;
  EXPECT_EQ(check_space(facts).status, CheckStatus::kWarn);
  EXPECT_TRUE(has(check_space(facts).cost, "22 million parameters")) << check_space(facts).cost;
  facts.trial.free_bytes = kMiB;
  EXPECT_EQ(check_space(facts).status, CheckStatus::kFail);
  facts = good();
  facts.trial.quota_bytes = 10 * kGiB;
  facts.trial.quota_used_bytes = 11 * kGiB;
  EXPECT_EQ(check_space(facts).status, CheckStatus::kFail) << "over the quota";
  facts.trial.quota_used_bytes = 8 * kGiB;
  EXPECT_EQ(check_space(facts).status, CheckStatus::kOk);
  EXPECT_TRUE(has(check_space(facts).why, "the quota leaves 2 GiB"));
  facts = good();
  facts.trial.free_files = 0;
  EXPECT_EQ(check_space(facts).status, CheckStatus::kFail);
  facts.trial.total_files = 0;
  EXPECT_EQ(check_space(facts).status, CheckStatus::kOk) << "btrfs counts no inodes";
}

TEST(DriveCheck, EveryEnd) {
  PlaceFacts facts = good();
  facts.layers = {"partition nvme0n1p2"};
  facts.drives.front().scheduler = "none";
  EXPECT_TRUE(has(check_drive(facts).why, "I/O priorities do nothing"));
  EXPECT_TRUE(has(check_drive(facts).why, "under partition nvme0n1p2"));
  facts.drives.front().scheduler = "mq-deadline";
  EXPECT_TRUE(has(check_drive(facts).why, "I/O priorities work"));
  facts.drives.front().health = DriveHealth{1'000'000'000'000, 81};
  EXPECT_EQ(check_drive(facts).status, CheckStatus::kWarn) << "worn";
  EXPECT_TRUE(has(check_drive(facts).why, "81 % of its rated life used, 1 TB written"));
  facts.drives.front().health->percent_used = 3;
  EXPECT_EQ(check_drive(facts).status, CheckStatus::kOk);
  facts.drives = {DriveFacts{.name = "sda", .is_rotational = true}};
  EXPECT_EQ(check_drive(facts).status, CheckStatus::kWarn) << "a hard drive";
  facts.drives = {DriveFacts{.name = "vda", .is_rotational = true}};
  EXPECT_EQ(check_drive(facts).status, CheckStatus::kOk) << "a virtual one says so by default";
  facts.drives.clear();
  facts.drives_note = "/mnt/a lies on tmpfs, which has no drive of its own";
  EXPECT_EQ(check_drive(facts).status, CheckStatus::kSkip);
}

TEST(SharedDrives, CountOnce) {
  PlaceFacts a = good(), b = good(), c = good();
  b.path = "/mnt/b";
  c.path = "/mnt/c";
  c.drives = {DriveFacts{.name = "nvme1n1"}};
  EXPECT_FALSE(check_shared_drives({a}));
  EXPECT_FALSE(check_shared_drives({a, c}));
  const auto check = check_shared_drives({a, b, c});
  ASSERT_TRUE(check);
  EXPECT_EQ(check->status, CheckStatus::kWarn);
  EXPECT_EQ(check->why, "/mnt/a and /mnt/b lie on nvme0n1");
  // A volume over two drives, one of which another directory has.
  a.drives = {DriveFacts{.name = "nvme0n1"}, DriveFacts{.name = "nvme1n1"}};
  EXPECT_EQ(check_shared_drives({a, c})->why, "/mnt/a and /mnt/c lie on nvme1n1");
}

}  // namespace
}  // namespace penstock
