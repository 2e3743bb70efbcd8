// What a drive may do to a store behind its back: rotten bits, lost and misdirected writes, cut and
// mixed files. Every damage must be found, named, and never read as data.

#include <gtest/gtest.h>

#include <map>

#include "io/store_fixture.hpp"
#include "io/store_format.hpp"
#include "io/store_layout.hpp"
#include "io/store_verify.hpp"

namespace penstock::test {
namespace {

bool mentions(const std::string& message, const std::string& text) {
  return message.find(text) != std::string::npos;
}

void flip_at(SimStorage& storage, const std::string& name, std::uint64_t byte, unsigned bit) {
  ASSERT_TRUE(storage.flip_bit(kDirectory + "/" + name, byte * 8 + bit));
}

// One bit in every 512-byte sector that a committed slot uses, paddings and sums included.
TEST_F(StoreTest, AFlippedBitInAnySectorIsFoundAndNamed) {
  make_committed(2);
  auto store = open(false);
  ASSERT_TRUE(store);
  const SlotTable table = store->make_table();
  ASSERT_TRUE(verify_store(*store).value().empty());
  std::size_t sectors = 0;
  for (std::size_t block = 0; block < table.block_count(); ++block) {
    const std::uint64_t slot = store->slot(table.entry(block).slot).offset_bytes;
    for (std::size_t s = 0; s < store->geometry().sections.size(); ++s) {
      const SectionExtent& extent = store->extents(block)[s];
      for (std::uint64_t at = 0; at < extent.total_bytes(); at += 512) {
        const std::uint64_t byte = slot + extent.data_offset + at + mix64(1, block, at) % 512;
        const unsigned bit = mix64(2, block, at) % 8;
        flip_at(*storage_, "data.0", byte, bit);
        const auto bad = verify_store(*store).value();
        ASSERT_EQ(bad.size(), 1U) << "byte " << byte;
        EXPECT_EQ(bad[0].block, block);
        EXPECT_EQ(bad[0].section, s);
        EXPECT_TRUE(
            mentions(bad[0].message, "data.0 at offset " + std::to_string(bad[0].offset_bytes)));
        const bool harmless = bad[0].kind == SectionFaultKind::kPadding;
        if (harmless) {
          EXPECT_EQ(bad[0].offset_bytes, byte);
        }
        EXPECT_EQ(check_block(*store, table, block, block == 5 ? 0 : 2).empty(), harmless);
        flip_at(*storage_, "data.0", byte, bit);
        ++sectors;
      }
    }
  }
  EXPECT_GT(sectors, 300U);
  EXPECT_TRUE(verify_store(*store).value().empty());
}

TEST_F(StoreTest, ReadSectionNamesBlockSectionTileFileAndOffset) {
  make_committed(0);
  auto store = open();
  ASSERT_TRUE(store);
  store->set_block_namer([](std::size_t block) { return "tensor h." + std::to_string(block); });
  const SlotTable table = store->make_table();
  const SectionExtent& extent = store->extents(1)[2];
  const std::uint64_t tile_offset =
      store->slot(table.entry(1).slot).offset_bytes + extent.data_offset + 2 * 512;
  flip_at(*storage_, "data.0", tile_offset + 100, 3);
  PageBuffer buffer(extent.total_bytes());
  const Status read = store->read_section(1, 2, table.entry(1), buffer.span());
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Errc::kCorrupt);
  for (const std::string& part :
       {std::string("tensor h.1"), std::string("\"m\""), std::string("tile 2"),
        kDirectory + "/data.0", "offset " + std::to_string(tile_offset)}) {
    EXPECT_TRUE(mentions(read.error().message, part)) << part << ": " << read.error().message;
  }
}

TEST_F(StoreTest, ReadSectionRefusesWhatIsNotOnTheDriveAndSmallBuffers) {
  make_committed(0);
  auto store = open();
  ASSERT_TRUE(store);
  SlotEntry entry = store->make_table().entry(0);
  PageBuffer buffer(4096);
  EXPECT_EQ(store->read_section(0, 0, entry, buffer.span()).error().code, Errc::kArgument);
  entry.written = 0;
  EXPECT_EQ(store->read_section(0, 0, entry, buffer.span()).error().code, Errc::kState);
  entry.slot = kNoSlot;
  EXPECT_EQ(store->read_unchecked(0, 0, entry, buffer.span()).error().code, Errc::kArgument);
}

TEST_F(StoreTest, PassingReadErrorsHealOnReRead) {
  make_committed(0);
  auto store = open();
  ASSERT_TRUE(store);
  const SlotTable table = store->make_table();
  SimFaults faults;
  faults.corrupt_read = 65536 / 8;
  faults.read_error = 65536 / 8;
  storage_->set_faults(faults);
  std::size_t good = 0, bad = 0;
  for (int round = 0; round < 20; ++round) {
    for (std::size_t block = 0; block < 6; ++block) {
      const std::string problem = check_block(*store, table, block, 0);
      // Three bad reads in a row are rare; then the error must be one of these two.
      if (problem.empty()) ++good;
      if (problem.empty()) continue;
      ++bad;
      EXPECT_TRUE(mentions(problem, "checksum") || mentions(problem, "read")) << problem;
    }
  }
  EXPECT_GT(good, 90U);
  EXPECT_LT(bad, 30U);
}

TEST_F(StoreTest, AMisdirectedWholeBlockIsFound) {
  make_committed(1);
  auto store = open(false);
  ASSERT_TRUE(store);
  const SlotTable table = store->make_table();
  PageBuffer slot(store->slot_bytes());
  const DriveExtent from = store->slot(table.entry(0).slot), to = store->slot(table.entry(1).slot);
  ASSERT_TRUE(storage_->read_at(from.file, from.offset_bytes, slot.span()));
  overwrite("data.0", to.offset_bytes, slot.span());
  const auto bad = verify_store(*store).value();
  ASSERT_EQ(bad.size(), 4U) << "all four sections of block 1, and nothing else";
  for (const BadTile& tile : bad) EXPECT_EQ(tile.block, 1U);
  EXPECT_NE(check_block(*store, table, 1, 1), "");
  EXPECT_EQ(check_block(*store, table, 0, 1), "");
}

// A drive that acknowledged a write and dropped it leaves an older, self-consistent version.
TEST_F(StoreTest, AStaleBlockIsFound) {
  auto store = create();
  SlotTable table = store->make_table();
  std::map<SlotIndex, PageBuffer> before;
  for (std::uint64_t step = 0; step < 3; ++step) {
    write_all(*store, table, step);
    ASSERT_TRUE(commit_all(*store, table, step));
    if (step != 0) continue;
    for (std::size_t block = 0; block < 5; ++block) {
      const SlotIndex slot = table.entry(block).slot;
      PageBuffer bytes(store->slot_bytes());
      const DriveExtent place = store->slot(slot);
      ASSERT_TRUE(storage_->read_at(place.file, place.offset_bytes, bytes.span()));
      before.emplace(slot, std::move(bytes));
    }
  }
  store.reset();
  store = open(false);
  ASSERT_TRUE(store);
  const SlotTable now = store->make_table();
  for (std::size_t block = 0; block < 5; ++block) {
    auto old = before.find(now.entry(block).slot);
    ASSERT_NE(old, before.end()) << "version 2 lies where version 0 was";
    overwrite("data.0", store->slot(old->first).offset_bytes, old->second.span());
    EXPECT_NE(check_block(*store, now, block, 2), "") << block;
  }
}

TEST_F(StoreTest, EitherHeaderIsEnoughAndBothBadIsCorrupt) {
  make_committed(0);
  for (const std::uint64_t copy : {0U, 1U}) {
    flip_at(*storage_, "data.0", copy * 4096 + 60, 1);
    auto store = open();
    ASSERT_TRUE(store);
    expect_state(*store, 0);
    EXPECT_TRUE(mentions(store->open_note(), "header at " + std::to_string(copy * 4096)));
    store.reset();
    flip_at(*storage_, "data.0", copy * 4096 + 60, 1);
  }
  flip_at(*storage_, "data.0", 60, 1);
  flip_at(*storage_, "data.0", 4096 + 60, 1);
  EXPECT_EQ(open_error().code, Errc::kCorrupt);
}

TEST_F(StoreTest, HeadersOfTwoStoresAreCorrupt) {
  make_committed(0);
  DataHeader header = decode_header(bytes_of("data.0"), "x").value();
  header.uuid.low += 1;
  PageBuffer page(4096);
  encode_header(header, page.span());
  overwrite("data.0", 4096, page.span());
  EXPECT_EQ(open_error().code, Errc::kCorrupt);
  EXPECT_TRUE(mentions(open_error().message, "differ"));
}

class StoreHeaderTest : public StoreTest {
 protected:
  void write_headers(const DataHeader& header) {
    PageBuffer pages(8192);
    encode_header(header, pages.first(4096));
    encode_header(header, pages.span().subspan(4096));
    overwrite("data.0", 0, pages.span());
  }
};

TEST_F(StoreHeaderTest, NewerHeadersAreUnsupportedWithAdvice) {
  make_committed(0);
  const DataHeader good = decode_header(bytes_of("data.0"), "x").value();
  DataHeader newer = good, feature = good;
  newer.major += 1;
  feature.incompatible_bits = 4;
  for (const DataHeader& header : {newer, feature}) {
    write_headers(header);
    EXPECT_EQ(open_error().code, Errc::kUnsupported);
    EXPECT_TRUE(mentions(open_error().message, "newer")) << open_error().message;
  }
}

TEST_F(StoreTest, NewerMinorsAndUnknownCompatibleFeaturesAreIgnored) {
  make_committed(1);
  DataHeader header = decode_header(bytes_of("data.0"), "x").value();
  header.minor += 1;
  header.compatible_bits = std::uint64_t{1} << 63 | 5;
  PageBuffer pages(8192);
  encode_header(header, pages.first(4096));
  encode_header(header, pages.span().subspan(4096));
  overwrite("data.0", 0, pages.span());
  auto store = open();
  ASSERT_TRUE(store);
  expect_state(*store, 1);
  SlotTable table = store->make_table();
  write_all(*store, table, 2);
  ASSERT_TRUE(commit_all(*store, table, 2));
  store.reset();
  EXPECT_EQ(decode_header(bytes_of("data.0"), "x").value().compatible_bits, header.compatible_bits)
      << "what is not understood is left as it is";
  auto again = open();
  ASSERT_TRUE(again);
  expect_state(*again, 2);
}

TEST_F(StoreTest, CutAndExtendedDataFilesAreCorrupt) {
  make_committed(0);
  const std::vector<std::byte> whole = bytes_of("data.0");
  const auto with_length = [&](std::size_t length) {
    std::vector<std::byte> bytes = whole;
    bytes.resize(length);
    EXPECT_TRUE(replace_file(*storage_, kDirectory + "/data.0", bytes));
    return open_error();
  };
  EXPECT_EQ(with_length(whole.size() - 4096).code, Errc::kCorrupt);
  EXPECT_TRUE(mentions(with_length(whole.size() - 4096).message, "cut"));
  EXPECT_EQ(with_length(whole.size() + 4096).code, Errc::kCorrupt);
  EXPECT_TRUE(mentions(with_length(whole.size() + 4096).message, "extended"));
  EXPECT_EQ(with_length(4096).code, Errc::kCorrupt);
  EXPECT_EQ(with_length(0).code, Errc::kCorrupt);
  EXPECT_EQ(with_length(whole.size()).code, Errc::kOk);
}

TEST_F(StoreTest, EitherManifestIsEnough) {
  make_committed(2);
  for (const std::string copy : {"a", "b"}) {
    flip_at(*storage_, "manifest.2." + copy, 50, 1);
    auto store = open();
    ASSERT_TRUE(store);
    expect_state(*store, 2);
    if (copy == "a") {
      EXPECT_TRUE(mentions(store->open_note(), "manifest.2.a"));
    }
    store.reset();
    flip_at(*storage_, "manifest.2." + copy, 50, 1);
  }
  ASSERT_TRUE(storage_->remove(kDirectory + "/manifest.2.a"));
  auto store = open();
  ASSERT_TRUE(store);
  expect_state(*store, 2);
}

TEST_F(StoreTest, WithoutItsNewestManifestAStoreFallsBackOnlyToAWholeState) {
  make_committed(2);
  flip_at(*storage_, "manifest.2.a", 50, 1);
  flip_at(*storage_, "manifest.2.b", 90, 1);
  {
    // Nothing was written since, so step 1 is still whole.
    auto store = open();
    ASSERT_TRUE(store);
    expect_state(*store, 1);
    EXPECT_TRUE(mentions(store->open_note(), "step 1 was used instead")) << store->open_note();
    SlotTable table = store->make_table();
    write_version(*storage_, *store, table, 0, 2);  // into a slot of the lost step 2
  }
  auto store = open();
  ASSERT_TRUE(store) << "rule 1 holds for the older step too";
  expect_state(*store, 1);
  const std::uint64_t byte = store->slot(store->make_table().entry(3).slot).offset_bytes;
  store.reset();
  flip_at(*storage_, "data.0", byte, 0);
  EXPECT_EQ(open_error().code, Errc::kCorrupt);
  EXPECT_TRUE(mentions(open_error().message, "no longer whole")) << open_error().message;
}

TEST_F(StoreTest, ACommitAfterAFallbackReplacesTheBadManifests) {
  make_committed(4);
  flip_at(*storage_, "manifest.4.a", 50, 1);
  flip_at(*storage_, "manifest.4.b", 90, 1);
  {
    auto store = open();
    ASSERT_TRUE(store);
    SlotTable table = store->make_table();
    write_all(*store, table, 4);
    ASSERT_TRUE(commit_all(*store, table, 4));
  }
  auto store = open();
  ASSERT_TRUE(store);
  expect_state(*store, 4);
  EXPECT_EQ(store->open_note(), "");
}

TEST_F(StoreTest, NoManifestOfAnotherStoreOrStepIsUsed) {
  make_committed(1);
  const std::vector<std::byte> own = bytes_of("manifest.1.a");
  const auto with_manifest = [&](const std::vector<std::byte>& bytes) {
    for (const std::string copy : {"a", "b"}) {
      EXPECT_TRUE(replace_file(*storage_, kDirectory + "/manifest.9." + copy, bytes));
    }
    auto store = open_store(*storage_, kDirectory, quick_options(), true);
    EXPECT_TRUE(store) << store.error().message;
    EXPECT_EQ(store.value()->committed().step, 1U);
    return store.value()->open_note();
  };
  EXPECT_TRUE(mentions(with_manifest(own), "is the manifest of commit 1"));
  Manifest manifest = decode_manifest(own, "x").value();
  manifest.sequence = 9;
  manifest.uuid.high += 1;
  EXPECT_TRUE(mentions(with_manifest(encode_manifest(manifest).value()), "another store"));
  manifest = decode_manifest(own, "x").value();
  manifest.sequence = 9;
  manifest.table[1].entry.slot = manifest.table[0].entry.slot;
  EXPECT_TRUE(mentions(with_manifest(encode_manifest(manifest).value()), "impossible entry"));
  manifest.table[1].entry.slot = 1000;
  EXPECT_TRUE(mentions(with_manifest(encode_manifest(manifest).value()), "impossible entry"));
  manifest = decode_manifest(own, "x").value();
  manifest.sequence = 9;
  manifest.geometry.blocks[0].lengths[0] = std::uint64_t{1} << 30;
  EXPECT_TRUE(mentions(with_manifest(encode_manifest(manifest).value()), "another layout"));
  manifest.geometry.blocks[0].lengths[0] = ~std::uint64_t{0};
  EXPECT_TRUE(mentions(with_manifest(encode_manifest(manifest).value()), "malformed"));
  EXPECT_TRUE(mentions(with_manifest({}), "cut short"));
}

TEST_F(StoreTest, ANewerManifestIsUnsupportedNotPassedOver) {
  make_committed(1);
  Manifest manifest = decode_manifest(bytes_of("manifest.1.a"), "x").value();
  manifest.sequence = 2;
  manifest.incompatible_bits = 1;
  const auto bytes = encode_manifest(manifest).value();
  ASSERT_TRUE(replace_file(*storage_, kDirectory + "/manifest.2.a", bytes));
  EXPECT_EQ(open_error().code, Errc::kUnsupported);
}

TEST_F(StoreTest, VerifyReportsAllDamageAndProgress) {
  make_committed(0);
  auto store = open(false);
  ASSERT_TRUE(store);
  const SlotTable table = store->make_table();
  const std::uint64_t first = store->slot(table.entry(0).slot).offset_bytes;
  flip_at(*storage_, "data.0", first, 0);
  flip_at(*storage_, "data.0", first + 3 * 256, 0);
  flip_at(*storage_, "data.0", store->slot(table.entry(4).slot).offset_bytes + 1, 0);
  std::uint64_t last = 0, all = 0;
  const auto bad = verify_store(*store, [&](std::uint64_t done, std::uint64_t total) {
                     EXPECT_GT(done, last);
                     last = done;
                     all = total;
                   }).value();
  EXPECT_EQ(last, all);
  EXPECT_GT(all, 0U);
  ASSERT_EQ(bad.size(), 3U);
  EXPECT_EQ(bad[0].tile, 0U);
  EXPECT_EQ(bad[1].tile, 3U);
  EXPECT_EQ(bad[2].block, 4U);
}

}  // namespace
}  // namespace penstock::test
