// Method: each test builds the part of /sys and /proc that a machine with such drives has.

#include "topo/drive_identity.hpp"

#include <gtest/gtest.h>

#include "topo/fake_system.hpp"

namespace penstock {
namespace {

class DriveIdentityTest : public ::testing::Test {
 protected:
  void add_drive(const std::string& number, const std::string& place, const char* sectors) {
    system_.add_device(number, place);
    system_.write("sys/devices/" + place + "/dev", number + "\n");
    system_.write("sys/devices/" + place + "/size", std::string(sectors) + "\n");
  }
  void mount(const std::string& number, const std::string& type) {
    system_.write("proc/self/mountinfo",
                  "36 35 " + number + " / /mnt/a rw,noatime - " + type + " /dev/x rw\n");
  }
  DriveIdentity identify(DeviceNumber device) {
    return identify_drives_of(device, "/mnt/a/run1", system_.files());
  }
  testing::FakeSystem system_;
};

TEST_F(DriveIdentityTest, AnNvmeDriveHasAWorldWideName) {
  add_drive("259:0", "pci0/nvme0n1", "1000");
  system_.add_partition("259:1", "pci0/nvme0n1/nvme0n1p1");
  system_.write("sys/devices/pci0/nvme0n1/wwid", "nvme.144d-5331 \n");
  mount("259:1", "ext4");
  const DriveIdentity identity = identify({259, 1});
  EXPECT_EQ(identity.drives, std::vector<std::string>{"nvme0n1"});
  EXPECT_EQ(identity.filesystem, "ext4");
  EXPECT_EQ(identity.bytes, 512'000U);
  EXPECT_EQ(identity.id, "nvme.144d-5331:512000");
}

TEST_F(DriveIdentityTest, AScsiDriveIsNamedBelowItsDevice) {
  add_drive("8:0", "pci0/sda", "8");
  system_.write("sys/devices/pci0/sda/device/wwid", "naa.5000c500");
  EXPECT_EQ(identify({8, 0}).id, "naa.5000c500:4096");
}

// Many virtual machines give all disks the same serial number.
TEST_F(DriveIdentityTest, VirtualDrivesOfOneSerialNumberAreToldApart) {
  for (const char* name : {"vda", "vdb"}) {
    const std::string place = std::string("virtio/") + name;
    add_drive(name[2] == 'a' ? "254:0" : "254:16", place, "8");
    system_.write("sys/devices/" + place + "/serial", "disk");
  }
  EXPECT_EQ(identify({254, 0}).id, "disk@254:0:4096");
  EXPECT_EQ(identify({254, 16}).id, "disk@254:16:4096");
}

TEST_F(DriveIdentityTest, WithoutANameTheNumberAndTheSizeHaveToDo) {
  add_drive("7:1", "virtual/block/loop1", "16");
  EXPECT_EQ(identify({7, 1}).id, "7:1:8192");
}

TEST_F(DriveIdentityTest, SeveralDrivesAreAllNamed) {
  add_drive("8:0", "pci0/sda", "8");
  add_drive("8:16", "pci0/sdb", "16");
  system_.add_device("9:0", "virtual/block/md0");
  system_.put_over("virtual/block/md0", "pci0/sda");
  system_.put_over("virtual/block/md0", "pci0/sdb");
  const DriveIdentity identity = identify({9, 0});
  EXPECT_EQ(identity.id, "8:0:4096+8:16:8192");
  EXPECT_EQ(identity.bytes, 12'288U);
}

TEST_F(DriveIdentityTest, WithoutADriveTheMountStandsForIt) {
  mount("0:25", "tmpfs");
  const DriveIdentity identity = identify({0, 25});
  EXPECT_TRUE(identity.drives.empty());
  EXPECT_EQ(identity.filesystem, "tmpfs");
  EXPECT_EQ(identity.id, "tmpfs:/mnt/a");
  EXPECT_EQ(identify({0, 99}).id, "unknown:/mnt/a/run1");
}

TEST_F(DriveIdentityTest, TheRealDirectoryHasAnIdentity) {
  EXPECT_FALSE(identify_drives(".").id.empty());
}

}  // namespace
}  // namespace penstock
