#include "base/units.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace penstock {
namespace {

TEST(ParseBytesTest, KeepsPowersOf1000And1024Apart) {
  const std::pair<const char*, std::uint64_t> table[] = {
      {"0", 0},
      {"4096", 4096},
      {"17B", 17},
      {"60MiB", 60 * kMiB},
      {"60MB", 60'000'000},
      {"1.5GB", 1'500'000'000},
      {"1.5GiB", 1'610'612'736},
      {"64GiB", 64 * kGiB},
      {"64 GiB", 64 * kGiB},
      {"  64gib ", 64 * kGiB},
      {"1kB", 1000},
      {"1KB", 1000},
      {"1KiB", 1024},
      {"2TB", 2'000'000'000'000},
      {"2TiB", 2 * kTiB},
      {"3PB", 3'000'000'000'000'000},
      {"1PiB", 1024 * kTiB},
      {"0.1GB", 100'000'000},             // exact, though 0.1 is no binary fraction
      {"0.3 GiB", 322'122'547},           // 322122547.2
      {"1.0000000005GB", 1'000'000'000},  // half a byte is dropped
      {"16383PiB", 16383 * 1024 * kTiB},
      {"18446744073709551615", std::numeric_limits<std::uint64_t>::max()},
      {"007", 7},
  };
  for (const auto& [text, expected] : table) {
    const Result<std::uint64_t> result = parse_bytes(text);
    ASSERT_TRUE(result.ok()) << text << ": " << result.error().message;
    EXPECT_EQ(result.value(), expected) << text;
  }
}

TEST(ParseBytesTest, RefusesWhatItCannotMeanAndSaysWhy) {
  const std::pair<const char*, const char*> table[] = {
      {"", "empty"},
      {"   ", "empty"},
      {"-1", "negative"},
      {"-1GiB", "negative"},
      {"GiB", "does not start with a digit"},
      {".5GiB", "does not start with a digit"},
      {"+5", "does not start with a digit"},
      {"nan", "does not start with a digit"},
      {"1.", "no digit follows the point"},
      {"1.GB", "no digit follows the point"},
      {"1.5.5GB", "unknown unit \".5GB\""},
      {"64G", "unknown unit \"G\""},
      {"64Gi", "unknown unit \"Gi\""},
      {"64GiBs", "unknown unit \"GiBs\""},
      {"1e9", "unknown unit \"e9\""},
      {"0x10", "unknown unit \"x10\""},
      {"1 2GiB", "unknown unit \"2GiB\""},
      {"1,5GB", "unknown unit \",5GB\""},
      {"18446744073709551616", "64 bits"},
      {"99999999999999999999999999999999999999999999", "64 bits"},
      {"16384PiB", "64 bits"},
      {"18447PB", "64 bits"},
      {"1.0000000000000000001GB", "18 decimals"},
  };
  for (const auto& [text, why] : table) {
    const Result<std::uint64_t> result = parse_bytes(text);
    ASSERT_FALSE(result.ok()) << '"' << text << "\" gave " << result.value();
    EXPECT_EQ(result.error().code, Errc::kArgument) << text;
    EXPECT_NE(result.error().message.find(why), std::string::npos)
        << '"' << text << "\": " << result.error().message;
  }
  EXPECT_NE(parse_bytes("64G").error().message.find("64GiB"), std::string::npos)
      << "a refusal shows how to write it";
}

TEST(FormatBytesTest, PicksTheLargestUnitThatLeavesOne) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1 KiB");
  EXPECT_EQ(format_bytes(4096), "4 KiB");
  EXPECT_EQ(format_bytes(1536 * kMiB), "1.5 GiB");
  EXPECT_EQ(format_bytes(100 * kGiB), "100 GiB");
  EXPECT_EQ(format_bytes(kTiB - 1), "1 TiB") << "not 1024 GiB";
  EXPECT_EQ(format_bytes(std::numeric_limits<std::uint64_t>::max()), "16 EiB");
}

TEST(FormatBytesTest, IsReadBackByParseBytes) {
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1000}, kKiB, 3 * kMiB / 2,
                                    60 * kMiB, 64 * kGiB, 5 * kTiB}) {
    const Result<std::uint64_t> result = parse_bytes(format_bytes(bytes));
    ASSERT_TRUE(result.ok()) << format_bytes(bytes);
    // Three decimals: within half a thousandth of the unit.
    EXPECT_NEAR(static_cast<double>(result.value()), static_cast<double>(bytes),
                static_cast<double>(bytes) * 0.0005);
  }
}

TEST(FormatRateTest, IsDecimal) {
  EXPECT_EQ(format_rate(3.2e9), "3.2 GB/s");
  EXPECT_EQ(format_drive_bytes(0), "0 B");
  EXPECT_EQ(format_drive_bytes(84'000'000'000), "84 GB");
  EXPECT_EQ(format_drive_bytes(~std::uint64_t{0}), "18.447 EB");
  EXPECT_EQ(format_rate(0), "0 B/s");
  EXPECT_EQ(format_rate(999.9999e6), "1 GB/s");
  EXPECT_EQ(format_rate(12345e12), "12345 TB/s");
  EXPECT_EQ(format_rate(-1), "unknown rate");
  EXPECT_EQ(format_rate(std::numeric_limits<double>::quiet_NaN()), "unknown rate");
}

}  // namespace
}  // namespace penstock
