#include "model/did_you_mean.hpp"

#include <algorithm>
#include <array>
#include <string>

#include <gtest/gtest.h>

namespace penstock {
namespace {

TEST(DidYouMeanTest, CountsEditsAndSwaps) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("train", "trian"), 1U);
  EXPECT_EQ(edit_distance("store", "store"), 0U);
}

TEST(DidYouMeanTest, LooksAtTheFirst64BytesOnly) {
  const std::string same(64, 'a');
  EXPECT_EQ(edit_distance(same + "left", same + "right"), 0U);
  EXPECT_EQ(edit_distance(std::string(1000, 'a'), std::string(1000, 'b')), 64U);
}

TEST(DidYouMeanTest, OffersOnlyWhatIsClose) {
  static constexpr std::array<std::string_view, 3> kKnown = {"tiny", "nano", "124M"};
  EXPECT_EQ(closest_word("tiney", kKnown), "tiny");
  EXPECT_EQ(closest_word("124m", kKnown), "124M");
  EXPECT_EQ(closest_word("llama", kKnown), "");
  EXPECT_EQ(did_you_mean("nanno", kKnown), "; did you mean \"nano\"?");
  EXPECT_EQ(did_you_mean("zzzz", kKnown), "");
  EXPECT_EQ(did_you_mean("", kKnown), "");
}

TEST(DidYouMeanTest, PassesOverNoWordForItsLength) {
  // Every known word against every text of its letters, one or more left out or added.
  static constexpr std::array<std::string_view, 4> kKnown = {"abcabcabc", "abcab", "ab", "a"};
  for (const std::string_view from : kKnown) {
    for (std::size_t less = 0; less < from.size(); ++less) {
      for (std::size_t more = 0; more < 5; ++more) {
        const std::string word = std::string(from.substr(less)) + std::string(more, 'x');
        std::size_t best = std::clamp<std::size_t>(word.size() / 3, 1, 3) + 1;
        std::string_view expected;
        for (const std::string_view known : kKnown) {
          if (edit_distance(word, known) >= best) continue;
          best = edit_distance(word, known);
          expected = known;
        }
        EXPECT_EQ(closest_word(word, kKnown), expected) << word;
      }
    }
  }
}

}  // namespace
}  // namespace penstock
