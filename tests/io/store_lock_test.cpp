// Whose a store is: the lock follows the data file whatever names it gets, the owner is named when
// it is taken, a dead one's last writes are waited for, and an exchanged directory is not written
// to.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <string>

#include "io/storage_worlds.hpp"
#include "io/store_fixture.hpp"
#include "io/store_owner.hpp"

namespace penstock::test {
namespace {

namespace fs = std::filesystem;

class StoreLockTest : public ::testing::Test {
 protected:
  std::unique_ptr<Store> create(const std::string& directory) {
    auto store = create_store(*storage_, directory, small_geometry(), quick_options());
    EXPECT_TRUE(store) << store.error().message;
    return store ? std::move(store).value() : nullptr;
  }
  /// Writes and commits one version of every block.
  Status advance(Store& store, SlotTable& table, std::uint64_t step) {
    for (std::size_t block = 0; block < store.geometry().blocks.size(); ++block) {
      if (step != 0 && store.geometry().blocks[block].frozen) continue;
      write_version(*storage_, store, table, block, step);
    }
    return commit_all(store, table, step);
  }
  /// What opening for writing says; "opened" when it succeeds.
  std::string opening(const std::string& directory) {
    const auto store = open_store(*storage_, directory, quick_options(), true);
    return store ? "opened" : store.error().message;
  }
  std::set<std::string> names_in(const std::string& directory) {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory)) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }

  testing::TemporaryDirectory temporary_;
  const std::string here_ = temporary_.path() + "/here", there_ = temporary_.path() + "/there";
  std::unique_ptr<Storage> storage_ = make_posix_storage();
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(StoreOwnerTextTest, SaysWhoWhereAndSinceWhen) {
  EXPECT_EQ(describe(StoreOwner{7, "machine", "boot", 1, 86400}),
            "pid 7 on machine, since 1970-01-02 00:00:00 UTC");
  EXPECT_EQ(describe(StoreOwner{7, "machine", "boot", 1, 0}), "pid 7 on machine");
}

TEST_F(StoreLockTest, AStoreInUseNamesItsOwner) {
  const auto before = static_cast<std::uint64_t>(time(nullptr));
  const auto store = create(here_);
  const auto owner = read_owner(*storage_, here_);
  ASSERT_TRUE(owner) << owner.error().message;
  EXPECT_GE(owner.value().since_s, before);
  EXPECT_LE(owner.value().since_s, static_cast<std::uint64_t>(time(nullptr)));
  const std::string message = opening(here_);
  EXPECT_TRUE(contains(message, "in use by " + describe(owner.value()))) << message;
  EXPECT_TRUE(contains(message, "since 20")) << message;
}

TEST_F(StoreLockTest, TheLockFollowsARenamedDirectoryAndALinkedFile) {
  auto store = create(here_);
  SlotTable table = store->make_table();
  ASSERT_TRUE(advance(*store, table, 0));
  fs::rename(here_, there_);
  EXPECT_TRUE(contains(opening(there_), "in use by pid"));
  ASSERT_TRUE(storage_->make_directory(here_));
  for (const std::string& name : names_in(there_)) {
    fs::create_hard_link(there_ + "/" + name, here_ + "/" + name);
  }
  EXPECT_TRUE(contains(opening(here_), "in use by pid"));
  store.reset();
  EXPECT_EQ(opening(there_), "opened");
  EXPECT_EQ(opening(here_), "opened");
}

TEST_F(StoreLockTest, ADirectoryInItsPlaceIsNotWrittenTo) {
  auto store = create(here_);
  SlotTable table = store->make_table();
  ASSERT_TRUE(advance(*store, table, 0));
  fs::rename(here_, there_);
  auto other = create(here_);
  SlotTable other_table = other->make_table();
  ASSERT_TRUE(advance(*other, other_table, 0));
  const auto names = names_in(here_);

  const Status refused = advance(*store, table, 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kState);
  EXPECT_TRUE(contains(refused.error().message, "moved or exchanged")) << refused.error().message;
  EXPECT_EQ(names_in(here_), names);
  ASSERT_TRUE(advance(*other, other_table, 1));
  other.reset();
  EXPECT_EQ(opening(here_), "opened");
  store.reset();
  auto moved = open_store(*storage_, there_, quick_options(), true);
  ASSERT_TRUE(moved) << moved.error().message;
  EXPECT_EQ(moved.value()->committed().step, 0U);
}

TEST_F(StoreLockTest, ARemovedDataFileEndsCommits) {
  auto store = create(here_);
  SlotTable table = store->make_table();
  ASSERT_TRUE(advance(*store, table, 0));
  fs::remove(here_ + "/data.0");
  const Status refused = advance(*store, table, 1);
  ASSERT_FALSE(refused);
  EXPECT_TRUE(contains(refused.error().message, here_ + "/data.0")) << refused.error().message;
}

// A file of a dead owner stays locked while its requests are in flight. Here a child that the owner
// left behind keeps the file, as the kernel does, and lets go of it after a while.
TEST_F(StoreLockTest, ADeadOwnersLastWritesAreWaitedForAndToldOf) {
  int ready[2], ends[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(ends), 0);
  const pid_t owner = fork();
  if (owner == 0) {
    storage_ = make_posix_storage();
    auto store = create(here_);
    SlotTable table = store->make_table();
    const bool good = advance(*store, table, 0).ok();
    if (fork() == 0) {
      close(ends[1]);
      char byte = 0;
      _exit(::read(ends[0], &byte, 1) == 1 ? 0 : 1);  // until the test lets it go
    }
    const char word = good ? 'g' : 'b';
    _exit(::write(ready[1], &word, 1) == 1 ? 0 : 1);
  }
  ASSERT_GT(owner, 0);
  char word = 0;
  ASSERT_EQ(::read(ready[0], &word, 1), 1);
  ASSERT_EQ(word, 'g');
  ASSERT_EQ(waitpid(owner, nullptr, 0), owner);

  const std::string at_once = opening(here_);
  EXPECT_TRUE(contains(at_once, "still locked after 0 ms")) << at_once;
  EXPECT_TRUE(contains(at_once, "pid " + std::to_string(owner))) << at_once;

  StoreOptions options = quick_options();
  options.lock_wait_ns = 60'000'000'000;
  std::string notice;
  options.notice = [&](const std::string& sentence) {
    notice += sentence;
    EXPECT_EQ(::write(ends[1], "x", 1), 1);
  };
  const auto store = open_store(*storage_, here_, options, true);
  ASSERT_TRUE(store) << store.error().message;
  EXPECT_TRUE(contains(notice, "pid " + std::to_string(owner))) << notice;
  EXPECT_TRUE(contains(notice, "waiting up to 60 s")) << notice;
  for (const int end : {ready[0], ready[1], ends[0], ends[1]}) close(end);
}

TEST_F(StoreTest, ASimulatedStoreSaysWhenOnItsOwnClock) {
  timeline_.after(90'000'000'000, Task{[](void*, std::uint64_t) {}, nullptr, 0});
  ASSERT_TRUE(timeline_.run_one());
  make_committed(0);
  EXPECT_EQ(read_owner(*storage_, kDirectory).value().since_s, 90U);
}

}  // namespace
}  // namespace penstock::test
