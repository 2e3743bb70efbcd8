#include "base/checksum.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/allocation_count.hpp"
#include "base/random.hpp"
#include "base/xxh3_scalar.hpp"

namespace penstock {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::vector<std::byte> noise(std::size_t bytes) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(mix64(7, 7, i) & 0xFF);
  return data;
}

// Lengths around every change of method in XXH3: 0-3, 4-8, 9-16, -128, -240, blocks of 1024.
constexpr std::size_t kLengths[] = {0,    1,    3,    4,    8,    9,     16,
                                    17,   128,  129,  240,  241,  256,   512,
                                    1023, 1024, 1025, 2048, 4096, 32768, 65536 + 13};
constexpr std::uint64_t kSeeds[] = {0, 1, 0x9E3779B97F4A7C15U, ~std::uint64_t{0}};

TEST(ChecksumTest, GivesThePublishedValues) {
  EXPECT_EQ(hash64(0, {}), 0x2D06800538D394C2U);
  EXPECT_EQ(hash64(0, bytes_of("abc")), 0x78AF5F94892F3950U);
  EXPECT_EQ(hash128({}), (Hash128{0x6001C324468D497FU, 0x99AA06D3014798D8U}));
  EXPECT_EQ(hash128(bytes_of("abc")), (Hash128{0x78AF5F94892F3950U, 0x06B05AB6733A6185U}));
}

TEST(ChecksumTest, EqualsTheScalarReferenceAtEveryLengthAndSeed) {
  const std::vector<std::byte> data = noise(65536 + 13);
  for (const std::size_t length : kLengths) {
    const std::span part(data.data(), length);
    for (const std::uint64_t seed : kSeeds) {
      EXPECT_EQ(hash64(seed, part), testing::scalar_xxh3_64(data.data(), length, seed))
          << length << " bytes, seed " << seed;
    }
    const auto [low, high] = testing::scalar_xxh3_128(data.data(), length);
    EXPECT_EQ(hash128(part), (Hash128{low, high})) << length << " bytes";
  }
}

TEST(TileHasherTest, DoesNotDependOnThePieces) {
  const std::vector<std::byte> data = noise(65536 + 13);
  TileHasher hasher;
  StreamHash128 stream;
  for (const std::size_t length : kLengths) {
    for (const std::size_t piece : {std::size_t{1}, std::size_t{63}, std::size_t{257},
                                    std::size_t{4096}, std::size_t{100'000}}) {
      for (const std::uint64_t seed : kSeeds) {
        hasher.reset(seed);
        for (std::size_t at = 0; at < length; at += piece) {
          hasher.update(data.data() + at, std::min(piece, length - at));
        }
        ASSERT_EQ(hasher.digest(), hash64(seed, std::span(data.data(), length)))
            << length << " bytes in pieces of " << piece << ", seed " << seed;
      }
      stream.reset();
      for (std::size_t at = 0; at < length; at += piece) {
        stream.update(data.data() + at, std::min(piece, length - at));
      }
      ASSERT_EQ(stream.digest(), hash128(std::span(data.data(), length))) << length << ' ' << piece;
    }
  }
}

TEST(TileHasherTest, StartsAfreshAfterResetAndAllowsMoreAfterDigest) {
  const std::vector<std::byte> data = noise(5000);
  TileHasher hasher;
  hasher.reset(5);
  hasher.update(data.data(), 3000);
  EXPECT_EQ(hasher.digest(), hash64(5, std::span(data.data(), 3000)));
  hasher.update(data.data() + 3000, 2000);
  EXPECT_EQ(hasher.digest(), hash64(5, data));
  hasher.reset(0);
  hasher.update(data.data(), 10);
  EXPECT_EQ(hasher.digest(), hash64(0, std::span(data.data(), 10)));
}

TEST(TileHasherTest, SeesEveryFlippedBitAndEverySeed) {
  std::vector<std::byte> data = noise(32768);
  const std::uint64_t sum = hash64(1, data);
  EXPECT_NE(sum, hash64(2, data));
  for (std::size_t bit = 0; bit < data.size() * 8; bit += 1009) {
    data[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_NE(hash64(1, data), sum) << "bit " << bit;
    data[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  }
}

TEST(TileHasherTest, AllocatesNothing) {
  const std::vector<std::byte> data = noise(32768);
  const std::uint64_t before = testing::allocations_of_this_thread();
  TileHasher hasher;
  hasher.reset(3);
  for (std::size_t at = 0; at < data.size(); at += 4096) hasher.update(data.data() + at, 4096);
  const std::uint64_t digest = hasher.digest();
  EXPECT_EQ(testing::allocations_of_this_thread(), before);
  EXPECT_EQ(digest, hash64(3, data));
}

TEST(ChecksumTest, NamesHashToTheirPlainSum) {
  EXPECT_EQ(hash_name(""), 0x2D06800538D394C2U);
  EXPECT_EQ(hash_name("abc"), 0x78AF5F94892F3950U);
  EXPECT_NE(hash_name("h.0.attn.w"), hash_name("h.1.attn.w"));
}

TEST(ChecksumTest, PrintsAllDigits) {
  EXPECT_EQ(to_hex(std::uint64_t{0xAB}), "00000000000000ab");
  EXPECT_EQ(to_hex(Hash128{0x78AF5F94892F3950U, 0x06B05AB6733A6185U}),
            "06b05ab6733a618578af5f94892f3950");
}

}  // namespace
}  // namespace penstock
