#include "cli/block_parts.hpp"

#include <gtest/gtest.h>

namespace penstock {
namespace {

/// Two groups; the second begins at block 2 and has a gap between its tensors.
StoreDescription two_groups() {
  StoreDescription description;
  description.groups = {{"a", 30, 0, {20, 10}}, {"b", 100, 2, {40, 40, 20}}};
  description.tensors = {{"a.only", 0, 0, 30, {30}, true},
                         {"b.first", 1, 0, 50, {50}, true},
                         {"b.last", 1, 64, 36, {6, 6}, true}};
  return description;
}

TEST(BlockPartsTest, CutsTensorsAlongBlocks) {
  const StoreDescription description = two_groups();
  const auto parts = parts_of(description, description.tensors[1]);
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].block, 2U);
  EXPECT_EQ(parts[0].first, 0U);
  EXPECT_EQ(parts[0].elements, 40U);
  EXPECT_EQ(parts[1].block, 3U);
  EXPECT_EQ(parts[1].block_elements, 40U);
  EXPECT_EQ(parts[1].elements, 10U);
  EXPECT_EQ(parts[1].first_in_tensor, 40U);
  const auto last = parts_of(description, description.tensors[2]);
  ASSERT_EQ(last.size(), 2U);
  EXPECT_EQ(last[0].first, 24U);
  EXPECT_EQ(last[0].elements, 16U);
  EXPECT_EQ(last[1].block, 4U);
  EXPECT_EQ(last[1].elements, 20U);
}

TEST(BlockPartsTest, EmptyTensorsHaveNoParts) {
  StoreDescription description = two_groups();
  description.tensors[0].elements = 0;
  EXPECT_TRUE(parts_of(description, description.tensors[0]).empty());
}

// Every element of every block, one by one, against the definition.
TEST(BlockPartsTest, FindsTheTensorsOfARun) {
  const StoreDescription description = two_groups();
  const BlockPlaces places(description);
  for (const DescribedGroup& group : description.groups) {
    std::uint64_t in_group = 0;
    for (std::size_t i = 0; i < group.blocks.size(); ++i) {
      for (std::uint64_t e = 0; e < group.blocks[i]; ++e, ++in_group) {
        const auto runs = places.tensors_in(group.first_block + i, e, 1);
        const DescribedTensor* expected = nullptr;
        for (const DescribedTensor& tensor : description.tensors) {
          const bool here = &description.groups[tensor.group] == &group &&
                            in_group >= tensor.offset && in_group < tensor.offset + tensor.elements;
          if (here) expected = &tensor;
        }
        ASSERT_EQ(runs.size(), expected == nullptr ? 0U : 1U);
        if (expected == nullptr) continue;
        EXPECT_EQ(runs[0].tensor, expected);
        EXPECT_EQ(runs[0].first, in_group - expected->offset);
      }
    }
  }
  const auto across = places.tensors_in(3, 5, 30);  // group elements 45..74
  ASSERT_EQ(across.size(), 2U);
  EXPECT_EQ(across[0].first, 45U);
  EXPECT_EQ(across[0].elements, 5U);
  EXPECT_EQ(across[1].first, 0U);
  EXPECT_EQ(across[1].elements, 11U);
  EXPECT_TRUE(places.tensors_in(99, 0, 1).empty());
}

}  // namespace
}  // namespace penstock
