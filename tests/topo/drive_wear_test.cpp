// Method: counters as the kernel and an NVMe drive lay them out, in files and pages of the test's
// own; each part of them is then broken.

#include "topo/drive_wear.hpp"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "topo/fake_system.hpp"

namespace penstock {
namespace {

constexpr const char* kDiskstats =
    " 259       0 nvme0n1 310178 85721 206780834 225280 222116 86057 2000 147425 0 77688 382608 0 "
    "0 0 0 0 0\n"
    " 259       1 nvme0n1p1 1 2 3 4 5 6 7 8 9 10 11\n"
    "   8       0 sda 1 2 3 4 5 6 18446744073709551615 8 9 10 11\n"
    "   8      16 sdb 1 2 3 4 5 6\n"
    "   8      32 sdc 1 2 3 4 5 6 -7 8 9 10 11\n"
    "\n";

TEST(DriveCountersTest, ReadsSectorsWritten) {
  EXPECT_EQ(written_bytes_of(kDiskstats, "nvme0n1").value(), 2000U * 512);
  EXPECT_EQ(written_bytes_of(kDiskstats, "nvme0n1p1").value(), 7U * 512) << "of an old kernel";
}

TEST(DriveCountersTest, RefusesWhatIsNotAsExpected) {
  const auto code = [](std::string_view text, const char* device) {
    const auto bytes = written_bytes_of(text, device);
    return bytes ? Errc::kOk : bytes.error().code;
  };
  EXPECT_EQ(code(kDiskstats, "nvme1n1"), Errc::kUnsupported);
  EXPECT_EQ(code("", "sda"), Errc::kUnsupported);
  EXPECT_EQ(code(kDiskstats, "sda"), Errc::kCorrupt) << "more bytes than 64 bits hold";
  EXPECT_EQ(code(kDiskstats, "sdb"), Errc::kCorrupt) << "too few numbers";
  EXPECT_EQ(code(kDiskstats, "sdc"), Errc::kCorrupt) << "negative";
  EXPECT_EQ(code("8 0 sda 1 2 3 4 5 6 7x 8 9 10 11", "sda"), Errc::kCorrupt);
}

std::vector<std::byte> smart_page(std::uint8_t percent_used, std::uint64_t units) {
  std::vector<std::byte> page(kSmartPageBytes, std::byte{0xAA});
  page[5] = std::byte{percent_used};
  for (std::size_t i = 0; i < 16; ++i) {
    page[48 + i] = i < 8 ? static_cast<std::byte>(units >> (8 * i)) : std::byte{0};
  }
  return page;
}

TEST(DriveCountersTest, DecodesASmartPage) {
  const auto health = decode_smart_page(smart_page(103, 0x0102030405));
  ASSERT_TRUE(health);
  EXPECT_EQ(health.value().percent_used, 103U);
  EXPECT_EQ(health.value().written_bytes, 0x0102030405U * 512'000);
}

TEST(DriveCountersTest, KeepsHugeCountsWithin64Bits) {
  EXPECT_EQ(decode_smart_page(smart_page(0, ~std::uint64_t{0})).value().written_bytes,
            ~std::uint64_t{0});
  auto page = smart_page(0, 1);
  page[63] = std::byte{1};
  EXPECT_EQ(decode_smart_page(page).value().written_bytes, ~std::uint64_t{0});
  page.pop_back();
  EXPECT_EQ(decode_smart_page(page).error().code, Errc::kCorrupt);
}

TEST(DriveCountersTest, SaysWhyASmartPageCannotBeRead) {
  const testing::FakeSystem system;
  system.write("dev/nvme0n1", "no drive");
  const std::string path = (system.files().dev / "nvme0n1").string();
  EXPECT_EQ(read_smart_page(path).error().code, Errc::kUnsupported);
  const auto missing = read_smart_page(path + "x");
  EXPECT_EQ(missing.error().code, Errc::kIo);
  EXPECT_NE(missing.error().message.find("No such file"), std::string::npos);
}

/// The directory `store` is on nvme0n1, and what the drive counts can be set.
class WearMeterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const DeviceNumber device = device_of(store_.path()).value();
    system_.add_device(fmt::format("{}:{}", device.major, device.minor), "pci0/nvme0n1");
    count(1000);
  }
  void count(std::uint64_t sectors) {
    system_.write("proc/diskstats",
                  fmt::format("259 0 nvme0n1 1 2 3 4 5 6 {} 8 9 10 11\n", sectors));
  }
  [[nodiscard]] WearSources sources() const {
    return {system_.files(), [](const std::string& path) -> Result<std::vector<std::byte>> {
              EXPECT_TRUE(path.ends_with("/dev/nvme0n1")) << path;
              return smart_page(4, 24'000'000);
            }};
  }
  testing::FakeSystem system_;
  testing::TemporaryDirectory store_;
};

TEST_F(WearMeterTest, CountsFromItsBeginning) {
  const WearMeter meter({store_.path(), store_.path()}, sources());
  count(1300);
  const WearReport report = meter.read({100, 60});
  ASSERT_EQ(report.drives.size(), 1U) << "two directories, one drive";
  EXPECT_EQ(report.drives[0].drive, "nvme0n1");
  EXPECT_EQ(report.drives[0].bytes, 300U * 512);
  EXPECT_EQ(report.drives[0].ours, 160U);
  ASSERT_TRUE(report.drives[0].health);
  EXPECT_EQ(report.drives[0].health->written_bytes, 12'288'000'000'000U);
  EXPECT_TRUE(report.drives[0].notes.empty());
  EXPECT_TRUE(report.notes.empty());
}

TEST_F(WearMeterTest, SaysWhatIsMissing) {
  WearSources broken = sources();
  broken.smart_page = [](const std::string&) -> Result<std::vector<std::byte>> {
    return make_error(Errc::kIo, "not permitted");
  };
  const WearMeter meter({store_.path(), "/nonexistent/run1"}, broken);
  count(999);  // as after the drive was taken out and put in
  WearReport report = meter.read({});
  ASSERT_EQ(report.drives.size(), 1U);
  EXPECT_FALSE(report.drives[0].bytes);
  EXPECT_FALSE(report.drives[0].health);
  EXPECT_EQ(
      report.drives[0].notes,
      (std::vector<std::string>{"the system began to count anew for nvme0n1", "not permitted"}));
  ASSERT_EQ(report.notes.size(), 1U);
  EXPECT_NE(report.notes[0].find("/nonexistent/run1"), std::string::npos);
  std::filesystem::remove(system_.files().proc / "diskstats");
  report = meter.read({});
  EXPECT_NE(report.drives[0].notes[0].find("diskstats cannot be read"), std::string::npos);
}

// How a volume deals its bytes over drives is not known, so nothing is said of one of them.
TEST_F(WearMeterTest, LeavesOutOursWhereADirectoryLiesOnSeveralDrives) {
  system_.add_device("8:0", "pci1/sda");
  system_.add_device("8:16", "pci1/sdb");
  system_.put_over("pci0/nvme0n1", "pci1/sda");
  system_.put_over("pci0/nvme0n1", "pci1/sdb");
  const WearReport report = WearMeter({store_.path()}, sources()).read({100});
  ASSERT_EQ(report.drives.size(), 2U);
  EXPECT_FALSE(report.drives[0].ours);
  EXPECT_FALSE(report.drives[1].ours);
}

TEST_F(WearMeterTest, NoDriveIsSaidSo) {
  std::filesystem::remove_all(system_.files().sys);
  const WearReport report = WearMeter({store_.path()}, sources()).read({});
  EXPECT_TRUE(report.drives.empty());
  ASSERT_EQ(report.notes.size(), 1U);
  EXPECT_NE(report.notes[0].find("is not known"), std::string::npos);
}

TEST_F(WearMeterTest, LivesAreReadWithoutCounting) {
  const WearReport report = drive_lives({store_.path()}, sources());
  ASSERT_EQ(report.drives.size(), 1U);
  EXPECT_FALSE(report.drives[0].bytes);
  EXPECT_EQ(report.drives[0].health->percent_used, 4U);
}

}  // namespace
}  // namespace penstock
