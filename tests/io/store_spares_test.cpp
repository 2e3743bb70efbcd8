// A running store needs no space: manifests are written over files that were made before.

#include "io/store_spares.hpp"

#include <algorithm>

#include "io/forwarding_storage.hpp"
#include "io/store_fixture.hpp"
#include "io/store_pins.hpp"

namespace penstock::test {
namespace {

class StoreSparesTest : public StoreTest {
 protected:
  void fill_drive() {
    SimFaults faults;
    faults.full = true;
    storage_->set_faults(faults);
  }
  std::size_t count_spares() {
    const auto names = storage_->list(kDirectory).value();
    return static_cast<std::size_t>(
        std::count_if(names.begin(), names.end(),
                      [](const std::string& name) { return parse_spare_name(name).has_value(); }));
  }
  std::string commit_steps(Store& store, SlotTable& table, std::uint64_t first,
                           std::uint64_t last) {
    for (std::uint64_t step = first; step <= last; ++step) {
      write_all(store, table, step);
      const Status done = commit_all(store, table, step);
      if (!done) return "step " + std::to_string(step) + ": " + done.error().message;
    }
    return {};
  }
};

TEST_F(StoreSparesTest, CommitsNeedNoSpace) {
  auto store = create();
  SlotTable table = store->make_table();
  fill_drive();
  EXPECT_EQ(commit_steps(*store, table, 0, 6), "");
  expect_state(*store, 6);
  EXPECT_EQ(count_spares(), 2U);  // beside two commits of two copies each
}

TEST_F(StoreSparesTest, AStoreThatWasKilledGoesOnWithoutSpace) {
  make_committed(3);
  // Killed amid a commit: its manifests have temporary names.
  for (const char* copy : {"a", "b"}) {
    const auto names = storage_->list(kDirectory).value();
    const auto spare = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
      return parse_spare_name(name) == copy[0];
    });
    ASSERT_NE(spare, names.end());
    ASSERT_TRUE(
        storage_->rename(kDirectory + "/" + *spare, kDirectory + "/manifest.4." + copy + ".tmp"));
  }
  auto again = open();
  EXPECT_FALSE(exists("manifest.4.a.tmp"));
  fill_drive();
  SlotTable table = again->make_table();
  EXPECT_EQ(commit_steps(*again, table, 4, 8), "");
  expect_state(*again, 8);
}

TEST_F(StoreSparesTest, AtWhateverMomentItWasKilledItGoesOnWithoutSpace) {
  auto store = create();
  SlotTable table = store->make_table();
  ASSERT_EQ(commit_steps(*store, table, 0, 3), "");
  std::vector<std::unique_ptr<SimStorage>> images;
  storage_->set_observer([&](std::uint64_t) { images.push_back(storage_->after_kill(timeline_)); });
  ASSERT_EQ(commit_steps(*store, table, 4, 4), "");
  storage_->set_observer({});
  ASSERT_GT(images.size(), 10U);
  SimFaults full;
  full.full = true;
  for (std::size_t i = 0; i < images.size(); ++i) {
    auto again = open_store(*images[i], kDirectory, quick_options(), true);
    ASSERT_TRUE(again) << i << ": " << again.error().message;
    images[i]->set_faults(full);
    SlotTable rows = again.value()->make_table();
    for (std::uint64_t step = 5; step < 8; ++step) {
      const Status done = commit_all(*again.value(), rows, step);
      ASSERT_TRUE(done) << "image " << i << " step " << step << ": " << done.error().message;
    }
    const auto names = images[i]->list(kDirectory).value();
    const auto manifests = std::count_if(names.begin(), names.end(), [](const std::string& name) {
      return parse_manifest_name(name) || parse_spare_name(name);
    });
    EXPECT_EQ(manifests, 6) << "image " << i;
  }
}

TEST_F(StoreSparesTest, RotationNeedsNoSpace) {
  StoreGeometry geometry = small_geometry();
  geometry.pins = 2;
  auto store = create(geometry);
  SlotTable table = store->make_table();
  fill_drive();
  for (std::uint64_t step = 0; step < 8; ++step) {
    ASSERT_EQ(commit_steps(*store, table, step, step), "");
    auto kept = begin_rotation(*store);
    ASSERT_TRUE(kept) << kept.error().message;
    table.change_pins(kept.value().kept, kept.value().dropped);
    auto dropped = finish_rotation(*store, 2);
    ASSERT_TRUE(dropped) << dropped.error().message;
    table.change_pins(dropped.value().kept, dropped.value().dropped);
  }
  EXPECT_EQ(store->pins().size(), 2U);
  // Three commits at most, two checkpoints and one more, of two copies each.
  EXPECT_EQ(count_spares() + 2 * (2 + 2), 2U * (3 + 3));
}

TEST_F(StoreSparesTest, WhatASpareHoldsMeansNothing) {
  make_committed(2);
  const auto names = storage_->list(kDirectory).value();
  for (const std::string& name : names) {
    if (!parse_spare_name(name)) continue;
    std::vector<std::byte> junk(9000, std::byte{0xa5});
    std::fill_n(junk.begin(), 4096, std::byte{0});  // as a power loss may leave it
    ASSERT_TRUE(replace_file(*storage_, kDirectory + "/" + name, junk));
  }
  const std::size_t count = count_spares();
  auto store = open();
  EXPECT_EQ(count_spares(), count);
  expect_state(*store, 2);
  SlotTable table = store->make_table();
  EXPECT_EQ(commit_steps(*store, table, 3, 6), "");
  EXPECT_EQ(count_spares(), count);
  store.reset();
  expect_state(*open(), 6);
}

TEST_F(StoreSparesTest, AManifestLongerThanTheFileIsCutShort) {
  make_committed(1);
  for (const char* name : {"manifest.1.a", "manifest.1.b"}) {
    const auto bytes = bytes_of(name);
    ASSERT_TRUE(
        replace_file(*storage_, kDirectory + "/" + name, std::span(bytes).first(bytes.size() - 1)));
  }
  auto store = open();
  expect_state(*store, 0);
}

/// A directory that has to grow for names, as on xfs.
class SmallDirectories final : public ForwardingStorage {
 public:
  using ForwardingStorage::ForwardingStorage;
  std::uint64_t names_room_bytes(const std::string&) const override { return 1024; }
};

TEST_F(StoreSparesTest, ASmallDirectoryIsKeptLarge) {
  SmallDirectories drive(*storage_);
  const auto bytes_of_room = [&] {
    const auto names = storage_->list(kDirectory).value();
    std::size_t bytes = 0;
    for (const std::string& name : names) bytes += is_room_name(name) ? name.size() : 0;
    return bytes;
  };
  ASSERT_TRUE(create_store(drive, kDirectory, small_geometry(), quick_options()));
  EXPECT_GE(bytes_of_room(), 1024U);
  EXPECT_LT(bytes_of_room(), 2048U);
  EXPECT_FALSE(is_room_name("room.0.x"));
}

TEST(SpareNamesTest, OnlyTheOneSpellingIsOurs) {
  EXPECT_EQ(parse_spare_name("spare.0.a"), 'a');
  EXPECT_EQ(parse_spare_name("spare.9007199254740992.b"), 'b');
  for (const char* name :
       {"spare.a", "spare.01.a", "spare.-1.a", "spare.1.c", "spare.1.a.tmp",
        "spare.9007199254740993.a", "spare.18446744073709551616.a", "spares.1.a", "spare.1"}) {
    EXPECT_FALSE(parse_spare_name(name)) << name;
  }
}

}  // namespace
}  // namespace penstock::test
