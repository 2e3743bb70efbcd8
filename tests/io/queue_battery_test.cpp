// What every storage queue promises, run over threads, io_uring and the simulation.

#include "io/queue_battery.hpp"

#include <atomic>
#include <thread>

namespace penstock::testing {
namespace {

TEST_P(QueueBattery, RoundTripsRequestsOfOddPageCounts) {
  const std::vector<std::uint64_t> counts = {1, 2, 3, 5, 7, 31, 255, 256, 257, 511, 513, 1025};
  std::vector<Pages> written, read;
  std::vector<IoRequest> writes, reads;
  std::uint64_t page = 0, cookie = 0;
  for (const std::uint64_t pages : counts) {
    written.emplace_back(pages * kPageBytes);
    read.emplace_back(pages * kPageBytes);
    fill_pattern(written.back().span(), pages);
    writes.push_back(request(IoOp::kWrite, written.back().data(), pages, page, cookie));
    reads.push_back(request(IoOp::kRead, read.back().data(), pages, page, counts.size() + cookie));
    page += pages;
    ++cookie;
  }
  submit(writes);
  drain();
  submit(reads);
  drain();
  sink_.expect_exactly_once(2 * counts.size());
  for (std::size_t i = 0; i < counts.size(); ++i) {
    EXPECT_TRUE(has_pattern(read[i].span(), counts[i])) << counts[i] << " pages";
    const IoCompletion done = sink_.of(counts.size() + i);
    EXPECT_EQ(done.code, Errc::kOk);
    EXPECT_EQ(done.bytes, counts[i] * kPageBytes);
  }
  EXPECT_EQ(world_->storage().size_bytes(file_).value(), page * kPageBytes);
  const IoStats stats = queue_->stats();
  EXPECT_EQ(stats.reads, counts.size());
  EXPECT_EQ(stats.writes, counts.size());
  EXPECT_EQ(stats.read_bytes, page * kPageBytes);
  EXPECT_EQ(stats.write_bytes, page * kPageBytes);
  EXPECT_EQ(stats.in_flight_requests, 0U);
  EXPECT_EQ(stats.errors, 0U);
  EXPECT_EQ(queue_->backend(), name_of(GetParam()));
  EXPECT_FALSE(queue_->backend_reason().empty());
}

TEST_P(QueueBattery, ThousandsOfRequestsOfAllClassesCompleteOnceEach) {
  constexpr std::uint64_t kCount = 3000;
  Pages written(kCount * kPageBytes), read(kCount * kPageBytes);
  fill_pattern(written.span(), 1);
  std::vector<IoRequest> requests;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const std::uint64_t page = i * 7 % kCount;
    requests.push_back(request(IoOp::kWrite, written.data() + page * kPageBytes, 1, page, i,
                               static_cast<IoClass>(i % kIoClassCount)));
  }
  submit(requests);
  drain();
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const std::uint64_t page = i * 11 % kCount;
    requests[i] = request(IoOp::kRead, read.data() + page * kPageBytes, 1, page, kCount + i,
                          static_cast<IoClass>(i % kIoClassCount));
  }
  submit(requests);
  drain();
  sink_.expect_exactly_once(2 * kCount);
  EXPECT_EQ(sink_.count(Errc::kOk), 2 * kCount);
  EXPECT_TRUE(has_pattern(read.span(), 1));
}

TEST_P(QueueBattery, MoreRequestsThanTheTableHoldsAreTakenInTurn) {
  constexpr std::uint64_t kCount = 20'000;
  Pages memory(kPageBytes);
  fill_pattern(memory.span(), 1);
  submit({request(IoOp::kWrite, memory.data(), 1, 0, 0)});
  drain();
  sink_.clear();
  Pages into(kCount * kPageBytes);
  std::vector<IoRequest> requests;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    requests.push_back(request(IoOp::kRead, into.data() + i * kPageBytes, 1, 0, i));
  }
  submit(requests);
  drain();
  sink_.expect_exactly_once(kCount);
  EXPECT_EQ(sink_.count(Errc::kOk), kCount);
}

TEST_P(QueueBattery, CompletionsMaySubmit) {
  constexpr std::uint64_t kRounds = 300;
  Pages memory(4 * kPageBytes);
  sink_.react = [&](const IoCompletion& completion) {
    EXPECT_EQ(completion.code, Errc::kOk);
    const std::uint64_t next = completion.cookie + 4;  // the page is the same one, free again
    if (next >= kRounds) return;
    const IoRequest again = request(next % 8 < 4 ? IoOp::kWrite : IoOp::kRead,
                                    memory.data() + next % 4 * kPageBytes, 1, next % 4, next);
    EXPECT_TRUE(queue_->submit({&again, 1}).ok());
  };
  for (std::uint64_t i = 0; i < 4; ++i) {
    submit({request(IoOp::kWrite, memory.data() + i * kPageBytes, 1, i, i)});
  }
  drain();
  sink_.expect_exactly_once(kRounds);
}

TEST_P(QueueBattery, ABadRequestRefusesTheWholeBatch) {
  Pages memory(4 * kPageBytes);
  fill_pattern(memory.span(), 1);
  const IoRequest good = request(IoOp::kWrite, memory.data(), 1, 0, 0);
  const auto broken = [&](auto change) {
    IoRequest bad = good;
    change(bad);
    return bad;
  };
  const std::vector<IoRequest> bads = {
      broken([](IoRequest& r) { r.offset_bytes = 512; }),
      broken([](IoRequest& r) { r.bytes = 1000; }),
      broken([](IoRequest& r) { r.bytes = 0; }),
      broken([](IoRequest& r) { r.memory += 64; }),
      broken([](IoRequest& r) { r.memory = nullptr; }),
      broken([](IoRequest& r) { r.offset_bytes = ~std::uint64_t{4095}; }),
      broken([](IoRequest& r) { r.file = 12345; }),
  };
  for (const IoRequest& bad : bads) {
    const IoRequest batch[] = {good, bad, good};
    const Status refused = queue_->submit(batch);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Errc::kArgument);
    EXPECT_NE(refused.error().message.find("request 1"), std::string::npos)
        << refused.error().message;
  }
  drain();
  sink_.expect_exactly_once(0);
  EXPECT_EQ(world_->storage().size_bytes(file_).value(), 0U) << "nothing was written";
}

TEST_P(QueueBattery, WritesToAFileOpenForReadingAreRefused) {
  const FileId read_only = world_->storage().open(world_->path("data"), {.write = false}).value();
  Pages memory(kPageBytes);
  IoRequest bad = request(IoOp::kWrite, memory.data(), 1, 0, 0);
  bad.file = read_only;
  const Status refused = queue_->submit({&bad, 1});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::kArgument);
}

TEST_P(QueueBattery, ReadsPastTheEndSayWhereTheFileEnded) {
  const FileId three = make_file("three", 3);
  Pages memory(600 * kPageBytes);
  IoRequest over = request(IoOp::kRead, memory.data(), 600, 0, 0);
  IoRequest behind = request(IoOp::kRead, memory.data(), 1, 3, 1);
  over.file = behind.file = three;
  submit({over});
  drain();
  submit({behind});
  drain();
  sink_.expect_exactly_once(2);
  EXPECT_EQ(sink_.of(0).code, Errc::kIo);
  EXPECT_EQ(sink_.of(0).sys_errno, 0);
  EXPECT_EQ(sink_.of(0).bytes, 3 * kPageBytes);
  EXPECT_EQ(sink_.of(1).code, Errc::kIo);
  EXPECT_EQ(sink_.of(1).sys_errno, 0);
  EXPECT_EQ(sink_.of(1).bytes, 0U);
  EXPECT_EQ(queue_->stats().errors, 2U);
}

TEST_P(QueueBattery, DropsWhatTheKernelDoesNotHave) {
  constexpr std::uint64_t kCount = 500;
  remake_queue({.read_credit_bytes = 8 * kPageBytes, .write_credit_bytes = 8 * kPageBytes});
  if (!world_->simulated()) sink_.close_gate();  // the first completions hold up the rest
  Pages memory(kCount * kPageBytes);
  std::vector<IoRequest> requests;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    requests.push_back(request(IoOp::kWrite, memory.data() + i * kPageBytes, 1, i, i));
  }
  submit(requests);
  if (!world_->simulated()) sink_.wait_at_gate();
  EXPECT_GT(queue_->stats().in_flight_requests, 0U);
  const Status early = queue_->drain(0);
  ASSERT_FALSE(early.ok());
  EXPECT_EQ(early.error().code, Errc::kTimeout);
  EXPECT_NE(early.error().message.find("500 requests"), std::string::npos) << early.error().message;
  const std::size_t dropped = queue_->drop_queued();
  EXPECT_GT(dropped, 400U);
  EXPECT_LT(dropped, kCount) << "what the kernel has cannot be dropped";
  EXPECT_EQ(queue_->drop_queued(), 0U);
  sink_.open_gate();
  drain();
  sink_.expect_exactly_once(kCount);
  EXPECT_EQ(sink_.count(Errc::kCancelled), dropped);
  EXPECT_EQ(sink_.count(Errc::kOk), kCount - dropped);
}

TEST_P(QueueBattery, DestructionEndsEveryRequest) {
  constexpr std::uint64_t kCount = 400;
  Pages memory(kCount * 4 * kPageBytes);
  std::vector<IoRequest> requests;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    requests.push_back(request(IoOp::kWrite, memory.data() + i * 4 * kPageBytes, 4, i * 4, i,
                               static_cast<IoClass>(i % kIoClassCount)));
  }
  submit(requests);
  queue_.reset();
  sink_.expect_exactly_once(kCount);
  EXPECT_EQ(sink_.count(Errc::kOk) + sink_.count(Errc::kCancelled), kCount);
}

TEST_P(QueueBattery, AShuttingDownQueueRefuses) {
  constexpr std::uint64_t kCount = 300;
  remake_queue({.write_credit_bytes = 4 * kPageBytes});
  Pages memory(kPageBytes);
  std::atomic<int> refused = 0, other = 0;
  StorageQueue* const queue = queue_.get();  // unique_ptr is null while its object is destroyed
  sink_.react = [&](const IoCompletion& completion) {
    if (completion.code != Errc::kCancelled) return;  // the destructor's cancellations
    const IoRequest late = request(IoOp::kRead, memory.data(), 1, 0, 99'999);
    const Status status = queue->submit({&late, 1});
    !status&& status.error().code == Errc::kState ? ++refused : ++other;
  };
  if (!world_->simulated()) sink_.close_gate();
  std::vector<IoRequest> requests;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    requests.push_back(request(IoOp::kWrite, memory.data(), 1, i, i));
  }
  submit(requests);
  // Opens the gate once the cancellations have begun, so that some requests are still queued then.
  std::thread opener([&] {
    while (!world_->simulated() && refused + other == 0) std::this_thread::yield();
    sink_.open_gate();
  });
  queue_.reset();
  opener.join();
  EXPECT_GT(refused, 0);
  EXPECT_EQ(other, 0);
  sink_.expect_exactly_once(kCount);
}

TEST_P(QueueBattery, RequestsLargerThanTheCreditPass) {
  remake_queue({.piece_bytes = 64 << 10, .read_credit_bytes = 4096, .write_credit_bytes = 4096});
  constexpr std::uint64_t kCount = 1031;  // pages; from an address off any 2 MiB boundary
  Pages written((kCount + 3) * kPageBytes), read((kCount + 3) * kPageBytes);
  fill_pattern(written.span().subspan(3 * kPageBytes), 5);
  submit({request(IoOp::kWrite, written.data() + 3 * kPageBytes, kCount, 0, 0)});
  drain();
  submit({request(IoOp::kRead, read.data() + 3 * kPageBytes, kCount, 0, 1)});
  drain();
  EXPECT_EQ(sink_.count(Errc::kOk), 2U);
  EXPECT_TRUE(has_pattern(read.span().subspan(3 * kPageBytes), 5));
}

TEST_P(QueueBattery, AClosedFileStaysOpenForItsRequests) {
  constexpr std::uint64_t kCount = 64;
  Pages memory(kCount * kPageBytes);
  fill_pattern(memory.span(), 6);
  std::vector<IoRequest> requests;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    requests.push_back(request(IoOp::kWrite, memory.data() + i * kPageBytes, 1, i, i));
  }
  submit(requests);
  ASSERT_TRUE(world_->storage().close(file_).ok());
  const FileId other = make_file("other", 1);  // would reuse the descriptor
  drain();
  EXPECT_EQ(sink_.count(Errc::kOk), kCount);
  EXPECT_FALSE(queue_->submit(requests).ok());
  const auto content = world_->storage().read_file(world_->path("data"), kCount * kPageBytes);
  ASSERT_TRUE(content.ok());
  EXPECT_TRUE(has_pattern(content.value(), 6));
  EXPECT_EQ(world_->storage().size_bytes(other).value(), kPageBytes);
}

INSTANTIATE_TEST_SUITE_P(Io, QueueBattery,
                         ::testing::Values(World::kThreads, World::kUring, World::kSimulated),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace penstock::testing
