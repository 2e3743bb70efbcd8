// Method: files of a user with every name that a store writes to, before its creation and beside
// its commits. Whatever the store says, they keep their bytes; once they are away it goes on.

#include "io/store_origin.hpp"

#include "io/store_fixture.hpp"
#include "io/store_global.hpp"
#include "io/store_owner.hpp"

namespace penstock::test {
namespace {

std::vector<std::byte> bytes_from(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

class StoreOriginTest : public StoreTest {
 protected:
  const std::vector<std::byte> mine_ = bytes_from("mine, " + std::string(5000, 'x'));

  void put(const std::string& name, std::span<const std::byte> bytes) {
    ASSERT_TRUE(replace_file(*storage_, kDirectory + "/" + name, bytes));
  }
  [[nodiscard]] std::vector<std::byte> raw(const std::string& name) {
    return storage_->read_file(kDirectory + "/" + name, 1 << 20).value();
  }
  /// Opens the store, commits nine times, keeps a checkpoint; the first error.
  std::string use(const StoreGeometry& geometry) {
    auto store = open_store(*storage_, kDirectory, quick_options(), true);
    if (!store) return store.error().message;
    SlotTable table = store.value()->make_table();
    const std::uint64_t first = store.value()->committed().step + 1;
    for (std::uint64_t step = first; step < first + 9; ++step) {
      write_all(*store.value(), table, step);
      if (const Status done = commit_all(*store.value(), table, step); !done) {
        return done.error().message;
      }
    }
    if (geometry.pins == 0 || !store.value()->pins().empty()) return {};
    auto change = store.value()->pin("x", false);
    return change ? "" : change.error().message;
  }
};

TEST_F(StoreOriginTest, NoFileOfAnotherIsWrittenOver) {
  StoreGeometry geometry = small_geometry();
  geometry.pins = 1;
  for (const std::string name :
       {"owner.json", "owner.json.tmp", "spare.0.a", "spare.4.b", "spare.50.a", "manifest.2.a",
        "manifest.3.a", "manifest.9.b", "manifest.3.a.tmp", "manifest.9.b.tmp", "pin.x.a",
        "pin.x.b", "pin.x.a.tmp", "pin.y.b.tmp"}) {
    storage_ = make_sim_storage(timeline_);
    {
      auto store = create(geometry);
      SlotTable table = store->make_table();
      for (std::uint64_t step = 0; step < 2; ++step) {
        write_all(*store, table, step);
        ASSERT_TRUE(commit_all(*store, table, step));
      }
    }
    put(name, mine_);
    for (int again = 0; again < 2; ++again) {
      const std::string problem = use(geometry);
      EXPECT_EQ(raw(name), mine_) << name << ": " << problem;
      if (problem.empty()) continue;
      EXPECT_NE(problem.find(name), std::string::npos) << problem;
      EXPECT_NE(problem.find("move it away"), std::string::npos) << problem;
      EXPECT_EQ(problem.find('\n'), std::string::npos);
    }
    ASSERT_TRUE(storage_->remove(kDirectory + "/" + name));
    EXPECT_EQ(use(geometry), "") << name;
  }
}

TEST_F(StoreOriginTest, ACreationLeavesThemAloneToo) {
  for (const std::string name : {"owner.json", "owner.json.tmp", "data.0", "manifest.0.a",
                                 "manifest.0.a.tmp", "spare.0.a", "spare.0.b"}) {
    storage_ = make_sim_storage(timeline_);
    ASSERT_TRUE(storage_->make_directory(kDirectory));
    put(name, mine_);
    auto store = create_store(*storage_, kDirectory, small_geometry(), quick_options());
    EXPECT_EQ(raw(name), mine_) << name;
    if (!store) {
      EXPECT_NE(store.error().message.find(name), std::string::npos) << store.error().message;
    }
  }
}

TEST_F(StoreOriginTest, TheMarkOfACreationDoesNotMakeADataFileOurs) {
  ASSERT_TRUE(storage_->make_directory(kDirectory));
  ASSERT_TRUE(write_owner(*storage_, kDirectory, this_process()));
  put("data.0", mine_);
  auto store = create_store(*storage_, kDirectory, small_geometry(), quick_options());
  ASSERT_FALSE(store);
  EXPECT_NE(store.error().message.find("left alone"), std::string::npos) << store.error().message;
  EXPECT_EQ(raw("data.0"), mine_);
}

TEST_F(StoreOriginTest, WhatAKilledProcessLeftStopsNothing) {
  make_committed(1);
  const std::vector<std::byte> owner = raw("owner.json"), manifest = raw("manifest.1.a");
  for (const std::size_t length : {std::size_t{0}, std::size_t{1}, std::size_t{20}, owner.size()}) {
    put("owner.json.tmp", std::span(owner).first(length));
    ASSERT_TRUE(open()) << length;
    EXPECT_FALSE(exists("owner.json.tmp"));
  }
  put("owner.json.tmp", std::vector<std::byte>(owner.size()));
  ASSERT_TRUE(open()) << "zeros after a power loss";
  for (const std::size_t length : {std::size_t{0}, std::size_t{4}, std::size_t{5000}}) {
    put("manifest.2.a.tmp", std::span(manifest).first(std::min(length, manifest.size())));
    put("pin.x.b.tmp", std::span(manifest).first(std::min(length, manifest.size())));
    ASSERT_TRUE(open()) << length;
    EXPECT_FALSE(exists("manifest.2.a.tmp") || exists("pin.x.b.tmp")) << length;
  }
  EXPECT_EQ(use(small_geometry()), "");
}

// A store that took the number from such a name would come to the last one and then begin at 0
// again, so that an old commit counted as the newest.
TEST_F(StoreOriginTest, AHugeNumberMakesNoFileOurs) {
  for (const std::string name :
       {"manifest.18446744073709551612.a", "manifest.9007199254740993.b",
        "manifest.18446744073709551615.a.tmp", "global.18446744073709551615.a",
        "spare.18446744073709551614.a", "global.spare.18446744073709551615.b"}) {
    storage_ = make_sim_storage(timeline_);
    make_committed(1);
    for (const std::vector<std::byte>& theirs : {mine_, {}, raw("manifest.1.a")}) {
      put(name, theirs);
      const std::uint64_t before = open(false)->committed().step;
      EXPECT_EQ(use(small_geometry()), "") << name;
      EXPECT_EQ(raw(name), theirs) << name;
      auto store = open();
      EXPECT_EQ(store->open_note(), "") << name;
      expect_state(*store, before + 9);
    }
  }
}

TEST_F(StoreOriginTest, ANumberThatLeavesNoneForFurtherFilesIsRefused) {
  for (const std::string name : {"manifest.9007199254740992.a", "manifest.9007199254740000.b",
                                 "spare.9007199254740992.b", "manifest.9007199254740992.a.tmp"}) {
    storage_ = make_sim_storage(timeline_);
    make_committed(1);
    put(name, {});
    expect_state(*open(false), 1);
    const Error error = open_error();
    EXPECT_EQ(error.code, Errc::kState);
    EXPECT_NE(error.message.find(name), std::string::npos) << error.message;
    EXPECT_NE(error.message.find("move it away"), std::string::npos) << error.message;
    EXPECT_TRUE(exists(name));
    ASSERT_TRUE(storage_->remove(kDirectory + "/" + name));
    EXPECT_EQ(use(small_geometry()), "") << name;
    expect_state(*open(), 10);
  }
}

TEST_F(StoreOriginTest, TheGlobalRecordIsNotWrittenOverAnothersFile) {
  ASSERT_TRUE(storage_->make_directory(kDirectory));
  const auto mine = {"global.3.a",
                     "global.7.a",
                     "global.spare.0.a",
                     "global.spare.1.b",
                     "global.18446744073709551615.a",
                     "global.spare.18446744073709551615.a"};
  for (const char* name : mine) put(name, mine_);
  GlobalRecords records(*storage_, kDirectory);
  ASSERT_TRUE(records.reserve());
  for (std::uint64_t sequence = 5; sequence < 12; ++sequence) {
    const Status done = records.write({{1, 2}, sequence, sequence, 2});
    for (const char* name : mine) EXPECT_EQ(raw(name), mine_) << name;
    EXPECT_EQ(done.ok(), sequence != 7);
    if (done) continue;
    EXPECT_NE(done.error().message.find("global.7.a"), std::string::npos);
  }
}

TEST(HoldsOursTest, GoesByTheFirstPage) {
  const auto page_of = [](std::string_view text, char rest) {
    std::string page(4096, rest);
    page.replace(0, text.size(), text);
    return bytes_from(page);
  };
  for (const std::string_view text :
       {"", "P", "PNSTK", "PNSTKMAN and more", "{", "{\n  \"penstock\": \"store owner\",",
        "{\n  \"boot_id\": \"x\",\n  \"penstock\": \"store owner\""}) {
    EXPECT_TRUE(holds_ours(bytes_from(text))) << text;
  }
  EXPECT_TRUE(holds_ours(page_of("", '\0')));
  EXPECT_TRUE(holds_ours(page_of("PNSTKDAT", 'x')));
  for (const std::string_view text : {"PNSTOCK", " PNSTK", "{}", "{\"penstock\": 1}", "mine"}) {
    EXPECT_FALSE(holds_ours(bytes_from(text))) << text;
  }
  EXPECT_FALSE(holds_ours(page_of("", ' ')));
  std::vector<std::byte> late(4096);
  late.back() = std::byte{1};
  EXPECT_FALSE(holds_ours(late));
}

}  // namespace
}  // namespace penstock::test
