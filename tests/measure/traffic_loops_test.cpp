// Method: loops that are only timed could move nothing; here they must move the right bytes.

#include "measure/traffic_loops.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "base/random.hpp"

namespace penstock {
namespace {

constexpr std::size_t kBytes = 4096;

class TrafficLoopsTest : public ::testing::TestWithParam<bool> {
 protected:
  struct Page {
    alignas(64) std::byte bytes[kBytes];
  };
  void SetUp() override {
    std::uint64_t index = 0;
    for (Page* page : {&a_, &b_, &c_}) {
      for (std::byte& byte : page->bytes) byte = static_cast<std::byte>(mix64(1, 2, index++));
    }
  }
  [[nodiscard]] bool bypass() const { return GetParam(); }
  Page a_, b_, c_;
};

TEST_P(TrafficLoopsTest, CopyCopiesEveryByte) {
  traffic_copy(a_.bytes, b_.bytes, kBytes, bypass());
  EXPECT_EQ(std::memcmp(a_.bytes, b_.bytes, kBytes), 0);
}

TEST_P(TrafficLoopsTest, WriteWritesEveryByte) {
  constexpr std::uint64_t kWord = 0x0123456789ABCDEFU;
  traffic_write(a_.bytes, kBytes, kWord, bypass());
  for (std::size_t i = 0; i < kBytes; i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, a_.bytes + i, 8);
    ASSERT_EQ(word, kWord) << i;
  }
}

TEST_P(TrafficLoopsTest, UpdateReadsThreeStreamsAndWritesTwo) {
  const Page a = a_, b = b_, c = c_;
  traffic_update(a_.bytes, b_.bytes, c_.bytes, kBytes, bypass());
  for (std::size_t i = 0; i < kBytes; ++i) {
    ASSERT_EQ(a_.bytes[i], a.bytes[i] ^ c.bytes[i]) << i;
    ASSERT_EQ(b_.bytes[i], b.bytes[i] ^ c.bytes[i]) << i;
  }
  EXPECT_EQ(std::memcmp(c_.bytes, c.bytes, kBytes), 0);
}

TEST_P(TrafficLoopsTest, ReadDependsOnEveryWord) {
  const std::uint64_t before = traffic_read(a_.bytes, kBytes);
  for (std::size_t i = 0; i < kBytes; i += 8) {
    a_.bytes[i] ^= std::byte{1};
    ASSERT_NE(traffic_read(a_.bytes, kBytes), before) << i;
    a_.bytes[i] ^= std::byte{1};
  }
}

INSTANTIATE_TEST_SUITE_P(Stores, TrafficLoopsTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Bypassing" : "Plain"; });

}  // namespace
}  // namespace penstock
