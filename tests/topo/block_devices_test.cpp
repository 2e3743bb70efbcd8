// Method: each test builds the part of /sys that a machine with such drives has.

#include "topo/block_devices.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "topo/fake_system.hpp"

namespace penstock {
namespace {

using Drives = std::vector<std::string>;

class BlockDevicesTest : public ::testing::Test {
 protected:
  Drives drives(DeviceNumber device) {
    auto found = drives_under(device, "/run1", system_.files());
    EXPECT_TRUE(found) << found.error().message;
    return found ? found.value() : Drives();
  }
  std::string error(DeviceNumber device) {
    const auto found = drives_under(device, "/run1", system_.files());
    if (found) return "";
    EXPECT_EQ(found.error().code, Errc::kUnsupported);
    return found.error().message;
  }
  testing::FakeSystem system_;
};

TEST_F(BlockDevicesTest, APartitionStandsForItsDrive) {
  system_.add_device("259:0", "pci0/nvme0n1");
  system_.add_partition("259:2", "pci0/nvme0n1/nvme0n1p2");
  EXPECT_EQ(drives({259, 0}), Drives({"nvme0n1"}));
  EXPECT_EQ(drives({259, 2}), Drives({"nvme0n1"}));
}

// Encrypted volumes of a volume group on a RAID of two partitions, one of them used twice.
TEST_F(BlockDevicesTest, LayersStandForTheDrivesUnderThem) {
  for (const char* drive : {"a", "b"}) {
    const std::string name = std::string("sd") + drive;
    system_.add_device(drive[0] == 'a' ? "8:0" : "8:16", "pci0/" + name);
    system_.add_partition(drive[0] == 'a' ? "8:1" : "8:17", "pci0/" + name + "/" + name + "1");
  }
  system_.add_device("9:0", "virtual/block/md0");
  system_.add_device("253:0", "virtual/block/dm-0");
  system_.add_device("253:1", "virtual/block/dm-1");
  system_.put_over("virtual/block/md0", "pci0/sda/sda1");
  system_.put_over("virtual/block/md0", "pci0/sdb/sdb1");
  system_.put_over("virtual/block/dm-0", "virtual/block/md0");
  system_.put_over("virtual/block/dm-0", "pci0/sdb/sdb1");
  system_.put_over("virtual/block/dm-1", "virtual/block/dm-0");
  EXPECT_EQ(drives({9, 0}), Drives({"sda", "sdb"}));
  EXPECT_EQ(drives({253, 1}), Drives({"sda", "sdb"}));
}

TEST_F(BlockDevicesTest, ACircleOfLayersEnds) {
  system_.add_device("253:0", "virtual/block/dm-0");
  system_.add_device("253:1", "virtual/block/dm-1");
  system_.put_over("virtual/block/dm-0", "virtual/block/dm-1");
  system_.put_over("virtual/block/dm-1", "virtual/block/dm-0");
  EXPECT_NE(error({253, 0}).find("is not known"), std::string::npos);
}

// Such a file system has a device number of its own; the mount says which device it is on.
TEST_F(BlockDevicesTest, FindsTheDriveOfAFileSystemByItsMount) {
  system_.add_device("259:0", "pci0/nvme0n1");
  system_.add_partition("259:2", "pci0/nvme0n1/nvme0n1p2");
  system_.add_device("259:5", "pci1/nvme1n1");
  system_.write("proc/self/mountinfo",
                "22 1 0:21 / /proc rw - proc proc rw\n"
                "30 1 0:30 /@ /data rw,noatime shared:1 - btrfs /dev/mapper/data rw,ssd\n");
  system_.link("dev/mapper/data", "dev/nvme0n1p2");
  EXPECT_EQ(drives({0, 30}), Drives({"nvme0n1"}));
  // Over two devices: both.
  system_.link("sys/fs/btrfs/1234/devices/nvme0n1p2", "sys/devices/pci0/nvme0n1/nvme0n1p2");
  system_.link("sys/fs/btrfs/1234/devices/nvme1n1", "sys/devices/pci1/nvme1n1");
  system_.write("sys/fs/btrfs/features/raid56", "0\n");
  EXPECT_EQ(drives({0, 30}), Drives({"nvme0n1", "nvme1n1"}));
}

// /proc has an anonymous number, as a subvolume has.
TEST_F(BlockDevicesTest, ASubvolumeIsOnTheDriveOfItsFilesystem) {
  struct statx facts {};
  ASSERT_EQ(::statx(AT_FDCWD, "/proc", 0, STATX_MNT_ID, &facts), 0);
  if ((facts.stx_mask & STATX_MNT_ID) == 0) GTEST_SKIP() << "needs Linux 5.8 or newer";
  system_.write("proc/self/mountinfo",
                fmt::format("{} 1 0:99 /data /mnt rw - btrfs /dev/vdb rw\n", facts.stx_mnt_id));
  system_.add_device("254:16", "virtual/vdb");
  const auto device = device_of("/proc", system_.files());
  ASSERT_TRUE(device);
  EXPECT_EQ(device.value().major, 0U);
  EXPECT_EQ(device.value().minor, 99U);
  const auto drives = drives_under(device.value(), "/proc", system_.files());
  ASSERT_TRUE(drives) << drives.error().message;
  EXPECT_EQ(drives.value(), std::vector<std::string>{"vdb"});
}

TEST_F(BlockDevicesTest, SaysWhereThereIsNoDrive) {
  system_.write("proc/self/mountinfo",
                "nonsense\n31 1 0:40 / /dev/shm rw - tmpfs tmpfs rw\n"
                "32 1 0:41 / / rw - overlay overlay rw,lowerdir=/dev/sda\n");
  EXPECT_EQ(error({0, 40}), "/run1 lies on tmpfs, which has no drive of its own");
  EXPECT_EQ(error({0, 41}), "/run1 lies on overlay, which has no drive of its own");
  EXPECT_NE(error({0, 42}).find("the drive of /run1 is not known"), std::string::npos);
  EXPECT_NE(error({8, 1}).find("does not show device 8:1"), std::string::npos);
}

TEST_F(BlockDevicesTest, ReportsADirectoryThatIsNotThere) {
  EXPECT_TRUE(device_of("/"));
  const auto missing = device_of("/nonexistent/run1");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Errc::kIo);
}

}  // namespace
}  // namespace penstock
