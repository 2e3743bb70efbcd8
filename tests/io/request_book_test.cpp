// The pure parts of the queues: retry rules, classes and ageing, cutting and credits, names.

#include "io/request_book.hpp"

#include <gtest/gtest.h>

#include <cerrno>

#include "io/piece_table.hpp"
#include "io/storage_worlds.hpp"

namespace penstock::testing {
namespace {

TEST(TransferRulesTest, TransientErrorsAreRetriedUntilTheyPersist) {
  Transfer transfer{IoOp::kWrite, 8192};
  for (std::uint32_t i = 0; i < kRetryLimit; ++i) {
    EXPECT_EQ(judge(transfer, i % 2 == 0 ? -EAGAIN : -EINTR, 4096).move,
              i % 2 == 0 ? NextMove::kRetryLater : NextMove::kRetryNow);
  }
  const Verdict verdict = judge(transfer, -EAGAIN, 4096);
  EXPECT_EQ(verdict.move, NextMove::kFail);
  EXPECT_EQ(verdict.sys_errno, EAGAIN);
  EXPECT_EQ(transfer.retries, kRetryLimit);
}

TEST(TransferRulesTest, ProgressGivesNewPatience) {
  Transfer transfer{IoOp::kRead, 3 * 4096};
  for (std::uint32_t i = 0; i < kRetryLimit; ++i) judge(transfer, -EAGAIN, 4096);
  EXPECT_EQ(judge(transfer, 4096, 4096).move, NextMove::kContinue);
  EXPECT_EQ(judge(transfer, -EAGAIN, 4096).move, NextMove::kRetryLater);
  EXPECT_EQ(judge(transfer, 2 * 4096, 4096).move, NextMove::kDone);
}

TEST(TransferRulesTest, EveryErrorHasItsCode) {
  struct Case {
    IoOp op;
    std::int64_t result;
    std::uint32_t alignment;
    NextMove move;
    Errc code;
    int sys_errno;
  };
  const Case cases[] = {
      {IoOp::kRead, 0, 4096, NextMove::kFail, Errc::kIo, 0},
      {IoOp::kRead, 100, 4096, NextMove::kFail, Errc::kIo, 0},
      {IoOp::kRead, 100, 1, NextMove::kContinue, Errc::kOk, 0},
      {IoOp::kWrite, 0, 4096, NextMove::kFail, Errc::kNoSpace, ENOSPC},
      {IoOp::kWrite, 512, 4096, NextMove::kFail, Errc::kNoSpace, ENOSPC},
      {IoOp::kRead, -EIO, 4096, NextMove::kRetryNow, Errc::kOk, 0},
      {IoOp::kWrite, -EIO, 4096, NextMove::kFail, Errc::kIo, EIO},
      {IoOp::kWrite, -ENOSPC, 4096, NextMove::kFail, Errc::kNoSpace, ENOSPC},
      {IoOp::kWrite, -EDQUOT, 4096, NextMove::kFail, Errc::kNoSpace, EDQUOT},
      {IoOp::kWrite, -EFBIG, 4096, NextMove::kFail, Errc::kNoSpace, EFBIG},
      {IoOp::kRead, -EINVAL, 4096, NextMove::kFail, Errc::kIo, EINVAL},
      {IoOp::kRead, -EFAULT, 4096, NextMove::kFail, Errc::kInternal, EFAULT},
      {IoOp::kWrite, -EBADF, 4096, NextMove::kFail, Errc::kInternal, EBADF},
      {IoOp::kRead, -ENOMEM, 4096, NextMove::kRetryLater, Errc::kOk, 0},
      {IoOp::kRead, 8193, 4096, NextMove::kFail, Errc::kInternal, 0},
      {IoOp::kRead, 8192, 4096, NextMove::kDone, Errc::kOk, 0},
  };
  for (const Case& c : cases) {
    Transfer transfer{c.op, 8192};
    const Verdict verdict = judge(transfer, c.result, c.alignment);
    EXPECT_EQ(verdict.move, c.move) << c.result;
    EXPECT_EQ(verdict.code, c.code) << c.result;
    EXPECT_EQ(verdict.sys_errno, c.sys_errno) << c.result;
  }
  Transfer twice{IoOp::kRead, 8192};
  judge(twice, -EIO, 4096);
  EXPECT_EQ(judge(twice, -EIO, 4096).move, NextMove::kFail)
      << "a read is tried once more, not twice";
}

TEST(ClassLanesTest, UrgentGoesFirstInOrderAndNobodyStarves) {
  std::vector<std::uint32_t> links(1000);
  ClassLanes lanes(links);
  lanes.push(IoClass::kWriteBack, 999);
  for (std::uint32_t i = 0; i < 100; ++i) lanes.push(IoClass::kDemand, i);
  std::uint32_t before = 0;
  for (; lanes.front() != 999; ++before) {
    ASSERT_EQ(lanes.front(), before) << "in order of arrival";
    lanes.pop();
  }
  EXPECT_EQ(before, ClassLanes::kPatience);
  lanes.pop();
  for (std::uint32_t i = before; i < 100; ++i) {
    ASSERT_EQ(lanes.front(), i);
    lanes.pop();
  }
  EXPECT_TRUE(lanes.empty());
  EXPECT_EQ(lanes.front(), kNoIndex);
}

TEST(ClassLanesTest, AnIndexCanBeTakenFromAnywhere) {
  for (const std::uint32_t victim : {0U, 1U, 2U}) {
    std::vector<std::uint32_t> links(4);
    ClassLanes lanes(links);
    for (std::uint32_t i = 0; i < 3; ++i) lanes.push(IoClass::kPrefetch, i);
    lanes.remove(IoClass::kPrefetch, victim);
    lanes.push(IoClass::kPrefetch, 3);
    for (std::uint32_t i = 0; i < 4; ++i) {
      if (i == victim) continue;
      EXPECT_EQ(lanes.front(), i) << "without " << victim;
      lanes.pop();
    }
    EXPECT_TRUE(lanes.empty());
  }
}

class RequestBookTest : public ::testing::Test {
 protected:
  IoRequest request(IoOp op, std::uint64_t bytes, std::uint64_t memory, std::uint64_t cookie) {
    return {op,    IoClass::kPrefetch, 1, 1 << 20, reinterpret_cast<std::byte*>(memory), bytes,
            cookie};
  }
  TemporaryDirectory directory_;
  PosixFilePtr file_ = PosixFile::open(directory_.path() + "/f", {.create = true}).value();
};

TEST_F(RequestBookTest, CutsPiecesAtFramePagesWithinCredit) {
  RequestBook book({.piece_bytes = 1 << 20, .read_credit_bytes = 2 << 20});
  constexpr std::uint64_t kMiB = 1 << 20;
  // Memory begins half a MiB before a 2 MiB boundary. Never touched, only counted.
  book.add(request(IoOp::kRead, 3 * kMiB, 64 * kMiB - kMiB / 2, 7), file_, 0);
  const auto a = book.next_piece(), b = book.next_piece(), none = book.next_piece();
  ASSERT_TRUE(a && b);
  EXPECT_EQ(a->transfer.bytes, kMiB / 2) << "up to the boundary";
  EXPECT_EQ(b->transfer.bytes, kMiB);
  EXPECT_EQ(b->offset_bytes, kMiB + kMiB / 2);
  EXPECT_FALSE(none.has_value()) << "another MiB would exceed the credit";
  EXPECT_FALSE(book.finish(*b, {}).has_value());
  const auto c = book.next_piece();
  ASSERT_TRUE(c);
  EXPECT_FALSE(book.finish(*a, {}).has_value());
  const auto d = book.next_piece();
  ASSERT_TRUE(d);
  EXPECT_EQ(d->transfer.bytes, kMiB / 2) << "the rest";
  EXPECT_FALSE(book.finish(*d, {}).has_value());
  const auto done = book.finish(*c, {});
  ASSERT_TRUE(done);
  EXPECT_EQ(done->cookie, 7U);
  EXPECT_EQ(done->code, Errc::kOk);
  EXPECT_EQ(done->bytes, 3 * kMiB);
  EXPECT_EQ(book.in_flight(), 1U) << "until delivered";
  book.delivered();
  EXPECT_EQ(book.in_flight(), 0U);
}

TEST_F(RequestBookTest, TheFirstFailureByPlaceIsReportedAndNothingMoreIsHandedOut) {
  RequestBook book({.piece_bytes = 4096});
  book.add(request(IoOp::kWrite, 8 * 4096, 1 << 21, 1), file_, 0);
  book.add(request(IoOp::kWrite, 4096, 1 << 21, 2), file_, 0);
  auto a = book.next_piece(), b = book.next_piece(), c = book.next_piece();
  ASSERT_TRUE(a && b && c);
  EXPECT_FALSE(book.finish(*c, {Errc::kNoSpace, ENOSPC}).has_value());
  const auto other = book.next_piece();
  ASSERT_TRUE(other);
  EXPECT_EQ(other->slot != a->slot, true) << "the failed request waits no more";
  EXPECT_FALSE(book.next_piece().has_value());
  EXPECT_FALSE(book.finish(*a, {}).has_value());
  const auto done = book.finish(*b, {Errc::kIo, EIO});
  ASSERT_TRUE(done);
  EXPECT_EQ(done->code, Errc::kIo);
  EXPECT_EQ(done->sys_errno, EIO);
  EXPECT_EQ(done->bytes, 4096U);
}

TEST_F(RequestBookTest, ReadsDoNotUseUpTheCreditOfWrites) {
  RequestBook book({.piece_bytes = 4096, .read_credit_bytes = 4096, .write_credit_bytes = 4096});
  for (std::uint64_t i = 0; i < 4; ++i) {
    book.add(request(i % 2 == 0 ? IoOp::kRead : IoOp::kWrite, 4096, 1 << 21, i), file_, 0);
  }
  const auto a = book.next_piece(), b = book.next_piece();
  ASSERT_TRUE(a && b);
  EXPECT_NE(a->transfer.op, b->transfer.op);
  EXPECT_FALSE(book.next_piece().has_value());
}

TEST_F(RequestBookTest, StatsKnowTheOldest) {
  RequestBook book({});
  book.add(request(IoOp::kRead, 4096, 1 << 21, 0), file_, 100);
  book.add(request(IoOp::kRead, 4096, 1 << 21, 1), file_, 300);
  EXPECT_EQ(book.stats(1000).oldest_in_flight_ns, 900U);
  const auto first = book.next_piece();
  ASSERT_TRUE(book.finish(*first, {}).has_value());
  EXPECT_EQ(book.stats(1000).oldest_in_flight_ns, 700U);
  ASSERT_TRUE(book.drop_one(Errc::kCancelled, 0).has_value());
  EXPECT_EQ(book.stats(1000).oldest_in_flight_ns, 0U);
  EXPECT_FALSE(book.drop_one(Errc::kCancelled, 0).has_value());
}

TEST(PieceTableTest, NamesOfEarlierPiecesAreUnknown) {
  PieceTable table(2);
  const std::uint64_t first = table.put({});
  EXPECT_NE(table.find(first), nullptr);
  table.release(first);
  EXPECT_EQ(table.find(first), nullptr);
  const std::uint64_t second = table.put({}), third = table.put({});
  EXPECT_TRUE(table.full());
  EXPECT_NE(second, first);
  EXPECT_NE(third, second);
  EXPECT_EQ(table.find(first), nullptr) << "same place, earlier generation";
  EXPECT_EQ(table.find(0), nullptr);
  EXPECT_EQ(table.find(~std::uint64_t{0}), nullptr);
  EXPECT_EQ(table.find(std::uint64_t{1} << 32 | 5), nullptr);
}

}  // namespace
}  // namespace penstock::testing
