#include "train/text_stats.hpp"

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace penstock {
namespace {

ByteCounts counts_of(std::string_view text) {
  ByteCounts counts;
  counts.add(std::as_bytes(std::span(text)));
  return counts;
}

TEST(TextStatsTest, KnowsTheEntropyOfSimpleTexts) {
  EXPECT_EQ(counts_of("").unigram_nats(), 0.0);
  EXPECT_EQ(counts_of("").bigram_nats(), 0.0);
  EXPECT_EQ(counts_of("a").bigram_nats(), 0.0);
  EXPECT_EQ(counts_of("aaaaaaaa").unigram_nats(), 0.0);
  EXPECT_NEAR(counts_of("abababab").unigram_nats(), std::log(2.0), 1e-12);
  EXPECT_NEAR(counts_of("abababab").bigram_nats(), 0.0, 1e-12);
  // Behind a: b, c, b, c; behind b and c: always a.
  EXPECT_NEAR(counts_of("abacabaca").bigram_nats(), 4.0 / 8.0 * std::log(2.0), 1e-12);
}

// Every pair of the four letters once: each letter is followed by each of four.
TEST(TextStatsTest, GivesLogOfTheAlphabetForUniformPairs) {
  const std::string cycle = "aabacadbbcbdccdda";
  EXPECT_NEAR(counts_of(cycle).bigram_nats(), std::log(4.0), 1e-12);
}

TEST(TextStatsTest, DoesNotDependOnHowTheTextIsCut) {
  const std::string text = "the quick brown fox jumps over the lazy dog";
  ByteCounts cut;
  for (const char& c : text) cut.add(std::as_bytes(std::span(&c, 1)));
  EXPECT_EQ(cut.bigram_nats(), counts_of(text).bigram_nats());
  EXPECT_EQ(cut.unigram_nats(), counts_of(text).unigram_nats());
  EXPECT_EQ(cut.bytes(), text.size());
}

TEST(TextStatsTest, CountsFilesInPieces) {
  const auto path =
      std::filesystem::temp_directory_path() / ("penstock_text_" + std::to_string(::getpid()));
  std::string text;
  while (text.size() < 200'000) text += "a text longer than one piece; ";
  std::ofstream(path, std::ios::binary) << text;
  const auto counts = count_bytes(path.string());
  ASSERT_TRUE(counts);
  EXPECT_EQ(counts.value().bytes(), text.size());
  EXPECT_EQ(counts.value().bigram_nats(), counts_of(text).bigram_nats());
  std::filesystem::remove(path);
  EXPECT_FALSE(count_bytes(path.string()));
}

}  // namespace
}  // namespace penstock
