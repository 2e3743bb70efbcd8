// Method: a drive of which single pages cannot be read, under a real store.

#include "io/store_verify.hpp"

#include <cerrno>

#include "io/forwarding_storage.hpp"
#include "io/store_fixture.hpp"

namespace penstock::test {
namespace {

/// Passes everything on, but pages of one file that are bad are not returned.
class BadPages final : public ForwardingStorage {
 public:
  explicit BadPages(Storage& under) : ForwardingStorage(under) {}
  /// Reads that touch [begin, end) of any file fail.
  void set_bad(std::uint64_t begin, std::uint64_t end) { begin_ = begin, end_ = end; }
  std::uint64_t failures_left = ~std::uint64_t{0};

  Status read_at(FileId file, std::uint64_t offset, std::span<std::byte> into) override {
    const bool touches = offset < end_ && begin_ < offset + into.size();
    if (touches && failures_left > 0) {
      --failures_left;
      return make_error(Errc::kIo, "read: Input/output error (5)", EIO);
    }
    return under_.read_at(file, offset, into);
  }

 private:
  std::uint64_t begin_ = 0, end_ = 0;
};

constexpr std::uint32_t kTileBytes = 8192;

/// One block of one section with 6 tiles, the last of them short.
class VerifyBlockTest : public StoreTest {
 protected:
  void SetUp() override {
    StoreGeometry geometry;
    geometry.sections = {{"hi", "bf16", true, kTileBytes}};
    geometry.blocks = {{11, {5 * kTileBytes + 100}, false}};
    geometry.description = "{}";
    {
      auto made = create(geometry);
      SlotTable table = made->make_table();
      write_all(*made, table, 0);
      ASSERT_TRUE(commit_all(*made, table, 0));
    }
    auto opened = open_store(drive_, kDirectory, quick_options(), /*writable=*/false);
    ASSERT_TRUE(opened) << opened.error().message;
    store_ = std::move(opened).value();
    entry_ = store_->make_table().entry(0);
    section_ = store_->slot(entry_.slot).offset_bytes;
  }
  std::vector<BadTile> verify() {
    PageBuffer buffer(verify_buffer_bytes(*store_));
    return verify_block(drive_, *store_, 0, entry_, buffer);
  }

  BadPages drive_{*storage_};
  std::unique_ptr<Store> store_;
  SlotEntry entry_;
  std::uint64_t section_ = 0;
};

TEST_F(VerifyBlockTest, NamesOnlyTheTilesThatTheDriveDoesNotReturn) {
  EXPECT_TRUE(verify().empty());
  drive_.set_bad(section_ + 2 * kTileBytes + 4096, section_ + 3 * kTileBytes + 1);
  const auto bad = verify();
  ASSERT_EQ(bad.size(), 2U);
  for (std::uint32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(bad[i].code, Errc::kIo);
    EXPECT_EQ(bad[i].kind, SectionFaultKind::kTile);
    EXPECT_EQ(bad[i].tile, 2 + i);
    EXPECT_EQ(bad[i].bytes, kTileBytes);
    EXPECT_EQ(bad[i].offset_bytes, section_ + (2 + i) * kTileBytes);
    EXPECT_EQ(bad[i].path, kDirectory + "/data.0");
    EXPECT_NE(bad[i].message.find("cannot be read"), std::string::npos) << bad[i].message;
  }
}

TEST_F(VerifyBlockTest, FindsRottenTilesBesideUnreadableOnes) {
  overwrite("data.0", section_ + 4 * kTileBytes, std::vector<std::byte>(4096, std::byte{3}));
  drive_.set_bad(section_ + 5 * kTileBytes, section_ + 5 * kTileBytes + 1);
  const auto bad = verify();
  ASSERT_EQ(bad.size(), 2U);
  EXPECT_EQ(bad[0].code, Errc::kIo);
  EXPECT_EQ(bad[0].tile, 5U);
  EXPECT_EQ(bad[0].bytes, 100U);
  EXPECT_EQ(bad[1].code, Errc::kCorrupt);
  EXPECT_EQ(bad[1].tile, 4U);
}

TEST_F(VerifyBlockTest, NamesSumsThatTheDriveDoesNotReturn) {
  const SectionExtent& extent = store_->extents(0)[0];
  drive_.set_bad(section_ + extent.sums_offset, section_ + extent.sums_offset + 1);
  const auto bad = verify();
  ASSERT_EQ(bad.size(), 1U);
  EXPECT_EQ(bad[0].code, Errc::kIo);
  EXPECT_EQ(bad[0].kind, SectionFaultKind::kSums);
  EXPECT_EQ(bad[0].offset_bytes, section_ + extent.sums_offset);
}

TEST_F(VerifyBlockTest, ReadsAgainBeforeItComplains) {
  drive_.set_bad(section_, section_ + 1);
  for (const std::uint64_t failures : {1U, 2U, 3U, 5U}) {
    drive_.failures_left = failures;
    EXPECT_TRUE(verify().empty()) << failures << " failures heal";
  }
}

}  // namespace
}  // namespace penstock::test
