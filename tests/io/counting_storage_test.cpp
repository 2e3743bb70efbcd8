// Method: real files are written in every way there is.

#include "io/counting_storage.hpp"

#include <gtest/gtest.h>

#include "io/page_buffer.hpp"
#include "temporary_directory.hpp"

namespace penstock {
namespace {

class Sink final : public CompletionSink {
 public:
  void io_complete(const IoCompletion&) noexcept override {}
};

class CountingStorageTest : public ::testing::Test {
 protected:
  FileId make(const std::string& path) {
    OpenOptions how;
    how.create = true;
    auto file = storage_.open(path, how);
    EXPECT_TRUE(file) << file.error().message;
    EXPECT_TRUE(storage_.preallocate(file.value(), 1 << 20));
    return file.value();
  }
  testing::TemporaryDirectory first_, second_;
  CountingStorage storage_{make_posix_storage()};
  PageBuffer page_{kPageBytes};
};

TEST_F(CountingStorageTest, CountsEveryWayOfWritingByDirectory) {
  const FileId a = make(first_.path() + "/data.0"), b = make(second_.path() + "/data.1");
  EXPECT_EQ(storage_.written_bytes(first_.path()), 0U);
  ASSERT_TRUE(storage_.write_at(a, 0, page_.span()));
  ASSERT_TRUE(storage_.write_file(first_.path() + "/manifest", page_.first(100)));
  ASSERT_TRUE(storage_.overwrite_file(first_.path() + "/manifest", page_.first(10)));
  Sink sink;
  {
    auto queue = storage_.make_queue(sink, {});
    ASSERT_TRUE(queue);
    const IoRequest requests[] = {
        {IoOp::kWrite, IoClass::kDemand, b, 0, page_.span().data(), kPageBytes, 1},
        {IoOp::kRead, IoClass::kDemand, a, 0, page_.span().data(), kPageBytes, 2}};
    ASSERT_TRUE(queue.value()->submit(requests));
    ASSERT_TRUE(queue.value()->drain(10'000'000'000));
    const IoRequest misaligned = {IoOp::kWrite, IoClass::kDemand, b, 1, page_.span().data(), 7, 3};
    EXPECT_FALSE(queue.value()->submit({&misaligned, 1}));
    EXPECT_EQ(queue.value()->stats().write_bytes, kPageBytes);
  }
  EXPECT_EQ(storage_.written_bytes(first_.path()), kPageBytes + 110);
  EXPECT_EQ(storage_.written_bytes(second_.path()), kPageBytes) << "reads and refusals are none";
  EXPECT_EQ(storage_.written_bytes("/elsewhere"), 0U);
}

TEST_F(CountingStorageTest, KeepsTheCountOfClosedFiles) {
  const FileId a = make(first_.path() + "/data.0");
  ASSERT_TRUE(storage_.write_at(a, 0, page_.span()));
  ASSERT_TRUE(storage_.close(a));
  EXPECT_FALSE(storage_.write_at(a, 0, page_.span()));
  EXPECT_EQ(storage_.written_bytes(first_.path()), kPageBytes);
}

TEST_F(CountingStorageTest, CountsFilesWithoutANameByTheirDirectory) {
  OpenOptions how;
  how.temporary = true;
  auto file = storage_.open(first_.path(), how);
  if (!file) GTEST_SKIP() << "unnamed files: " << file.error().message;
  ASSERT_TRUE(storage_.preallocate(file.value(), 1 << 20));
  ASSERT_TRUE(storage_.write_at(file.value(), 0, page_.span()));
  EXPECT_EQ(storage_.written_bytes(first_.path()), kPageBytes);
}

}  // namespace
}  // namespace penstock
