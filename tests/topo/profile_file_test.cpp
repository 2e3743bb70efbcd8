// Method: the environment names directories of the test's own.

#include "topo/profile_file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "temporary_directory.hpp"
#include "topo/sample_profile.hpp"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using testing::sample_profile;

class ProfileFile : public ::testing::Test {
 protected:
  ProfileFile() {
    for (const char* name : {kProfileVariable, "XDG_CONFIG_HOME", "HOME"}) {
      const char* value = std::getenv(name);
      before_.emplace_back(name, value == nullptr ? std::nullopt : std::optional(value));
      ::unsetenv(name);
    }
  }
  ~ProfileFile() override {
    for (const auto& [name, value] : before_) {
      value ? ::setenv(name.c_str(), value->c_str(), 1) : ::unsetenv(name.c_str());
    }
  }
  [[nodiscard]] std::string text() const {
    std::ifstream file(place_.file);
    std::stringstream all;
    all << file.rdbuf();
    return all.str();
  }
  void put(const std::string& content) const {
    fs::create_directories(fs::path(place_.file).parent_path());
    std::ofstream(place_.file) << content;
  }

  testing::TemporaryDirectory directory_;
  ProfilePlace place_{directory_.path() + "/config/penstock/profile.toml"};
  std::vector<std::pair<std::string, std::optional<std::string>>> before_;
};

TEST_F(ProfileFile, ThePlaceComesFromTheEnvironment) {
  EXPECT_TRUE(profile_place().file.empty());
  ::setenv("HOME", "/home-of-a-user", 1);
  EXPECT_EQ(profile_place().file, "/home-of-a-user/.config/penstock/profile.toml");
  ::setenv("XDG_CONFIG_HOME", "relative", 1);
  EXPECT_EQ(profile_place().file, "/home-of-a-user/.config/penstock/profile.toml");
  ::setenv("XDG_CONFIG_HOME", "/etc/xdg-test", 1);
  EXPECT_EQ(profile_place().file, "/etc/xdg-test/penstock/profile.toml");
  EXPECT_FALSE(profile_place().is_wished);
  ::setenv(kProfileVariable, "here.toml", 1);
  EXPECT_EQ(profile_place().file, "here.toml");
  EXPECT_TRUE(profile_place().is_wished);
  ::setenv(kProfileVariable, "none", 1);
  EXPECT_TRUE(profile_place().file.empty());
  EXPECT_TRUE(profile_place().is_refused);
  ::setenv(kProfileVariable, "", 1);
  EXPECT_EQ(profile_place().file, "/etc/xdg-test/penstock/profile.toml");
}

TEST_F(ProfileFile, NoneIsNoErrorUnlessItWasWishedFor) {
  const auto none = read_profiles(place_);
  ASSERT_TRUE(none);
  EXPECT_TRUE(none.value().empty());
  place_.is_wished = true;
  const auto wished = read_profiles(place_);
  ASSERT_FALSE(wished);
  EXPECT_NE(wished.error().message.find(place_.file), std::string::npos);
}

TEST_F(ProfileFile, ThoseWhoWriteAtOnceKeepEachOthersDrives) {
  constexpr std::size_t kWriters = 8;
  std::vector<std::thread> writers;
  std::array<bool, kWriters> written{};
  for (std::size_t i = 0; i < kWriters; ++i) {
    writers.emplace_back([&, i] {
      DriveProfile profile = sample_profile();
      profile.device += std::to_string(i);
      written[i] = static_cast<bool>(write_profiles(place_, {profile}));
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(std::count(written.begin(), written.end(), true), kWriters);
  EXPECT_EQ(read_profiles(place_).value().size(), kWriters);
}

TEST_F(ProfileFile, AnotherWriterIsNotWaitedForWithoutEnd) {
  ASSERT_TRUE(write_profiles(place_, {sample_profile()}));
  const std::string before = text();
  const int other = ::open(fs::path(place_.file).parent_path().c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(::flock(other, LOCK_EX), 0);
  const auto written = write_profiles(place_, {sample_profile()});
  ::close(other);
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, Errc::kTimeout);
  EXPECT_EQ(text(), before);
}

TEST_F(ProfileFile, IsItsOwnersAloneAndNothingElseStays) {
  ASSERT_TRUE(check_profile_place(place_));
  EXPECT_FALSE(fs::exists(directory_.path() + "/config")) << "a check writes nothing";
  const auto written = write_profiles(place_, {sample_profile()});
  ASSERT_TRUE(written) << written.error().message;
  EXPECT_TRUE(written.value().empty());
  struct stat facts {};
  ASSERT_EQ(::stat(place_.file.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600U);
  ASSERT_EQ(::stat((directory_.path() + "/config").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0700U);
  const fs::directory_iterator files(fs::path(place_.file).parent_path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);
}

TEST_F(ProfileFile, ANewProfileTakesThePlaceOfTheOldOneAndLeavesOthers) {
  DriveProfile other_filesystem = sample_profile();
  other_filesystem.filesystem = "xfs";
  ASSERT_TRUE(write_profiles(place_, {sample_profile(), other_filesystem, sample_profile("b")}));
  DriveProfile again = sample_profile();
  again.unix_seconds += 1000;
  ASSERT_TRUE(write_profiles(place_, {again}));
  const auto read = read_profiles(place_);
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read.value().size(), 3U);
  const DriveProfile* found = find_profile(read.value(), {{}, "ext4", 0, again.device});
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->unix_seconds, again.unix_seconds);
  EXPECT_NE(find_profile(read.value(), {{}, "xfs", 0, again.device}), nullptr);
  EXPECT_NE(find_profile(read.value(), {{}, "ext4", 0, "b"}), nullptr);
  EXPECT_EQ(find_profile(read.value(), {{}, "btrfs", 0, "b"}), nullptr);
}

TEST_F(ProfileFile, ADamagedOneIsNamedWithARemedyAndKeptWhenItIsReplaced) {
  put("schema = \"penstock.profile/1\"\n[[drive]]\n");
  const auto read = read_profiles(place_);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Errc::kCorrupt);
  for (const std::string& part : {place_.file, std::string("is damaged: line 2"),
                                  std::string("run \"penstock tune\" again")}) {
    EXPECT_NE(read.error().message.find(part), std::string::npos) << read.error().message;
  }
  const auto written = write_profiles(place_, {sample_profile()});
  ASSERT_TRUE(written);
  EXPECT_EQ(written.value(), place_.file + ".old");
  EXPECT_TRUE(fs::exists(written.value()));
  EXPECT_TRUE(read_profiles(place_));
}

TEST_F(ProfileFile, WhatIsReplacedOverwritesNothing) {
  const std::string damaged = "schema = \"penstock.profile/1\"\n[[drive]]\n";
  put(damaged);
  std::ofstream(place_.file + ".old") << "a user's";
  const auto written = write_profiles(place_, {sample_profile()});
  ASSERT_TRUE(written);
  EXPECT_EQ(written.value(), place_.file + ".old.2");
  const auto content = [](const std::string& file) {
    std::stringstream all;
    all << std::ifstream(file).rdbuf();
    return all.str();
  };
  EXPECT_EQ(content(place_.file + ".old"), "a user's");
  EXPECT_EQ(content(place_.file + ".old.2"), damaged);
}

TEST_F(ProfileFile, ALinkStaysAndWhatItLeadsToIsReplaced) {
  const fs::path kept = fs::path(directory_.path()) / "dotfiles" / "penstock.toml";
  fs::create_directories(kept.parent_path());
  fs::create_directories(fs::path(place_.file).parent_path());
  fs::create_symlink("../../dotfiles/penstock.toml", place_.file);
  for (int round = 0; round < 2; ++round) {  // of a file that is not there yet, and of one that is
    ASSERT_TRUE(check_profile_place(place_));
    const auto written = write_profiles(place_, {sample_profile()});
    ASSERT_TRUE(written) << written.error().message;
    EXPECT_TRUE(fs::is_symlink(place_.file));
    EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(kept)));
    ASSERT_TRUE(read_profiles(place_));
    EXPECT_EQ(read_profiles(place_).value().size(), 1U);
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(kept.parent_path()), {}), 1);
}

TEST_F(ProfileFile, WhatIsNoProfileIsLeftAlone) {
  for (const std::string& content : {std::string("dear diary"), std::string(1 << 20, '#')}) {
    put(content);
    for (const Status& refused : {check_profile_place(place_),
                                  Status(write_profiles(place_, {sample_profile()}).error())}) {
      ASSERT_FALSE(refused);
      EXPECT_NE(refused.error().message.find("not a profile"), std::string::npos);
    }
    EXPECT_EQ(text(), content);
  }
  place_.file = "/dev/null";
  EXPECT_FALSE(check_profile_place(place_));
  place_.file = directory_.path() + "/pipe";
  ASSERT_EQ(::mkfifo(place_.file.c_str(), 0600), 0);
  EXPECT_FALSE(check_profile_place(place_));
  EXPECT_FALSE(write_profiles(place_, {sample_profile()}));
  EXPECT_TRUE(fs::is_fifo(place_.file));
}

TEST_F(ProfileFile, AllDirectoriesThatAreMissingAreMade) {
  place_.file = directory_.path() + "/a/b/c/d/profile.toml";
  ASSERT_TRUE(check_profile_place(place_));
  const auto written = write_profiles(place_, {sample_profile()});
  ASSERT_TRUE(written) << written.error().message;
  EXPECT_TRUE(read_profiles(place_));
}

TEST_F(ProfileFile, WhatIsNoFileIsNotWaitedFor) {
  fs::create_directories(fs::path(place_.file).parent_path());
  ASSERT_EQ(::mkfifo(place_.file.c_str(), 0600), 0);
  EXPECT_FALSE(read_profiles(place_));
  fs::remove(place_.file);
  fs::create_directory(place_.file);
  EXPECT_FALSE(read_profiles(place_));
  EXPECT_FALSE(check_profile_place(place_));
}

TEST_F(ProfileFile, AnEndlessOneIsNotRead) {
  place_.file = "/dev/zero";
  EXPECT_FALSE(read_profiles(place_));
  place_.file = directory_.path() + "/long";
  put(std::string(1 << 20, '#'));
  EXPECT_FALSE(read_profiles(place_));
}

TEST_F(ProfileFile, APlaceThatCannotBeWrittenIsFoundBefore) {
  std::ofstream(directory_.path() + "/config") << "a file where a directory should be";
  const auto refused = check_profile_place(place_);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find(place_.file), std::string::npos);
  EXPECT_FALSE(write_profiles(place_, {sample_profile()}));
  for (const bool is_refused : {false, true}) {
    ProfilePlace nowhere;
    nowhere.is_refused = is_refused;
    const auto status = check_profile_place(nowhere);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, Errc::kArgument);
    EXPECT_NE(status.error().message.find(kProfileVariable), std::string::npos);
    EXPECT_FALSE(write_profiles(nowhere, {sample_profile()}));
  }
}

// A limit on the length of files stands for a drive that fills up.
TEST_F(ProfileFile, AFailedWriteLeavesTheOldOne) {
  ASSERT_TRUE(write_profiles(place_, {sample_profile()}));
  const std::string before = text();
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small{64, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto checked = check_profile_place(place_);
  const auto written = write_profiles(place_, {sample_profile("b")});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_FALSE(checked) << "rights do not tell of it, a trial does";
  ASSERT_FALSE(written);
  EXPECT_NE(written.error().message.find(place_.file), std::string::npos);
  EXPECT_EQ(text(), before);
  const fs::directory_iterator files(fs::path(place_.file).parent_path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 1) << "no temporary file stays";
}

}  // namespace
}  // namespace penstock
