// Method: round trips; every single-bit flip; every truncation; then the same attacks with the hash
// made right again, since a hostile file has a right hash.

#include "io/store_format.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "base/checksum.hpp"
#include "base/random.hpp"
#include "io/store_layout.hpp"

namespace penstock {
namespace {

using Bytes = std::vector<std::byte>;

DataHeader sample_header() {
  DataHeader header;
  header.uuid = {0x1122334455667788U, 0x99AABBCCDDEEFF00U};
  header.compatible_bits = 1;
  header.file_index = 1;
  header.file_count = 2;
  header.slot_bytes = 12288;
  header.slot_count = 11;
  header.slots_offset_bytes = kSlotsOffsetBytes;
  header.spill_offset_bytes = std::uint64_t{4} << 20;
  header.spill_bytes = 4096;
  header.file_bytes = (std::uint64_t{4} << 20) + 4096;
  header.layout_hash = 42;
  return header;
}

Manifest sample_manifest() {
  Manifest manifest;
  manifest.uuid = {7, 8};
  manifest.sums_uuid = {9, 10};
  manifest.sequence = 14;
  manifest.rank = 1;
  manifest.rank_count = 3;
  manifest.geometry.drives = {1, 2};
  manifest.geometry.pins = 2;
  manifest.record.step = 12;
  manifest.record.updates = 11;
  manifest.record.blob = {std::byte{1}, std::byte{2}, std::byte{3}};
  manifest.geometry.sections = {{"hi", "bf16", true, 256}, {"scales", "f32", false, 64}};
  manifest.geometry.blocks = {{100, {1000, 0}, false}, {101, {1, 4097}, true}};
  manifest.geometry.spill_bytes = {17};
  manifest.geometry.description = "{\"tensors\":[]}";
  manifest.geometry.layout_hash = 43;
  manifest.table.resize(2);
  manifest.table[0] = {{3, 11, 1, {9}}, 0};
  manifest.table[1] = {{4, 0, 3, {10, 12}}, 1};
  return manifest;
}

Bytes sample_header_bytes() {
  Bytes page(kHeaderBytes);
  encode_header(sample_header(), page);
  return page;
}

Bytes sample_manifest_bytes() {
  auto bytes = encode_manifest(sample_manifest());
  EXPECT_TRUE(bytes);
  return std::move(bytes).value();
}

void reseal(Bytes& bytes) {
  const Hash128 hash = hash128(std::span(bytes).first(bytes.size() - 16));
  std::memcpy(bytes.data() + bytes.size() - 16, &hash.low, 8);
  std::memcpy(bytes.data() + bytes.size() - 8, &hash.high, 8);
}

template <class T>
void put(Bytes& bytes, std::size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(T));
}

void flip(Bytes& bytes, std::size_t bit) {
  bytes[bit / 8] ^= std::byte{static_cast<unsigned char>(1U << (bit % 8))};
}

void expect_same(const Manifest& x, const Manifest& y) {
  EXPECT_EQ(x.uuid, y.uuid);
  EXPECT_EQ(x.sums_uuid, y.sums_uuid);
  EXPECT_EQ(x.sequence, y.sequence);
  EXPECT_EQ(x.rank, y.rank);
  EXPECT_EQ(x.rank_count, y.rank_count);
  EXPECT_EQ(x.geometry.drives, y.geometry.drives);
  EXPECT_EQ(x.geometry.pins, y.geometry.pins);
  EXPECT_EQ(x.record.step, y.record.step);
  EXPECT_EQ(x.record.updates, y.record.updates);
  EXPECT_EQ(x.record.blob, y.record.blob);
  EXPECT_EQ(x.geometry.spill_bytes, y.geometry.spill_bytes);
  EXPECT_EQ(x.geometry.description, y.geometry.description);
  EXPECT_EQ(x.geometry.layout_hash, y.geometry.layout_hash);
  ASSERT_EQ(x.geometry.sections.size(), y.geometry.sections.size());
  for (std::size_t i = 0; i < x.geometry.sections.size(); ++i) {
    EXPECT_EQ(x.geometry.sections[i].name, y.geometry.sections[i].name);
    EXPECT_EQ(x.geometry.sections[i].codec, y.geometry.sections[i].codec);
    EXPECT_EQ(x.geometry.sections[i].is_mutable, y.geometry.sections[i].is_mutable);
    EXPECT_EQ(x.geometry.sections[i].tile_bytes, y.geometry.sections[i].tile_bytes);
  }
  ASSERT_EQ(x.geometry.blocks.size(), y.geometry.blocks.size());
  ASSERT_EQ(x.table.size(), y.table.size());
  for (std::size_t i = 0; i < x.table.size(); ++i) {
    EXPECT_EQ(x.geometry.blocks[i].key, y.geometry.blocks[i].key);
    EXPECT_EQ(x.geometry.blocks[i].lengths, y.geometry.blocks[i].lengths);
    EXPECT_EQ(x.geometry.blocks[i].frozen, y.geometry.blocks[i].frozen);
    EXPECT_EQ(x.table[i].file_index, y.table[i].file_index);
    EXPECT_EQ(x.table[i].entry.slot, y.table[i].entry.slot);
    EXPECT_EQ(x.table[i].entry.version, y.table[i].entry.version);
    EXPECT_EQ(x.table[i].entry.written, y.table[i].entry.written);
    for (std::size_t s = 0; s < kMaxSections; ++s) {
      EXPECT_EQ(x.table[i].entry.roots[s], y.table[i].entry.roots[s]);
    }
  }
}

TEST(StoreFormatTest, HeaderRoundTrips) {
  auto decoded = decode_header(sample_header_bytes(), "x");
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_EQ(decoded.value(), sample_header());
}

TEST(StoreFormatTest, ManifestRoundTrips) {
  auto decoded = decode_manifest(sample_manifest_bytes(), "x");
  ASSERT_TRUE(decoded) << decoded.error().message;
  expect_same(decoded.value(), sample_manifest());
}

// Files of this version must stay readable: these digests change only with the format's version.
TEST(StoreFormatTest, BytesAreThoseOfVersionTwo) {
  EXPECT_EQ(to_hex(hash128(sample_header_bytes())), "3a02a0fe93a530574a53c35d979c43cc");
  EXPECT_EQ(to_hex(hash128(sample_manifest_bytes())), "edb9709836eef2dfc33ff86a7a3ea597");
  EXPECT_EQ(to_hex(sum_seed({1, 2}, 3, 4, 5, 6)), "eb8fe4bd1b35242d");
}

TEST(StoreFormatTest, SeedDependsOnEveryPart) {
  const std::uint64_t base = sum_seed({1, 2}, 3, 4, 5, 6);
  EXPECT_NE(base, sum_seed({0, 2}, 3, 4, 5, 6));
  EXPECT_NE(base, sum_seed({1, 0}, 3, 4, 5, 6));
  EXPECT_NE(base, sum_seed({1, 2}, 0, 4, 5, 6));
  EXPECT_NE(base, sum_seed({1, 2}, 3, 0, 5, 6));
  EXPECT_NE(base, sum_seed({1, 2}, 3, 4, 0, 6));
  EXPECT_NE(base, sum_seed({1, 2}, 3, 4, 5, kRootTile));
}

TEST(StoreFormatTest, EveryBitFlipOfAHeaderIsCorrupt) {
  Bytes bytes = sample_header_bytes();
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    flip(bytes, bit);
    auto decoded = decode_header(bytes, "data.0");
    ASSERT_FALSE(decoded) << "bit " << bit;
    ASSERT_EQ(decoded.error().code, Errc::kCorrupt) << "bit " << bit;
    flip(bytes, bit);
  }
}

TEST(StoreFormatTest, EveryBitFlipOfAManifestIsCorrupt) {
  Bytes bytes = sample_manifest_bytes();
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    flip(bytes, bit);
    auto decoded = decode_manifest(bytes, "manifest.12.a");
    ASSERT_FALSE(decoded) << "bit " << bit;
    ASSERT_EQ(decoded.error().code, Errc::kCorrupt) << "bit " << bit;
    ASSERT_NE(decoded.error().message.find("manifest.12.a"), std::string::npos);
    flip(bytes, bit);
  }
}

TEST(StoreFormatTest, EveryTruncationIsCorrupt) {
  const Bytes header = sample_header_bytes(), manifest = sample_manifest_bytes();
  for (std::size_t length = 0; length < header.size(); ++length) {
    // An exact allocation, so that the address sanitizer sees the first byte beyond.
    const Bytes cut(header.begin(), header.begin() + static_cast<std::ptrdiff_t>(length));
    ASSERT_FALSE(decode_header(cut, "x"));
  }
  for (std::size_t length = 0; length < manifest.size(); ++length) {
    Bytes cut(manifest.begin(), manifest.begin() + static_cast<std::ptrdiff_t>(length));
    ASSERT_FALSE(decode_manifest(cut, "x"));
    if (length < 16) continue;
    reseal(cut);
    const auto decoded = decode_manifest(cut, "x");
    ASSERT_FALSE(decoded) << length;
    ASSERT_EQ(decoded.error().code, Errc::kCorrupt);
  }
  Bytes longer = manifest;
  longer.resize(longer.size() + 8);
  reseal(longer);
  EXPECT_FALSE(decode_manifest(longer, "x"));
}

TEST(StoreFormatTest, HostileBytesWithARightHashNeverHarm) {
  const Bytes good = sample_manifest_bytes();
  std::size_t accepted = 0;
  for (std::uint64_t round = 0; round < 40000; ++round) {
    Bytes bytes = good;
    const std::uint64_t changes = 1 + mix64(1, round, 0) % 4;
    for (std::uint64_t i = 0; i < changes; ++i) {
      const std::size_t at = mix64(2, round, i) % (bytes.size() - 16);
      const std::uint64_t value = mix64(3, round, i);
      bytes[at] = value % 3 == 0 ? std::byte{0xFF} : std::byte{static_cast<unsigned char>(value)};
    }
    if (mix64(4, round, 0) % 4 == 0) bytes.resize(16 + mix64(5, round, 0) % (bytes.size() * 2));
    reseal(bytes);
    auto decoded = decode_manifest(bytes, "x");
    if (!decoded) continue;
    ++accepted;
    static_cast<void>(plan_layout(decoded.value().geometry, false));
  }
  EXPECT_GT(accepted, 100U) << "the changes must reach behind the first checks";
}

// Offsets are those of the byte table in store_format.hpp.
TEST(StoreFormatTest, HugeCountsAreRefusedBeforeAnythingIsAllocated) {
  constexpr std::size_t kCountOffsets[] = {96, 104, 112, 120};
  for (const std::size_t offset : kCountOffsets) {
    for (const std::uint64_t count : {~std::uint64_t{0}, std::uint64_t{1} << 61,
                                      std::uint64_t{1} << 32, kMaxBlocks, std::uint64_t{1} << 20}) {
      Bytes bytes = sample_manifest_bytes();
      put(bytes, offset, count);
      reseal(bytes);
      auto decoded = decode_manifest(bytes, "x");
      ASSERT_FALSE(decoded) << offset << " " << count;
      EXPECT_EQ(decoded.error().code, Errc::kCorrupt);
    }
  }
  Bytes bytes = sample_manifest_bytes();
  put(bytes, 92, std::uint32_t{9});  // sections
  reseal(bytes);
  EXPECT_FALSE(decode_manifest(bytes, "x"));
  for (const std::uint32_t files : {0U, 65U, ~0U}) {
    bytes = sample_manifest_bytes();
    put(bytes, 88, files);
    reseal(bytes);
    EXPECT_FALSE(decode_manifest(bytes, "x")) << files;
  }
}

TEST(StoreFormatTest, NewerMajorsAndUnknownFeaturesAreUnsupportedNotCorrupt) {
  for (const bool is_header : {true, false}) {
    const auto decode = [&](const Bytes& bytes) {
      if (!is_header) return decode_manifest(bytes, "x").error();
      return decode_header(bytes, "x").error();
    };
    const Bytes good = is_header ? sample_header_bytes() : sample_manifest_bytes();
    Bytes newer = good;
    put(newer, 8, kFormatMajor + 1);
    reseal(newer);
    EXPECT_EQ(decode(newer).code, Errc::kUnsupported);
    EXPECT_NE(decode(newer).message.find("newer"), std::string::npos);
    Bytes feature = good;
    put(feature, 24, std::uint64_t{1} << 63);
    reseal(feature);
    EXPECT_EQ(decode(feature).code, Errc::kUnsupported);
    Bytes older = good;
    put(older, 8, std::uint32_t{1});
    reseal(older);
    EXPECT_EQ(decode(older).code, Errc::kUnsupported);
    EXPECT_NE(decode(older).message.find("create the store again"), std::string::npos);
    Bytes ancient = good;
    put(ancient, 8, std::uint32_t{0});
    reseal(ancient);
    EXPECT_EQ(decode(ancient).code, Errc::kCorrupt);
  }
}

TEST(StoreFormatTest, NewerMinorsAndCompatibleFeaturesAreAccepted) {
  Bytes bytes = sample_manifest_bytes();
  put(bytes, 12, std::uint32_t{9});
  put(bytes, 16, ~std::uint64_t{0});
  reseal(bytes);
  EXPECT_TRUE(decode_manifest(bytes, "x"));
}

TEST(StoreFormatTest, RefusesABlobBeyondTheLimit) {
  Manifest manifest = sample_manifest();
  manifest.record.blob.resize(kMaxBlobBytes);
  EXPECT_TRUE(encode_manifest(manifest));
  manifest.record.blob.resize(kMaxBlobBytes + 1);
  EXPECT_EQ(encode_manifest(manifest).error().code, Errc::kArgument);
}

TEST(StoreFormatTest, RefusesACommitBeyondTheLast) {
  Manifest manifest = sample_manifest();
  manifest.sequence = kLastSequence;
  EXPECT_TRUE(decode_manifest(encode_manifest(manifest).value(), "x"));
  manifest.sequence = kLastSequence + 1;
  const auto decoded = decode_manifest(encode_manifest(manifest).value(), "x");
  ASSERT_FALSE(decoded);
  EXPECT_EQ(decoded.error().code, Errc::kCorrupt);
  EXPECT_EQ(decoded.error().message,
            "x says it is commit 9007199254740993, there are none beyond 9007199254740992");
}

TEST(StoreFormatTest, RefusesARankThatIsNotOfItsRanks) {
  for (const auto& [rank, count] : {std::pair{3U, 3U}, {0U, 0U}, {0U, ~0U}}) {
    Bytes bytes = sample_manifest_bytes();
    put(bytes, 148, rank);
    put(bytes, 152, count);
    reseal(bytes);
    EXPECT_EQ(decode_manifest(bytes, "x").error().code, Errc::kCorrupt) << rank << " " << count;
  }
  Bytes bytes = sample_manifest_bytes();
  put(bytes, 188, 1U);  // must be zero
  reseal(bytes);
  EXPECT_EQ(decode_manifest(bytes, "x").error().code, Errc::kCorrupt);
}

TEST(StoreLayoutTest, LaysOutSlotsAndSpills) {
  StoreGeometry geometry = sample_manifest().geometry;
  geometry.drives = {1};
  geometry.pins = 0;
  auto planned = plan_layout(geometry, false);
  ASSERT_TRUE(planned) << planned.error().message;
  const StoreLayout& layout = planned.value();
  EXPECT_EQ(layout.slot_count, 3U) << "two for the mutable block, one for the frozen";
  // 1 byte + sums, 4097 bytes + sums: 2 pages and 3 pages.
  EXPECT_EQ(layout.slot_bytes, 5U * 4096);
  EXPECT_EQ(layout.files[0].spill_offset_bytes, std::uint64_t{4} << 20);
  EXPECT_EQ(layout.files[0].file_bytes, (std::uint64_t{4} << 20) + 4096);
  EXPECT_EQ(plan_layout(geometry, true).value().slot_count, 2U);
  geometry.pins = 5;
  EXPECT_EQ(plan_layout(geometry, false).value().slot_count, 8U) << "one more for each checkpoint";
  geometry.blocks[0].lengths[0] = (std::uint64_t{2} << 20) + 1;
  EXPECT_EQ(plan_layout(geometry, false).value().slot_bytes, std::uint64_t{4} << 20);
}

TEST(StoreLayoutTest, DealsSlotsAndSpillsByShares) {
  StoreGeometry geometry = sample_manifest().geometry;
  for (std::uint64_t key = 200; key < 298; ++key) geometry.blocks.push_back({key, {1, 1}, false});
  geometry.spill_bytes.assign(30, 4096);
  geometry.drives = {2, 6, 4};  // 1 : 3 : 2
  geometry.pins = 0;
  auto planned = plan_layout(geometry, false);
  ASSERT_TRUE(planned) << planned.error().message;
  const StoreLayout& layout = planned.value();
  ASSERT_EQ(layout.slot_count, 199U);
  ASSERT_EQ(layout.files.size(), 3U);
  std::vector<std::uint64_t> next(3, 0);
  for (std::uint64_t slot = 0; slot < layout.slot_count; ++slot) {
    const Deal::Place place = layout.deal.place(slot);
    EXPECT_EQ(place.index, next[place.file]++) << "without gaps, in order";
    // Any run of six has each file's share, so blocks written in order keep all drives busy.
    if (slot % 6 == 5) {
      EXPECT_EQ(next[1] * 2, next[2] * 3);
      EXPECT_EQ(next[0] * 3, next[1]);
    }
  }
  for (std::size_t file = 0; file < 3; ++file) EXPECT_EQ(layout.files[file].slot_count, next[file]);
  std::vector<std::size_t> spills(3, 0);
  for (const SpillPlace& spill : layout.spills) {
    EXPECT_EQ(spill.offset_bytes,
              layout.files[spill.file].spill_offset_bytes + 4096 * spills[spill.file]++);
  }
  EXPECT_EQ(spills, (std::vector<std::size_t>{5, 15, 10}));
}

TEST(StoreLayoutTest, RefusesWhatIsBeyondTheLimits) {
  const StoreGeometry good = sample_manifest().geometry;
  const auto refused = [](const StoreGeometry& geometry) {
    const auto layout = plan_layout(geometry, false);
    return !layout && layout.error().code == Errc::kArgument;
  };
  StoreGeometry bad = good;
  bad.sections.clear();
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.sections[0].tile_bytes = 0;
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.sections[1].name = "hi";
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.blocks[1].key = bad.blocks[0].key;
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.blocks[0].lengths.pop_back();
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.blocks[0].lengths[0] = ~std::uint64_t{0};
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.sections[0].tile_bytes = 1;
  bad.blocks[0].lengths[0] = std::uint64_t{1} << 33;  // more tiles than 32 bits count
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.spill_bytes = {~std::uint64_t{0}};
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.blocks.clear();
  EXPECT_TRUE(refused(bad));
  for (const std::vector<std::uint32_t>& drives :
       {std::vector<std::uint32_t>{}, {0}, {1, 257}, std::vector<std::uint32_t>(65, 1)}) {
    bad = good;
    bad.drives = drives;
    EXPECT_TRUE(refused(bad));
  }
  bad = good;
  bad.pins = 65;
  EXPECT_TRUE(refused(bad));
}

}  // namespace
}  // namespace penstock
