// Products against sums in double, and against themselves over threads, repeats and offsets.

#include "train/matmul.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "base/random.hpp"

namespace penstock {
namespace {

/// kExact: multiples of 1/16 below 2, exact in bf16, whose sums are exact in any order. kRounded:
/// sums round, so that another order shows in the bits.
enum class Values { kExact, kRounded };

std::vector<float> numbers(std::size_t count, std::uint64_t stream, Values kind = Values::kExact) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const float integer = static_cast<float>(static_cast<int>(mix64(3, stream, i) % 63) - 31);
    values[i] = kind == Values::kExact ? integer / 16.0F : approximately_normal(3, stream, i);
  }
  return values;
}

std::vector<std::uint16_t> to_bf16(const std::vector<float>& values) {
  std::vector<std::uint16_t> bits;
  for (const float value : values) {
    bits.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16));
  }
  return bits;
}

Executor* one_thread() {
  static const auto executor = make_tbb_executor(1);
  return executor.get();
}

std::size_t stored_rows(bool transposed, std::int64_t rows, std::int64_t columns) {
  return static_cast<std::size_t>(transposed ? columns : rows);
}

/// Runs one shape on its own Matmul; C starts as ones.
std::vector<float> product(const MatmulShape& shape, int threads, Values kind = Values::kExact,
                           std::size_t offset = 0) {
  const auto executor = make_tbb_executor(threads);
  auto matmul = Matmul::create({threads, "auto"}, *executor);
  EXPECT_TRUE(matmul) << matmul.error().message;
  auto id = matmul.value()->prepare(shape);
  EXPECT_TRUE(id) << id.error().message;
  if (!id) return {};
  const std::size_t rows_a = stored_rows(shape.transpose_a, shape.m, shape.k);
  const std::size_t rows_b = stored_rows(shape.transpose_b, shape.k, shape.n);
  const auto a = numbers(rows_a * static_cast<std::size_t>(shape.row_a) + offset, 1, kind);
  const auto b = numbers(rows_b * static_cast<std::size_t>(shape.row_b) + offset, 2, kind);
  std::vector<float> c(static_cast<std::size_t>(shape.m * shape.row_c) + offset, 1.0F);
  std::vector<std::byte> scratch(matmul.value()->scratchpad_bytes() + 64);
  const auto misaligned = reinterpret_cast<std::uintptr_t>(scratch.data()) % 64;
  matmul.value()->use_scratchpad(scratch.data() + (64 - misaligned) % 64);
  // With an offset, the same values lie elsewhere.
  std::vector<float> a_moved(a.begin(), a.end()), b_moved(b.begin(), b.end());
  std::copy(a.begin(), a.end() - static_cast<std::ptrdiff_t>(offset),
            a_moved.begin() + static_cast<std::ptrdiff_t>(offset));
  std::copy(b.begin(), b.end() - static_cast<std::ptrdiff_t>(offset),
            b_moved.begin() + static_cast<std::ptrdiff_t>(offset));
  const auto a_bf16 = to_bf16(a_moved), b_bf16 = to_bf16(b_moved);
  const bool bf16 = shape.type == MatmulType::kBf16;
  const void* const a_start = bf16 ? static_cast<const void*>(a_bf16.data() + offset)
                                   : static_cast<const void*>(a_moved.data() + offset);
  const void* const b_start = bf16 ? static_cast<const void*>(b_bf16.data() + offset)
                                   : static_cast<const void*>(b_moved.data() + offset);
  const Status status = matmul.value()->run(id.value(), a_start, b_start, c.data() + offset);
  EXPECT_TRUE(status) << status.error().message;
  return {c.begin() + static_cast<std::ptrdiff_t>(offset), c.end()};
}

double expected(const MatmulShape& s, std::int64_t i, std::int64_t j) {
  const auto a =
      numbers(stored_rows(s.transpose_a, s.m, s.k) * static_cast<std::size_t>(s.row_a), 1);
  const auto b =
      numbers(stored_rows(s.transpose_b, s.k, s.n) * static_cast<std::size_t>(s.row_b), 2);
  double sum = s.accumulate ? 1.0 : 0.0;
  for (std::int64_t p = 0; p < s.k; ++p) {
    const std::int64_t at_a = s.transpose_a ? p * s.row_a + i : i * s.row_a + p;
    const std::int64_t at_b = s.transpose_b ? j * s.row_b + p : p * s.row_b + j;
    sum += static_cast<double>(a[static_cast<std::size_t>(at_a)]) *
           static_cast<double>(b[static_cast<std::size_t>(at_b)]);
  }
  return sum;
}

class MatmulTest : public testing::TestWithParam<MatmulType> {
 protected:
  void SetUp() override {
    auto matmul = Matmul::create({}, *one_thread());
    ASSERT_TRUE(matmul);
    if (GetParam() == MatmulType::kBf16 && !matmul.value()->multiplies_bf16()) {
      GTEST_SKIP() << "this processor (" << matmul.value()->isa()
                   << ") does not multiply bf16; one with AVX512_BF16 runs this test";
    }
  }
};

TEST_P(MatmulTest, MultipliesStridedAndTransposedOperands) {
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      for (const bool accumulate : {false, true}) {
        MatmulShape s{GetParam(), 13, 21, 35, 0, 0, 24, transpose_a, transpose_b, accumulate};
        s.row_a = (transpose_a ? s.m : s.k) + 3;
        s.row_b = (transpose_b ? s.k : s.n) + 5;
        const std::vector<float> c = product(s, 2);
        ASSERT_EQ(c.size(), static_cast<std::size_t>(s.m * s.row_c));
        for (std::int64_t i = 0; i < s.m; ++i) {
          for (std::int64_t j = 0; j < s.row_c; ++j) {
            const double got = static_cast<double>(c[static_cast<std::size_t>(i * s.row_c + j)]);
            // Multiples of 1/256 below 2^7: every order of summation is exact.
            const double want = j < s.n ? expected(s, i, j) : 1.0;  // beyond n: untouched
            ASSERT_EQ(got, want) << transpose_a << transpose_b << accumulate << " " << i << ","
                                 << j;
          }
        }
      }
    }
  }
}

TEST_P(MatmulTest, GivesTheSameBitsForAnyThreadCountAndOffset) {
  const MatmulType type = GetParam();
  const std::vector<MatmulShape> shapes = {
      {type, 96, 384, 384, 384, 384, 384, false, true, false},
      {type, 96, 1152, 384, 384, 1152, 1152, false, false, true},
      {type, 384, 1024, 96, 384, 1024, 1024, true, false, true},
      {type, 64, 64, 2048, 64, 64, 64, true, false, true},
      {type, 70, 48, 3000, 70, 48, 48, true, false, false},
      {type, 128, 128, 64, 192, 192, 128, false, true, false},
      {type, 128, 64, 128, 128, 192, 64, false, false, false},
      {type, 37, 50, 61, 61, 61, 50, false, true, false},
      {type, 1, 700, 384, 384, 384, 700, false, true, false},
  };
  for (const MatmulShape& shape : shapes) {
    const auto rounded = Values::kRounded;
    const std::vector<float> one = product(shape, 1, rounded);
    EXPECT_TRUE(one == product(shape, 1, rounded)) << "repeat";
    for (const int threads : {2, 3}) {
      EXPECT_TRUE(one == product(shape, threads, rounded)) << threads << " threads";
    }
    EXPECT_TRUE(one == product(shape, 2, rounded, 3)) << "offset";
  }
}

TEST_P(MatmulTest, MakesAShapeOnce) {
  auto matmul = Matmul::create({}, *one_thread());
  ASSERT_TRUE(matmul);
  MatmulShape shape{GetParam(), 4, 5, 6, 6, 5, 5};
  const auto first = matmul.value()->prepare(shape);
  ASSERT_TRUE(first);
  EXPECT_EQ(matmul.value()->prepare(shape).value(), first.value());
  shape.accumulate = true;
  EXPECT_NE(matmul.value()->prepare(shape).value(), first.value());
  EXPECT_EQ(matmul.value()->shape_count(), 2U);
  EXPECT_FALSE(matmul.value()->implementation(first.value()).empty());
}

INSTANTIATE_TEST_SUITE_P(Types, MatmulTest, testing::Values(MatmulType::kF32, MatmulType::kBf16),
                         [](const auto& info) {
                           return std::string(info.param == MatmulType::kF32 ? "F32" : "Bf16");
                         });

TEST(MatmulErrorTest, RefusesShapesThatDoNotFit) {
  auto matmul = Matmul::create({}, *one_thread());
  ASSERT_TRUE(matmul);
  const auto f32 = MatmulType::kF32;
  for (const MatmulShape& shape : std::vector<MatmulShape>{{f32, 0, 5, 6, 6, 5, 5},
                                                           {f32, 4, 5, 6, 5, 5, 5},
                                                           {f32, 4, 5, 6, 6, 4, 5},
                                                           {f32, 4, 5, 6, 6, 5, 4}}) {
    const auto id = matmul.value()->prepare(shape);
    ASSERT_FALSE(id);
    EXPECT_EQ(id.error().code, Errc::kArgument);
  }
}

TEST(MatmulErrorTest, RefusesAnotherInstructionSetThanThePinnedOne) {
  auto first = Matmul::create({}, *one_thread());
  ASSERT_TRUE(first);
  ASSERT_TRUE(first.value()->prepare({MatmulType::kF32, 4, 5, 6, 6, 5, 5}));
  const std::string other = first.value()->isa() == "avx2" ? "avx512" : "avx2";
  const auto second = Matmul::create({1, other}, *one_thread());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Errc::kState);
  EXPECT_NE(second.error().message.find(first.value()->isa()), std::string::npos);
}

TEST(MatmulErrorTest, RefusesUnknownNamesAndNoThreads) {
  EXPECT_EQ(Matmul::create({1, "avx9"}, *one_thread()).error().code, Errc::kArgument);
  EXPECT_EQ(Matmul::create({0, "auto"}, *one_thread()).error().code, Errc::kArgument);
}

}  // namespace
}  // namespace penstock
