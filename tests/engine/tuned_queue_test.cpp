// Method: a machine with drives of the test's own under /sys, and a profile file beside it.

#include "engine/tuned_queue.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "temporary_directory.hpp"
#include "topo/fake_system.hpp"
#include "topo/sample_profile.hpp"

namespace penstock {
namespace {

using testing::sample_profile;

class TunedQueue : public ::testing::Test {
 protected:
  TunedQueue()
      : logger_(LogLevel::kTrace, [this](LogLevel level, const char*, int, std::string_view text) {
          messages_.emplace_back(level, std::string(text));
        }) {}

  /// The drive of the test's directory, as this machine has it.
  [[nodiscard]] DriveProfile profile_here() const {
    const DriveIdentity drive = identify_drives(directory_.path());
    DriveProfile profile = sample_profile(drive.id);
    profile.filesystem = drive.filesystem;
    return profile;
  }
  void write(const std::vector<DriveProfile>& profiles) const {
    const auto written = write_profiles(place_, profiles);
    EXPECT_TRUE(written) << written.error().message;
  }
  std::string tune(QueueOptions& options, std::vector<std::string> more = {}) {
    more.insert(more.begin(), directory_.path() + "/not/there/yet");
    return tune_queue(options, more, place_, logger_);
  }
  [[nodiscard]] std::size_t count(LogLevel level) const {
    return static_cast<std::size_t>(std::count_if(messages_.begin(), messages_.end(),
                                                  [&](const auto& m) { return m.first == level; }));
  }
  static bool is_default(const QueueOptions& options) {
    const QueueOptions usual;
    return options.backend == usual.backend && options.piece_bytes == usual.piece_bytes &&
           options.read_credit_bytes == usual.read_credit_bytes &&
           options.write_credit_bytes == usual.write_credit_bytes &&
           options.register_memory == usual.register_memory;
  }

  testing::TemporaryDirectory directory_;
  ProfilePlace place_{directory_.path() + "/profile.toml"};
  std::vector<std::pair<LogLevel, std::string>> messages_;
  Logger logger_;
};

TEST_F(TunedQueue, TheProfileOfTheDriveIsUsedAndNamedInTheLog) {
  write({sample_profile("another"), profile_here()});
  QueueOptions options;
  EXPECT_EQ(tune(options), place_.file);
  EXPECT_EQ(options.backend, QueueBackend::kThreads);
  EXPECT_EQ(options.piece_bytes, 1U << 19);
  EXPECT_EQ(options.read_credit_bytes, 1U << 24);
  EXPECT_EQ(options.write_credit_bytes, 1U << 23);
  EXPECT_FALSE(options.register_memory);
  ASSERT_EQ(count(LogLevel::kInfo), 1U);
  EXPECT_NE(messages_.back().second.find(place_.file), std::string::npos);
  EXPECT_EQ(count(LogLevel::kWarning), 0U);
}

TEST_F(TunedQueue, WithoutAFileNothingChangesAndNothingIsSaid) {
  QueueOptions options;
  EXPECT_EQ(tune(options), "");
  place_.file.clear();
  EXPECT_EQ(tune(options), "");
  EXPECT_TRUE(is_default(options));
  EXPECT_TRUE(messages_.empty());
}

TEST_F(TunedQueue, AnotherDeviceOrFilesystemChangesNothing) {
  DriveProfile other_device = profile_here(), other_filesystem = profile_here();
  other_device.device += "0";
  other_filesystem.filesystem = "minix";
  write({other_device, other_filesystem});
  QueueOptions options;
  EXPECT_EQ(tune(options), "");
  EXPECT_TRUE(is_default(options));
}

TEST_F(TunedQueue, ADamagedFileIsOneWarningAndTheDefault) {
  write({profile_here()});
  const auto bytes = std::filesystem::file_size(place_.file);
  for (std::uintmax_t length = bytes; length-- > 0;) {
    std::filesystem::resize_file(place_.file, length);
    messages_.clear();
    QueueOptions options;
    ASSERT_EQ(tune(options), "") << length;
    ASSERT_TRUE(is_default(options)) << length;
    ASSERT_EQ(count(LogLevel::kWarning), 1U) << length;
    ASSERT_EQ(messages_.size(), 1U);
    ASSERT_NE(messages_.front().second.find("run \"penstock tune\" again"), std::string::npos);
  }
}

TEST_F(TunedQueue, WhatTheOptionsSayStays) {
  write({profile_here()});
  QueueOptions options;
  options.piece_bytes = 1U << 18;
  options.write_credit_bytes = 1U << 21 | 1U << 20;
  (void)tune(options);
  EXPECT_EQ(options.piece_bytes, 1U << 18);
  EXPECT_EQ(options.write_credit_bytes, 3U << 20);
  EXPECT_EQ(options.read_credit_bytes, 1U << 24) << "of which they say nothing";
}

// Sizes that are good for threads need not be for io_uring.
TEST_F(TunedQueue, OptionsThatAskForAnotherBackendLeaveTheProfileOut) {
  write({profile_here()});
  QueueOptions options;
  options.backend = QueueBackend::kUring;
  EXPECT_EQ(tune(options), "");
  options.backend = QueueBackend::kAuto;
  EXPECT_TRUE(is_default(options));
  options.backend = QueueBackend::kThreads;
  EXPECT_EQ(tune(options), place_.file);
}

TEST_F(TunedQueue, AProfileOfIoUringLeavesTheChoiceOfTheBackend) {
  DriveProfile profile = profile_here();
  profile.tuning.threads = false;
  write({profile});
  QueueOptions options;
  EXPECT_EQ(tune(options), place_.file);
  EXPECT_EQ(options.backend, QueueBackend::kAuto) << "the kernel may refuse io_uring by now";
  options = {};
  options.backend = QueueBackend::kThreads;
  EXPECT_EQ(tune(options), "");
}

TEST_F(TunedQueue, SeveralDrivesUseWhatAllOfThemHave) {
  const DriveProfile one = sample_profile();
  DriveProfile other = sample_profile("b");
  EXPECT_EQ(common_tuning({&one, &other}), one.tuning);
  other.tuning.piece_bytes = 0;
  other.tuning.read_credit_bytes *= 2;
  const QueueTuning common = common_tuning({&one, &other});
  EXPECT_EQ(common.piece_bytes, 0U);
  EXPECT_EQ(common.read_credit_bytes, 0U);
  EXPECT_EQ(common.write_credit_bytes, one.tuning.write_credit_bytes);
  EXPECT_TRUE(common.threads);
  EXPECT_TRUE(common_tuning({&one, nullptr}).is_default());
  other.tuning.threads = false;
  EXPECT_TRUE(common_tuning({&one, &other}).is_default());
  EXPECT_TRUE(common_tuning({}).is_default());
}

TEST_F(TunedQueue, AProfileOfTheDefaultsIsNoChange) {
  DriveProfile profile = profile_here();
  profile.tuning = {};
  write({profile});
  QueueOptions options;
  EXPECT_EQ(tune(options), "");
  EXPECT_TRUE(is_default(options));
  EXPECT_EQ(count(LogLevel::kInfo) + count(LogLevel::kWarning), 0U);
}

}  // namespace
}  // namespace penstock
