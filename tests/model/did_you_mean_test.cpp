#include "model/did_you_mean.hpp"

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

}  // namespace
}  // namespace penstock
