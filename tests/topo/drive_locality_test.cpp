#include "topo/drive_locality.hpp"

#include <gtest/gtest.h>

#include "topo/fake_system.hpp"

namespace penstock::testing {
namespace {

TEST(DriveLocalityTest, PartitionsOfADriveAreOneDrive) {
  const FakeSystem system;
  system.add_device("259:0", "pci0000:00/0000:00:04.0/nvme/nvme0/nvme0n1");
  system.add_partition("259:1", "pci0000:00/0000:00:04.0/nvme/nvme0/nvme0n1/nvme0n1p1");
  system.add_partition("259:2", "pci0000:00/0000:00:04.0/nvme/nvme0/nvme0n1/nvme0n1p2");
  system.add_device("259:3", "pci0000:80/0000:80:04.0/nvme/nvme1/nvme1n1");
  const SystemFiles files = system.files();
  const std::uint64_t first = drive_number({259, 1}, files);
  EXPECT_EQ(drive_number({259, 2}, files), first);
  EXPECT_EQ(drive_number({259, 0}, files), first);
  EXPECT_NE(drive_number({259, 3}, files), first);
  // Unknown to /sys: each a drive of its own, and always the same.
  EXPECT_NE(drive_number({0, 40}, files), drive_number({0, 41}, files));
  EXPECT_EQ(drive_number({0, 40}, files), drive_number({0, 40}, files));
}

TEST(DriveLocalityTest, TheNodeIsThatOfTheBusDevice) {
  const FakeSystem system;
  system.add_device("259:0", "pci0000:00/0000:00:04.0/nvme/nvme0/nvme0n1");
  system.write("sys/devices/pci0000:00/0000:00:04.0/numa_node", "1\n");
  system.add_device("8:0", "pci0000:00/0000:00:05.0/ata1/sda");
  system.write("sys/devices/pci0000:00/0000:00:05.0/numa_node", "-1\n");
  const SystemFiles files = system.files();
  EXPECT_EQ(numa_node_of({259, 0}, files), 1);
  EXPECT_EQ(numa_node_of({8, 0}, files), -1) << "the machine does not say";
  EXPECT_EQ(numa_node_of({7, 0}, files), -1);
}

TEST(DriveLocalityTest, ReadsListsOfCpus) {
  EXPECT_EQ(cpu_numbers("0-3,8"), (std::vector<int>{0, 1, 2, 3, 8}));
  EXPECT_EQ(cpu_numbers("5"), (std::vector<int>{5}));
  for (const char* wrong : {"", "a", "3-1", "1-", "-1", "1;2", "0-99999999"}) {
    EXPECT_TRUE(cpu_numbers(wrong).empty()) << wrong;
  }
}

}  // namespace
}  // namespace penstock::testing
