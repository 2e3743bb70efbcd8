// The encoder keeps its memory, so nothing of one manifest may be left in the next. Method: what it
// gives is compared with encode_manifest(), which begins with zeros.

#include <gtest/gtest.h>

#include <algorithm>

#include "io/store_fixture.hpp"
#include "io/store_format.hpp"

namespace penstock::test {
namespace {

/// The manifest of a round; rounds differ in every part.
Manifest manifest_of(const StoreGeometry& geometry, const StoreLayout& layout, std::uint64_t round,
                     std::size_t blob_bytes) {
  Manifest manifest;
  manifest.uuid = {7, 8};
  manifest.sums_uuid = {9, 10};
  manifest.sequence = round;
  manifest.rank = static_cast<std::uint32_t>(round % 3);
  manifest.rank_count = 3;
  manifest.geometry = geometry;
  manifest.record.step = manifest.record.updates = round * 10;
  manifest.record.blob.assign(blob_bytes, std::byte{static_cast<unsigned char>(round)});
  for (std::size_t block = 0; block < geometry.blocks.size(); ++block) {
    SlotEntry entry;
    entry.slot = static_cast<SlotIndex>((block + round) % layout.slot_count);
    entry.version = round * 100 + block;
    entry.written = written_mask(geometry.blocks[block]);
    for (std::size_t s = 0; s < geometry.sections.size(); ++s) entry.roots[s] = mix64(round, s, 1);
    manifest.table.push_back({entry, layout.deal.place(entry.slot).file});
  }
  return manifest;
}

TEST(ManifestEncoderTest, GivesTheBytesOfEachManifest) {
  StoreGeometry geometry = small_geometry();
  geometry.drives = {1, 2};
  const StoreLayout layout = plan_layout(geometry, false).value();
  ManifestEncoder encoder(geometry, layout);
  std::uint64_t round = 0;
  for (const std::size_t blob : {3U, 1000U, 0U, 5000U, 5000U}) {
    const Manifest manifest = manifest_of(geometry, layout, ++round, blob);
    std::vector<std::byte> expected = encode_manifest(manifest).value();
    EXPECT_EQ(expected.size(), manifest_bytes(geometry, blob));
    std::optional<LifetimeBytes> lifetime;
    if (round % 2 == 0) lifetime = LifetimeBytes{{round, 7}, true};
    if (lifetime) append_lifetime(expected, *lifetime);
    Manifest head = manifest;
    head.geometry = {};
    head.table.clear();
    std::vector<SlotEntry> entries;
    for (const ManifestEntry& line : manifest.table) entries.push_back(line.entry);
    entries.back().written |= 2;  // of a section that the last block does not have
    auto encoded = encoder.encode(head, entries, lifetime);
    ASSERT_TRUE(encoded) << encoded.error().message;
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), encoded.value().begin(),
                           encoded.value().end()))
        << "manifest " << round;
    EXPECT_EQ(find_lifetime(encoded.value()), lifetime);
  }
}

TEST(ManifestEncoderTest, RefusesWhatIsBeyondTheLimits) {
  const StoreGeometry geometry = small_geometry();
  const StoreLayout layout = plan_layout(geometry, false).value();
  ManifestEncoder encoder(geometry, layout);
  std::vector<SlotEntry> entries(geometry.blocks.size());
  for (std::size_t i = 0; i < entries.size(); ++i) entries[i].slot = static_cast<SlotIndex>(i);
  Manifest head;
  head.record.blob.resize(kMaxBlobBytes);
  EXPECT_TRUE(encoder.encode(head, entries, {}));
  head.record.blob.resize(kMaxBlobBytes + 1);
  EXPECT_EQ(encoder.encode(head, entries, {}).error().code, Errc::kArgument);
  head.record.blob.clear();
  entries.pop_back();
  EXPECT_EQ(encoder.encode(head, entries, {}).error().code, Errc::kArgument);
}

}  // namespace
}  // namespace penstock::test
