// The same store on the operating system's files: what a simulation cannot show, which is real
// descriptors, modes, locks between processes and SIGKILL.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "io/store_fixture.hpp"
#include "io/store_verify.hpp"

namespace penstock::test {
namespace {

namespace fs = std::filesystem;

class StorePosixTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "penstock_store_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    directory_ = name + "/store";
  }
  void TearDown() override { fs::remove_all(root_); }

  void write_all(Storage& storage, const Store& store, SlotTable& table, std::uint64_t version) {
    for (std::size_t block = 0; block < store.geometry().blocks.size(); ++block) {
      if (version != 0 && store.geometry().blocks[block].frozen) continue;
      write_version(storage, store, table, block, version);
    }
  }

  /// Creates the store and commits steps 0..last; every step is announced on `pipe` once committed.
  void train(std::uint64_t last, int pipe = -1) {
    auto store = create_store(*storage_, directory_, small_geometry(), quick_options());
    ASSERT_TRUE(store) << store.error().message;
    SlotTable table = store.value()->make_table();
    for (std::uint64_t step = 0; step <= last; ++step) {
      write_all(*storage_, *store.value(), table, step);
      const Status done = commit_all(*store.value(), table, step);
      ASSERT_TRUE(done) << done.error().message;
      if (pipe < 0) continue;
      ASSERT_EQ(::write(pipe, &step, sizeof step), ssize_t{sizeof step});
    }
  }

  std::string root_, directory_;
  std::unique_ptr<Storage> storage_ = make_posix_storage();
};

TEST_F(StorePosixTest, CommittedStateComesBackWithPrivateFiles) {
  train(3);
  auto store = open_store(*storage_, directory_, quick_options(), true);
  ASSERT_TRUE(store) << store.error().message;
  EXPECT_EQ(store.value()->committed().step, 3U);
  const SlotTable table = store.value()->make_table();
  for (std::size_t block = 0; block < table.block_count(); ++block) {
    EXPECT_EQ(check_block(*store.value(), table, block, block == 5 ? 0 : 3), "");
  }
  EXPECT_TRUE(verify_store(*store.value()).value().empty());
  for (const auto& entry : fs::directory_iterator(directory_)) {
    struct stat facts {};
    ASSERT_EQ(stat(entry.path().c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777, 0600U) << entry.path();
  }
}

/// Opening, or creating, over a pipe of that name: the message, or "accepted".
std::string opening_with_pipe(Storage& storage, const std::string& directory,
                              const std::string& name, bool writable) {
  EXPECT_EQ(::mkfifo((directory + "/" + name).c_str(), 0600), 0);
  auto store = open_store(storage, directory, quick_options(), writable);
  EXPECT_TRUE(fs::is_fifo(directory + "/" + name)) << name;
  return store ? "accepted" : store.error().message;
}

TEST_F(StorePosixTest, APipeInPlaceOfAFileIsRefusedAndNotWaitedFor) {
  train(3);
  for (const bool writable : {false, true}) {
    for (const std::string name : {"data.0", "manifest.9.a", "pin.x.a"}) {
      const std::string path = directory_ + "/" + name, aside = root_ + "/aside";
      const bool there = fs::exists(path);
      if (there) fs::rename(path, aside);
      const std::string said = opening_with_pipe(*storage_, directory_, name, writable);
      EXPECT_NE(said.find(path + "\": it is not a regular file but a pipe"), std::string::npos)
          << said;
      fs::remove(path);
      if (there) fs::rename(aside, path);
    }
  }
  const std::string spare = "spare.99.a";
  EXPECT_EQ(opening_with_pipe(*storage_, directory_, spare, true), "accepted");
  const std::string fresh = root_ + "/fresh";
  for (const std::string name : {"data.0", "owner.json"}) {
    ASSERT_EQ(::mkdir(fresh.c_str(), 0700), 0);
    ASSERT_EQ(::mkfifo((fresh + "/" + name).c_str(), 0600), 0);
    const auto created = create_store(*storage_, fresh, small_geometry(), quick_options());
    ASSERT_FALSE(created) << name;
    EXPECT_NE(created.error().message.find("a pipe"), std::string::npos) << created.error().message;
    EXPECT_TRUE(fs::is_fifo(fresh + "/" + name));
    fs::remove_all(fresh);
  }
}

TEST_F(StorePosixTest, ALinkInPlaceOfAFileIsNamedWithWhatToDo) {
  train(1);
  for (const auto& [name, remedy] : std::vector<std::pair<std::string, std::string>>{
           {"manifest.1.a", "move the link away"},
           {"manifest.2.a", "move the link away"},
           {"data.0", "put the data file itself in its place"}}) {
    const std::string path = directory_ + "/" + name, elsewhere = root_ + "/elsewhere";
    const bool had_file = fs::exists(path);
    if (had_file) fs::rename(path, elsewhere);
    fs::create_symlink(elsewhere, path);
    if (name == "manifest.1.a") fs::remove(directory_ + "/manifest.1.b");
    for (const bool writable : {true, false}) {
      const auto opened = open_store(*storage_, directory_, quick_options(), writable);
      ASSERT_FALSE(opened) << name;
      const std::string& message = opened.error().message;
      EXPECT_NE(message.find(path), std::string::npos) << message;
      EXPECT_NE(message.find("is a symbolic link"), std::string::npos) << message;
      EXPECT_NE(message.find(remedy), std::string::npos) << message;
    }
    EXPECT_TRUE(fs::is_symlink(path));
    fs::remove(path);
    if (had_file) fs::rename(elsewhere, path);
    EXPECT_TRUE(open_store(*storage_, directory_, quick_options(), true)) << name;
  }
}

TEST_F(StorePosixTest, ADirectoryThatOthersMayChangeIsRefusedUntouched) {
  const auto message = [&](const auto& store) {
    return store ? std::string("accepted") : store.error().message;
  };
  const std::string target = root_ + "/target";
  ASSERT_TRUE(fs::create_directory(target));
  fs::create_directory_symlink(target, root_ + "/link");
  const auto linked = create_store(*storage_, root_ + "/link", small_geometry(), quick_options());
  EXPECT_NE(message(linked).find("symbolic link"), std::string::npos) << message(linked);
  ASSERT_EQ(chmod(target.c_str(), 0777), 0);
  const auto open_to_all = create_store(*storage_, target, small_geometry(), quick_options());
  EXPECT_NE(message(open_to_all).find("chmod 0700"), std::string::npos) << message(open_to_all);
  EXPECT_TRUE(fs::is_empty(target));

  train(0);
  struct stat facts {};
  ASSERT_EQ(stat(directory_.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0700U);
  ASSERT_EQ(chmod(directory_.c_str(), 0770), 0);
  const auto opened = open_store(*storage_, directory_, quick_options(), true);
  EXPECT_NE(message(opened).find("chmod 0700"), std::string::npos) << message(opened);
  EXPECT_TRUE(open_store(*storage_, directory_, quick_options(), false))
      << "a reader writes nothing";
  ASSERT_EQ(chmod(directory_.c_str(), 0700), 0);
  EXPECT_TRUE(open_store(*storage_, directory_, quick_options(), true));
}

TEST_F(StorePosixTest, ACutDataFileIsCorrupt) {
  train(0);
  fs::resize_file(directory_ + "/data.0", fs::file_size(directory_ + "/data.0") - 4096);
  EXPECT_EQ(open_store(*storage_, directory_, quick_options(), true).error().code, Errc::kCorrupt);
}

TEST_F(StorePosixTest, ScratchLeavesNothingBehind) {
  StoreOptions options = quick_options();
  options.scratch = true;
  {
    auto store = create_store(*storage_, directory_, small_geometry(), options);
    ASSERT_TRUE(store) << store.error().message;
    SlotTable table = store.value()->make_table();
    write_all(*storage_, *store.value(), table, 0);
    EXPECT_EQ(check_block(*store.value(), table, 0, 0), "");
    EXPECT_TRUE(fs::is_empty(directory_));
  }
  EXPECT_TRUE(fs::is_empty(directory_));
}

// The child trains until it is killed at some moment; what it announced must be there.
TEST_F(StorePosixTest, SurvivesSigkill) {
  for (std::uint64_t round = 0; round < 8; ++round) {
    fs::remove_all(directory_);
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      close(ends[0]);
      storage_ = make_posix_storage();  // the parent's is not for its children
      train(1'000'000, ends[1]);
      _exit(1);
    }
    ASSERT_GT(child, 0);
    close(ends[1]);
    std::uint64_t announced = 0;
    // Kill between two announcements: after the round-th one, amid the work for the next.
    while (announced<round&& ::read(ends[0], &announced, sizeof announced)> 0) {
    }
    usleep(static_cast<useconds_t>(mix64(3, round, 0) % 3000));
    if (round != 0) {  // it holds the lock by now
      auto busy = open_store(*storage_, directory_, quick_options(), true);
      ASSERT_FALSE(busy);
      EXPECT_NE(busy.error().message.find("in use by pid " + std::to_string(child)),
                std::string::npos)
          << busy.error().message;
    }
    ASSERT_EQ(kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "round " << round;
    bool any = round != 0;
    while (::read(ends[0], &announced, sizeof announced) > 0) any = true;
    close(ends[0]);
    auto store = open_store(*storage_, directory_, quick_options(), true);
    if (!any) continue;  // killed before the first commit was announced
    ASSERT_TRUE(store) << store.error().message;
    const std::uint64_t step = store.value()->committed().step;
    EXPECT_GE(step, announced);
    EXPECT_LE(step, announced + 1);
    const SlotTable table = store.value()->make_table();
    for (std::size_t block = 0; block < table.block_count(); ++block) {
      EXPECT_EQ(check_block(*store.value(), table, block, block == 5 ? 0 : step), "");
    }
  }
}

}  // namespace
}  // namespace penstock::test
