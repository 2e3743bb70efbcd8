// Method: what is written is read back; then every prefix, changed bytes and noise are read.

#include "topo/drive_profile.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "base/random.hpp"
#include "topo/sample_profile.hpp"

namespace penstock {
namespace {

using testing::sample_profile;

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

void expect_same(const DriveProfile& a, const DriveProfile& b) {
  EXPECT_EQ(a.device, b.device);
  EXPECT_EQ(a.filesystem, b.filesystem);
  EXPECT_EQ(a.path, b.path);
  EXPECT_EQ(a.version, b.version);
  EXPECT_EQ(a.unix_seconds, b.unix_seconds);
  EXPECT_EQ(a.tuning, b.tuning);
  EXPECT_EQ(a.by_default.read, b.by_default.read);
  EXPECT_EQ(a.by_default.mixed, b.by_default.mixed);
  EXPECT_EQ(a.tuned.read, b.tuned.read);
  EXPECT_EQ(a.tuned.mixed, b.tuned.mixed);
}

TEST(DriveProfile, IsReadAsItWasWritten) {
  DriveProfile plain = sample_profile("8:0:4096");
  plain.tuning = {};
  const auto read = parse_profiles(format_profiles({sample_profile(), plain}));
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read.value().size(), 2U);
  expect_same(read.value()[0], sample_profile());
  expect_same(read.value()[1], plain);
}

// A path is bytes, and need not be text.
TEST(DriveProfile, EveryByteOfAPathIsKept) {
  DriveProfile odd = sample_profile();
  odd.path.clear();
  for (int byte = 255; byte > 0; --byte) odd.path += static_cast<char>(byte);
  const std::string text = format_profiles({odd});
  EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; }));
  const auto read = parse_profiles(text);
  ASSERT_TRUE(read) << read.error().message;
  expect_same(read.value()[0], odd);
}

TEST(DriveProfile, WhatIsBeyondASCIIHasToBeEscaped) {
  const auto read = parse_profiles(
      replaced(format_profiles({sample_profile()}), "[[drive]]", "# \xEF\xAC\x80\n[[drive]]"));
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().message.find("line 5: has a byte beyond ASCII"), std::string::npos)
      << read.error().message;
}

TEST(DriveProfile, IsOfItsDeviceAndFilesystemOnly) {
  const DriveProfile profile = sample_profile();
  DriveIdentity drive;
  drive.id = profile.device;
  drive.filesystem = profile.filesystem;
  EXPECT_TRUE(profile.is_of(drive));
  drive.filesystem = "xfs";
  EXPECT_FALSE(profile.is_of(drive));
  drive.filesystem = profile.filesystem;
  drive.id += "0";
  EXPECT_FALSE(profile.is_of(drive));
}

TEST(DriveProfile, OneThatWasCutAnywhereIsDamaged) {
  const std::string text = format_profiles({sample_profile()});
  for (std::size_t length = 0; length < text.size(); ++length) {
    const auto read = parse_profiles(text.substr(0, length));
    ASSERT_FALSE(read) << length;
    EXPECT_EQ(read.error().code, Errc::kCorrupt) << length;
    EXPECT_FALSE(read.error().message.empty());
  }
}

// A changed digit may be another allowed value; what is accepted is within the limits all the same.
TEST(DriveProfile, ChangedBytesGiveNoSettingBeyondTheLimits) {
  constexpr std::uint64_t kSeed = 7;
  const std::string text = format_profiles({sample_profile()});
  std::size_t refused = 0;
  for (std::uint64_t round = 0; round < 20'000; ++round) {
    std::string changed = text;
    for (std::uint64_t i = 0; i <= round % 3; ++i) {
      changed[mix64(kSeed, round, 2 * i) % text.size()] =
          static_cast<char>(mix64(kSeed, round, 2 * i + 1));
    }
    const auto read = parse_profiles(changed);
    refused += read ? 0 : 1;
    if (!read) continue;
    for (const DriveProfile& profile : read.value()) {
      const QueueTuning& tuning = profile.tuning;
      const auto fits = [](std::uint32_t value, std::uint32_t least, std::uint32_t most) {
        return value == 0 || (value >= least && value <= most && std::has_single_bit(value));
      };
      ASSERT_TRUE(fits(tuning.piece_bytes, kLeastProfilePiece, kMostProfilePiece)) << changed;
      ASSERT_TRUE(fits(tuning.read_credit_bytes, kLeastProfileCredit, kMostProfileCredit));
      ASSERT_TRUE(fits(tuning.write_credit_bytes, kLeastProfileCredit, kMostProfileCredit));
    }
  }
  EXPECT_GT(refused, 5'000U) << "seed " << kSeed;
}

TEST(DriveProfile, NoiseIsRefused) {
  constexpr std::uint64_t kSeed = 11;
  for (std::uint64_t round = 0; round < 2'000; ++round) {
    std::string noise(mix64(kSeed, round, 0) % 200, '\0');
    for (std::size_t i = 0; i < noise.size(); ++i) {
      noise[i] = static_cast<char>(mix64(kSeed, round, i + 1));
    }
    EXPECT_FALSE(parse_profiles(noise)) << "seed " << kSeed << " round " << round;
  }
}

TEST(DriveProfile, AnotherVersionIsNoDamage) {
  const auto read =
      parse_profiles(replaced(format_profiles({sample_profile()}), "profile/1", "profile/2"));
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Errc::kUnsupported);
  EXPECT_NE(read.error().message.find("penstock.profile/2"), std::string::npos);
}

TEST(DriveProfile, WhatIsWrongIsNamedWithItsLine) {
  const std::string text = format_profiles({sample_profile()});
  const struct {
    const char *from, *to, *said;
  } cases[] = {{"piece_bytes = 524288", "piece_bytes = 524289", "not a power of two"},
               {"piece_bytes = 524288", "piece_bytes = 4194304", "not a power of two"},
               {"piece_bytes = 524288", "piece_bytes = -1", "line 12: piece_bytes has no value"},
               {"piece_bytes = 524288", "piece_bytes = true", "line 12: piece_bytes has no value"},
               {"\"threads\"", "\"fibres\"", "neither auto nor threads"},
               {"filesystem", "file_system", "has no filesystem"},
               {"2026-01-31", "2026-02-31", "line 10: "},
               {"00Z", "00+01:00", "line 10: measured has no value"},
               {"filesystem = \"ext4\"", "device = \"x\"", "line 7: "},
               {"[[drive]]", "[drive]", "line 5: drive is no list"}};
  for (const auto& one : cases) {
    const auto read = parse_profiles(replaced(text, one.from, one.to));
    ASSERT_FALSE(read) << one.to;
    EXPECT_NE(read.error().message.find(one.said), std::string::npos) << read.error().message;
  }
}

TEST(DriveProfile, CommentsBlanksAndUnknownKeysArePassedOver) {
  const std::string text =
      replaced(replaced(format_profiles({sample_profile()}), "filesystem = ",
                        "\t# a comment\r\n\ncolour = \"red\" # of the drive\nfilesystem\t=  "),
               "524288", "524288 # half a MiB");
  const auto read = parse_profiles(text);
  ASSERT_TRUE(read) << read.error().message;
  expect_same(read.value().front(), sample_profile());
}

TEST(DriveProfile, SettingsAreSaidInWords) {
  EXPECT_EQ(words_of(QueueTuning{}), "the defaults");
  EXPECT_EQ(words_of(QueueTuning{.piece_bytes = 1U << 21, .write_credit_bytes = 1U << 23}),
            "pieces of 2 MiB, 8 MiB of writes in flight");
}

}  // namespace
}  // namespace penstock
