#include "base/dtype.hpp"

#include <gtest/gtest.h>

namespace penstock {
namespace {

TEST(DTypeTest, SizesAndNames) {
  EXPECT_EQ(size_bytes(DType::kF32), 4U);
  EXPECT_EQ(size_bytes(DType::kF16), 2U);
  EXPECT_EQ(size_bytes(DType::kBf16), 2U);
  EXPECT_EQ(size_bytes(DType::kU16), 2U);
  EXPECT_EQ(size_bytes(DType::kU32), 4U);
  EXPECT_EQ(name_of(DType::kBf16), "bf16");
  EXPECT_TRUE(is_float(DType::kF16));
  EXPECT_FALSE(is_float(DType::kU16));
}

TEST(DTypeTest, NamesLeadBackToTheirTypes) {
  for (const DType type : kAllDTypes) EXPECT_EQ(dtype_named(name_of(type)), type);
  for (const char* wrong : {"", "F32", "f64", "f3", "f32 ", "unknown"}) {
    EXPECT_EQ(dtype_named(wrong), std::nullopt) << wrong;
  }
}

}  // namespace
}  // namespace penstock
