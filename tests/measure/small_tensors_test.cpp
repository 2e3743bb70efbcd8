#include "measure/small_tensors.hpp"

#include <gtest/gtest.h>

#include "io/section.hpp"

namespace penstock {
namespace {

constexpr std::uint64_t kPlenty = std::uint64_t{16} << 30;

void expect_adjacent(const std::vector<Extent>& extents, std::uint64_t longest) {
  std::uint64_t end = 0;
  for (const Extent& extent : extents) {
    EXPECT_EQ(extent.offset_bytes, end);
    EXPECT_EQ(extent.bytes % kPageBytes, 0U);
    EXPECT_GT(extent.bytes, 0U);
    EXPECT_LE(extent.bytes, longest);
    end = extent.offset_bytes + extent.bytes;
  }
}

std::uint64_t total(const std::vector<Extent>& extents) {
  return extents.empty() ? 0 : extents.back().offset_bytes + extents.back().bytes;
}

TEST(SmallTensorsTest, AreAllThereBothWays) {
  const SmallTensors tensors = arrange_small_tensors(kSmallTensors, kPlenty, 1);
  EXPECT_EQ(tensors.tensors, kSmallTensors);
  EXPECT_EQ(tensors.each.size(), kSmallTensors);
  expect_adjacent(tensors.each, kLargestSmallTensorBytes);
  expect_adjacent(tensors.packed, kSmallSectionBytes);
}

TEST(SmallTensorsTest, PackingLosesLessThanAPageInASection) {
  const SmallTensors tensors = arrange_small_tensors(2000, kPlenty, 7);
  EXPECT_GE(total(tensors.packed), tensors.tensor_bytes);
  EXPECT_LT(total(tensors.packed), tensors.tensor_bytes + tensors.packed.size() * kPageBytes);
  EXPECT_GT(total(tensors.each), total(tensors.packed));
  for (std::size_t i = 0; i + 1 < tensors.packed.size(); ++i) {
    EXPECT_GT(tensors.packed[i].bytes, kSmallSectionBytes - kLargestSmallTensorBytes - kPageBytes)
        << "a section is closed when the next tensor does not fit";
  }
}

TEST(SmallTensorsTest, EndWithinTheFile) {
  for (const std::uint64_t bytes : {std::uint64_t{1} << 20, std::uint64_t{16} << 20}) {
    const SmallTensors tensors = arrange_small_tensors(kSmallTensors, bytes, 3);
    EXPECT_GT(tensors.tensors, 0U);
    EXPECT_LT(tensors.tensors, kSmallTensors);
    EXPECT_LE(total(tensors.each), bytes);
    EXPECT_LE(total(tensors.packed), bytes);
  }
}

}  // namespace
}  // namespace penstock
