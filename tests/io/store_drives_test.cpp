// A store on several drives: blocks dealt over data files, and one sentence for each way in which a
// drive can be missing, exchanged or changed.

#include <gtest/gtest.h>

#include <set>

#include "io/store_fixture.hpp"
#include "io/store_format.hpp"
#include "io/store_layout.hpp"
#include "io/store_pins.hpp"
#include "io/store_verify.hpp"

namespace penstock::test {
namespace {

const std::vector<std::string> kDirectories{"d0", "d1", "d2"};

class StoreDrivesTest : public StoreTest {
 protected:
  static StoreGeometry geometry() {
    StoreGeometry geometry = small_geometry();
    geometry.drives = {1, 2, 1};
    return geometry;
  }
  std::unique_ptr<Store> create_on(const std::vector<std::string>& directories,
                                   std::uint64_t uuid_seed = 5) {
    StoreOptions options = quick_options();
    options.uuid_seed = uuid_seed;
    auto store = create_store(*storage_, directories, geometry(), options);
    EXPECT_TRUE(store) << store.error().message;
    return store ? std::move(store).value() : nullptr;
  }
  void make_on(const std::vector<std::string>& directories, std::uint64_t last,
               std::uint64_t uuid_seed = 5) {
    auto store = create_on(directories, uuid_seed);
    ASSERT_TRUE(store);
    SlotTable table = store->make_table();
    for (std::uint64_t step = 0; step <= last; ++step) {
      write_all(*store, table, step);
      ASSERT_TRUE(commit_all(*store, table, step));
    }
  }
  std::unique_ptr<Store> open_on(const std::vector<std::string>& directories) {
    auto store = open_store(*storage_, directories, quick_options(), true);
    EXPECT_TRUE(store) << store.error().message;
    return store ? std::move(store).value() : nullptr;
  }
  /// Why the store does not open: one sentence of that kind with that text.
  void expect_refused(const std::vector<std::string>& directories, Errc code,
                      const std::string& text) {
    for (const bool writable : {true, false}) {
      auto store = open_store(*storage_, directories, quick_options(), writable);
      ASSERT_FALSE(store) << text;
      EXPECT_EQ(store.error().code, code) << store.error().message;
      EXPECT_NE(store.error().message.find(text), std::string::npos)
          << store.error().message << "\nlacks: " << text;
    }
  }
  std::vector<std::byte> read(const std::string& path) {
    return storage_->read_file(path, std::uint64_t{1} << 30).value();
  }
};

TEST_F(StoreDrivesTest, DealsBlocksAndComesBackInAnyOrder) {
  make_on(kDirectories, 3);
  for (const auto& order :
       {kDirectories, {"d2", "d0", "d1"}, std::vector<std::string>{"d1", "d0", "d2"}}) {
    auto store = open_on(order);
    ASSERT_TRUE(store);
    EXPECT_EQ(store->directories().all(), kDirectories);
    EXPECT_EQ(store->directory(), "d0");
    expect_state(*store, 3);
    EXPECT_TRUE(verify_store(*store).value().empty());
    std::set<FileId> files;
    std::set<std::pair<FileId, std::uint64_t>> places;
    for (std::size_t slot = 0; slot < store->slot_count(); ++slot) {
      const DriveExtent place = store->slot(static_cast<SlotIndex>(slot));
      files.insert(place.file);
      EXPECT_TRUE(places.insert({place.file, place.offset_bytes}).second);
      EXPECT_LE(place.offset_bytes + store->slot_bytes(), storage_->size_bytes(place.file).value());
    }
    EXPECT_EQ(files.size(), 3U);
    EXPECT_NE(store->spill(0).file, store->spill(1).file);
  }
  auto store = open_on(kDirectories);
  SlotTable table = store->make_table();
  write_all(*store, table, 4);
  ASSERT_TRUE(commit_all(*store, table, 4));
  store.reset();
  expect_state(*open_on(kDirectories), 4);
}

TEST_F(StoreDrivesTest, KeepsTheTwoManifestsOnDifferentDrives) {
  make_on(kDirectories, 1);
  for (const char* name : {"d0/manifest.1.a", "d1/manifest.1.b"}) {
    EXPECT_TRUE(storage_->exists(name).value()) << name;
    const auto bytes = read(name);
    ASSERT_TRUE(storage_->remove(name));
    expect_state(*open_on(kDirectories), 1);
    ASSERT_TRUE(replace_file(*storage_, name, bytes));
  }
  EXPECT_FALSE(storage_->exists("d1/manifest.1.a").value());
  EXPECT_FALSE(storage_->exists("d2/manifest.1.b").value());
}

TEST_F(StoreDrivesTest, AMissingDriveIsNamed) {
  make_on(kDirectories, 1);
  expect_refused({"d0"}, Errc::kState, "d0/data.0 is one of 3 data files");
  expect_refused({"d1"}, Errc::kState, "d1/data.0 does not exist");
  expect_refused({"d0", "d1"}, Errc::kState, "name all directories of the store");
  expect_refused({"d0", "d2"}, Errc::kState, "d2 holds data.2, but 2 directories were named");
  expect_refused({"d0", "d1", "nowhere"}, Errc::kState, "nowhere/data.2 does not exist");
  ASSERT_TRUE(storage_->make_directory("empty"));  // a mount point without its drive
  expect_refused({"d0", "empty", "d2"}, Errc::kState, "empty/data.1 does not exist");
  expect_refused({"d0", "empty", "d2"}, Errc::kState, "mount its drive");
  expect_refused({"empty", "d1", "d2"}, Errc::kState, "empty/data.0 does not exist");
  expect_refused({"d0", "d1", "d1"}, Errc::kState, "both hold data.1");
  ASSERT_TRUE(storage_->rename("d2/data.2", "empty/data.2"));
  expect_state(*open_on({"d0", "d1", "empty"}), 1);
}

TEST_F(StoreDrivesTest, ExchangedAndForeignFilesAreNamed) {
  make_on(kDirectories, 1);
  make_on({"e0", "e1", "e2"}, 1, 6);
  expect_refused({"d0", "e1", "d2"}, Errc::kCorrupt,
                 "d0/data.0 and e1/data.1 are data files of two");
  expect_refused({"d0", "d1", "d2", "e0"}, Errc::kState, "both hold data.0");
  // Under each other's names. The files differ in length, so both lengths are checked as well.
  const auto one = read("d1/data.1"), two = read("d2/data.2");
  ASSERT_TRUE(replace_file(*storage_, "d1/data.1", two));
  ASSERT_TRUE(replace_file(*storage_, "d2/data.2", one));
  expect_refused(kDirectories, Errc::kCorrupt, "d1/data.1 is data file 2");
  ASSERT_TRUE(replace_file(*storage_, "d1/data.1", one));
  expect_refused(kDirectories, Errc::kCorrupt, "d2/data.2 is data file 1");
  ASSERT_TRUE(replace_file(*storage_, "d2/data.2", two));
  // Two data files in one directory.
  ASSERT_TRUE(replace_file(*storage_, "d1/data.2", two));
  expect_refused(kDirectories, Errc::kState, "d1 holds data.1 and data.2");
  ASSERT_TRUE(storage_->remove("d1/data.2"));
  expect_state(*open_on(kDirectories), 1);
}

TEST_F(StoreDrivesTest, AnothersFileSaysNothingOfADirectorysAge) {
  make_on(kDirectories, 2);
  const auto mine = std::as_bytes(std::span("mine"));
  ASSERT_TRUE(storage_->write_file("d1/manifest.70.b", mine));
  auto store = open_on(kDirectories);
  ASSERT_TRUE(store);
  expect_state(*store, 2);
  store.reset();
  const std::vector<std::byte> manifest = read("d1/manifest.2.b");
  ASSERT_TRUE(storage_->write_file("d1/manifest.80.b", manifest));
  expect_refused(kDirectories, Errc::kState, "d0 is an older copy of that directory");
}

TEST_F(StoreDrivesTest, CutGrownAndDamagedFilesAreNamed) {
  make_on(kDirectories, 1);
  const auto whole = read("d1/data.1");
  const auto with_length = [&](std::size_t length) {
    std::vector<std::byte> bytes = whole;
    bytes.resize(length);
    ASSERT_TRUE(replace_file(*storage_, "d1/data.1", bytes));
  };
  with_length(whole.size() - 4096);
  expect_refused(kDirectories, Errc::kCorrupt, "d1/data.1 was cut");
  with_length(whole.size() + 4096);
  expect_refused(kDirectories, Errc::kCorrupt, "d1/data.1 was extended");
  with_length(0);
  expect_refused(kDirectories, Errc::kCorrupt, "d1/data.1 was cut");
  with_length(whole.size());
  for (const std::uint64_t copy : {0U, 4096U}) {
    ASSERT_TRUE(storage_->flip_bit("d1/data.1", (copy + 100) * 8));
  }
  expect_refused(kDirectories, Errc::kCorrupt, "d1/data.1 header");
  ASSERT_TRUE(storage_->flip_bit("d1/data.1", (4096 + 100) * 8));
  auto store = open_on(kDirectories);
  EXPECT_NE(store->open_note().find("d1/data.1 header at 0"), std::string::npos);
  const SlotTable table = store->make_table();
  for (std::size_t block = 0; block < table.block_count(); ++block) {
    const DriveExtent place = store->slot(table.entry(block).slot);
    const std::string path = store->path_of(place.file);
    ASSERT_TRUE(storage_->flip_bit(path, place.offset_bytes * 8));
    const auto bad = verify_store(*store).value();
    ASSERT_EQ(bad.size(), 1U);
    EXPECT_EQ(bad[0].block, block);
    EXPECT_NE(bad[0].message.find(path), std::string::npos) << bad[0].message;
    ASSERT_TRUE(storage_->flip_bit(path, place.offset_bytes * 8));
  }
}

TEST_F(StoreDrivesTest, EveryDataFileIsLocked) {
  make_on(kDirectories, 0);
  for (const char* path : {"d0/data.0", "d1/data.1", "d2/data.2"}) {
    auto held = storage_->open(path, {});
    ASSERT_TRUE(held && storage_->lock(held.value()));
    EXPECT_EQ(open_store(*storage_, kDirectories, quick_options(), true).error().code,
              Errc::kState);
    ASSERT_TRUE(storage_->close(held.value()));
  }
  EXPECT_TRUE(open_on(kDirectories)) << "a refusal leaves no lock behind";
}

TEST_F(StoreDrivesTest, AnUnfinishedCreationMayBeDoneAgain) {
  create_on(kDirectories).reset();
  expect_refused(kDirectories, Errc::kState, "did not finish");
  // One drive got less far than the others.
  ASSERT_TRUE(storage_->remove("d2/data.2"));
  expect_refused(kDirectories, Errc::kState, "did not finish");
  make_on(kDirectories, 1);
  expect_state(*open_on(kDirectories), 1);
}

// The third drive holds no manifest, and yet must not be taken for the rest of a creation.
TEST_F(StoreDrivesTest, NoDriveOfAStoreIsTakenForANewOne) {
  make_on(kDirectories, 1);
  for (const std::vector<std::string>& directories : {std::vector<std::string>{"d0", "f1", "f2"},
                                                      {"f0", "d1", "f2"},
                                                      {"f0", "f1", "d2"},
                                                      {"d2", "f1", "f2"},
                                                      {"f0", "d2", "f2"},
                                                      {"f0", "f1", "d1"}}) {
    auto store = create_store(*storage_, directories, geometry(), quick_options());
    ASSERT_FALSE(store);
    EXPECT_EQ(store.error().code, Errc::kState) << store.error().message;
  }
  expect_state(*open_on(kDirectories), 1);
}

// The power goes at every operation of a creation on three drives, and of the second try.
TEST_F(StoreDrivesTest, ACreationCutShortAnywhereMayBeDoneAgain) {
  std::vector<std::unique_ptr<SimStorage>> images;
  Timeline timeline(3);
  const auto record = [&](SimStorage& storage, std::uint64_t count) {
    storage.set_observer([&, count](std::uint64_t operation) {
      for (std::uint64_t i = 0; i < count; ++i) {
        images.push_back(storage.after_power_loss(timeline, mix64(9, operation, i)));
      }
    });
  };
  record(*storage_, 3);
  create_on(kDirectories).reset();
  storage_->set_observer({});
  auto first = std::move(images);
  ASSERT_GT(first.size(), 60U);
  for (auto& image : first) {
    images.clear();
    record(*image, 1);
    auto again = create_store(*image, kDirectories, geometry(), quick_options());
    ASSERT_TRUE(again) << again.error().message;
    image->set_observer({});
    for (const auto& second : images) {
      auto third = create_store(*second, kDirectories, geometry(), quick_options());
      ASSERT_TRUE(third) << third.error().message;
    }
  }
}

TEST_F(StoreDrivesTest, RefusesDirectoriesThatDoNotFitTheShares) {
  const auto code = [&](const std::vector<std::string>& directories) {
    auto store = create_store(*storage_, directories, geometry(), quick_options());
    return store ? Errc::kOk : store.error().code;
  };
  EXPECT_EQ(code({"g0", "g1"}), Errc::kArgument);
  EXPECT_EQ(code({"g0", "g1", "g2", "g3"}), Errc::kArgument);
  EXPECT_EQ(code({"g0", "g1", "g0"}), Errc::kArgument);
  EXPECT_FALSE(storage_->exists("g0").value());
}

TEST_F(StoreDrivesTest, ScratchSpreadsToo) {
  StoreOptions options = quick_options();
  options.scratch = true;
  auto store = create_store(*storage_, kDirectories, geometry(), options);
  ASSERT_TRUE(store) << store.error().message;
  SlotTable table = store.value()->make_table();
  write_all(*store.value(), table, 0);
  for (std::size_t block = 0; block < 6; ++block) {
    EXPECT_EQ(check_block(*store.value(), table, block, 0), "");
  }
  for (const std::string& directory : kDirectories) {
    EXPECT_TRUE(storage_->list(directory).value().empty());
  }
}

TEST_F(StoreDrivesTest, HoldsCheckpoints) {
  StoreGeometry with_room = geometry();
  with_room.pins = 1;
  {
    auto store = create_store(*storage_, kDirectories, with_room, quick_options());
    ASSERT_TRUE(store);
    SlotTable table = store.value()->make_table();
    write_all(*store.value(), table, 0);
    ASSERT_TRUE(commit_all(*store.value(), table, 0));
    auto change = store.value()->pin("x", false);
    ASSERT_TRUE(change);
    table.change_pins(change.value().kept, {});
    for (std::uint64_t step = 1; step < 4; ++step) {
      write_all(*store.value(), table, step);
      ASSERT_TRUE(commit_all(*store.value(), table, step));
    }
  }
  EXPECT_TRUE(storage_->exists("d0/pin.x.a").value());
  EXPECT_TRUE(storage_->exists("d1/pin.x.b").value());
  ASSERT_TRUE(storage_->remove("d0/pin.x.a"));
  ASSERT_TRUE(restore_pin(*storage_, {{"d2", "d1", "d0"}}, "x", quick_options()));
  expect_state(*open_on(kDirectories), 0);
}

}  // namespace
}  // namespace penstock::test
