// Method: each test builds the part of /sys and /proc that a machine with such drives has.

#include "measure/drive_facts.hpp"

#include <gtest/gtest.h>

#include "topo/fake_system.hpp"

namespace penstock {
namespace {

constexpr const char* kMounts =
    "nonsense\n"
    "22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n"
    "30 22 0:40 / /mnt/my\\040data rw - nfs4 server:/export\\134x rw,vers=4.2\n"
    "31 22 0:41 /@home /home rw - btrfs /dev/mapper/vg-home rw\n"
    "32 22 259:2 /srv /srv rw - ext4 /dev/nvme0n1p2 rw\n";

TEST(FindMount, TakesTheIdAndElseTheDevice) {
  const testing::FakeSystem system;
  EXPECT_FALSE(find_mount(22, {259, 2}, system.files())) << "no mountinfo";
  system.write("proc/self/mountinfo", kMounts);
  auto mount = find_mount(30, {0, 99}, system.files());
  ASSERT_TRUE(mount);
  EXPECT_EQ(mount->type, "nfs4");
  EXPECT_EQ(mount->point, "/mnt/my data");
  EXPECT_EQ(mount->source, "server:/export\\x");
  mount = find_mount(31, {0, 99}, system.files());
  ASSERT_TRUE(mount);
  EXPECT_EQ(mount->device.minor, 41U) << "of the mount, not of the subvolume";
  mount = find_mount(0, {259, 2}, system.files());
  ASSERT_TRUE(mount);
  EXPECT_EQ(mount->point, "/srv") << "the last one";
  EXPECT_FALSE(find_mount(99, {259, 2}, system.files()));
}

TEST(LayersUnder, NamesThemFromTheTop) {
  const testing::FakeSystem system;
  system.add_device("8:0", "pci0/sda");
  system.add_partition("8:1", "pci0/sda/sda1");
  system.add_device("9:0", "virtual/block/md0");
  system.add_device("253:0", "virtual/block/dm-0");
  system.add_device("253:1", "virtual/block/dm-1");
  system.add_device("7:0", "virtual/block/loop0");
  system.write("sys/devices/virtual/block/dm-0/dm/name", "luks\n");
  system.write("sys/devices/virtual/block/dm-0/dm/uuid", "CRYPT-LUKS2-abc\n");
  system.write("sys/devices/virtual/block/dm-1/dm/name", "vg-home\n");
  system.write("sys/devices/virtual/block/dm-1/dm/uuid", "LVM-xyz\n");
  system.write("sys/devices/virtual/block/md0/md/level", "raid0\n");
  system.write("sys/devices/virtual/block/loop0/loop/backing_file", "/var/disk.img\n");
  system.put_over("virtual/block/dm-1", "virtual/block/dm-0");
  system.put_over("virtual/block/dm-0", "virtual/block/md0");
  system.put_over("virtual/block/md0", "pci0/sda/sda1");
  system.link("dev/mapper/vg-home", "dev/dm-1");
  const auto layers = [&](const char* source, DeviceNumber device) {
    return layers_under({"ext4", source, "/", device}, system.files());
  };
  using Words = std::vector<std::string>;
  EXPECT_EQ(layers("/dev/mapper/vg-home", {253, 1}),
            Words({"logical volume vg-home", "encrypted volume luks", "RAID raid0 md0",
                   "partition sda1"}));
  EXPECT_EQ(layers("/dev/mapper/vg-home", {0, 41}).size(), 4U) << "by its source";
  EXPECT_EQ(layers("/dev/loop0", {7, 0}), Words({"loop device loop0 on /var/disk.img"}));
  EXPECT_EQ(layers("/dev/sda", {8, 0}), Words());
  EXPECT_EQ(layers("server:/export", {0, 40}), Words());
  // A circle ends.
  system.put_over("pci0/sda", "virtual/block/dm-1");
  EXPECT_LE(layers("/dev/sda", {8, 0}).size(), 16U);
}

WearSources sources(const testing::FakeSystem& system) {
  return {system.files(), [](const std::string&) -> Result<std::vector<std::byte>> {
            std::vector<std::byte> page(kSmartPageBytes);
            page[5] = std::byte{7};
            return page;
          }};
}

TEST(DriveFactsTest, ReadsTheQueueAndTheHealth) {
  const testing::FakeSystem system;
  system.add_device("259:0", "pci0/nvme0n1");
  const std::string place = "sys/devices/pci0/nvme0n1/";
  system.write(place + "device/model", "A drive of 2 TB                \n");
  system.write(place + "queue/rotational", "0\n");
  system.write(place + "queue/scheduler", "none [mq-deadline] kyber \n");
  system.write(place + "queue/logical_block_size", "512\n");
  system.write(place + "queue/physical_block_size", "4096\n");
  const DriveFacts facts = read_drive_facts("nvme0n1", sources(system));
  EXPECT_EQ(facts.model, "A drive of 2 TB");
  EXPECT_EQ(facts.scheduler, "mq-deadline");
  EXPECT_EQ(facts.is_rotational, false);
  EXPECT_EQ(facts.sector_bytes, 512U);
  EXPECT_EQ(facts.physical_sector_bytes, 4096U);
  ASSERT_TRUE(facts.health);
  EXPECT_EQ(facts.health->percent_used, 7U);
}

TEST(DriveFactsTest, WhatCannotBeReadIsEmpty) {
  const testing::FakeSystem system;
  DriveFacts facts = read_drive_facts("sdx", sources(system));
  EXPECT_EQ(facts.scheduler, "");
  EXPECT_FALSE(facts.is_rotational);
  EXPECT_FALSE(facts.health) << "no NVMe drive";
  system.add_device("8:0", "pci0/sda");
  system.write("sys/devices/pci0/sda/queue/scheduler", "none\n");
  system.write("sys/devices/pci0/sda/queue/rotational", "1\n");
  facts = read_drive_facts("sda", sources(system));
  EXPECT_EQ(facts.scheduler, "none");
  EXPECT_EQ(facts.is_rotational, true);
  WearSources denied = sources(system);
  denied.smart_page = [](const std::string&) -> Result<std::vector<std::byte>> {
    return make_error(Errc::kIo, "not permitted");
  };
  EXPECT_EQ(read_drive_facts("nvme7n1", denied).health_note, "not permitted");
}

}  // namespace
}  // namespace penstock
