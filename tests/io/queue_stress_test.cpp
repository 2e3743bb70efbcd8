// Queues over real files under what a long run meets: very many operations, signals, transfers
// beyond what the system moves at once, a file that shrinks under them.

#include <sys/time.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "io/queue_battery.hpp"
#include "io/request_book.hpp"
#include "sanitizers.hpp"

namespace penstock::testing {
namespace {

using QueueStressTest = QueueBattery;

std::size_t open_descriptors() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    count += entry.path().empty() ? 0 : 1;
  }
  return count;
}

/// Bytes that the kernel counts as locked or pinned.
std::uint64_t locked_bytes() {
  std::ifstream status("/proc/self/status");
  std::uint64_t total = 0, value = 0;
  std::string line;
  while (std::getline(status, line)) {
    if (line.rfind("VmLck:", 0) == 0 || line.rfind("VmPin:", 0) == 0) {
      value = std::stoull(line.substr(6));
      total += value << 10;
    }
  }
  return total;
}

TEST_P(QueueStressTest, TenThousandOperationsLeaveNothingBehind) {
  constexpr std::uint64_t kPages = 64, kOperations = 10'000;
  Pages memory(kPages * kPageBytes);
  QueueOptions options;
  options.memory = {memory.span()};
  remake_queue(options);
  fill_pattern(memory.span(), 1);
  submit({request(IoOp::kWrite, memory.data(), kPages, 0, 0)});
  drain();
  const std::size_t descriptors = open_descriptors();
  // An earlier ring may still count; what this one has lent is what is to stay.
  const std::uint64_t first = locked_bytes();
  const std::uint64_t locked = std::min(first, kPages * kPageBytes);
  std::uint64_t cookie = 0;
  for (std::uint64_t done = 0; done < kOperations; done += kPages) {
    std::vector<IoRequest> requests;
    for (std::uint64_t i = 0; i < kPages; ++i) {
      requests.push_back(request(done % (2 * kPages) == 0 ? IoOp::kRead : IoOp::kWrite,
                                 memory.data() + i * kPageBytes, 1, i, ++cookie,
                                 static_cast<IoClass>(i % kIoClassCount)));
    }
    submit(requests);
    drain();
  }
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_LE(locked_bytes(), first);
  EXPECT_EQ(queue_->stats().in_flight_requests, 0U);
  EXPECT_EQ(sink_.count(Errc::kOk), cookie + 1);
  EXPECT_TRUE(has_pattern(memory.span(), 1));
  // Queues come and go without a trace, too. The kernel ends a ring some time after its descriptor.
  for (int i = 0; i < 20; ++i) remake_queue(options);
  EXPECT_EQ(open_descriptors(), descriptors);
  const std::uint64_t until = steady_now_ns() + kPatienceNs;
  while (locked_bytes() > locked && steady_now_ns() < until) ::usleep(1000);
  EXPECT_EQ(locked_bytes(), locked);
}

TEST_P(QueueStressTest, SignalsDisturbNothing) {
  struct sigaction action {
  }, before{};
  action.sa_handler = [](int) {};  // without SA_RESTART: waits end with EINTR
  ASSERT_EQ(::sigaction(SIGALRM, &action, &before), 0);
  const itimerval often{{0, 1000}, {0, 1000}};
  ASSERT_EQ(::setitimer(ITIMER_REAL, &often, nullptr), 0);
  constexpr std::uint64_t kPages = 512;
  Pages memory(kPages * kPageBytes), back(kPages * kPageBytes);
  std::uint64_t cookie = 0;
  for (int round = 0; round < 20; ++round) {
    fill_pattern(memory.span(), static_cast<std::uint64_t>(round));
    submit({request(IoOp::kWrite, memory.data(), kPages, 0, cookie++)});
    drain();
    submit({request(IoOp::kRead, back.data(), kPages, 0, cookie++)});
    drain();
    EXPECT_TRUE(has_pattern(back.span(), static_cast<std::uint64_t>(round)));
  }
  const itimerval never{};
  ::setitimer(ITIMER_REAL, &never, nullptr);
  ::sigaction(SIGALRM, &before, nullptr);
  sink_.expect_exactly_once(cookie);
  EXPECT_EQ(sink_.count(Errc::kOk), cookie);
}

TEST_P(QueueStressTest, ARequestMayBeLongerThanTheSystemMovesAtOnce) {
  if (kAddressSanitizer || kThreadSanitizer) {
    GTEST_SKIP() << "2 GiB of memory under a sanitizer take minutes; the release build runs this";
  }
  constexpr std::uint64_t kBytes = (std::uint64_t{2} << 30) + 3 * kPageBytes;
  const FileId sparse = make_file("sparse", 0);
  ASSERT_TRUE(world_->storage().extend(sparse, kBytes).ok());
  Pages last(kPageBytes);
  fill_pattern(last.span(), 4);
  ASSERT_TRUE(world_->storage().write_at(sparse, kBytes - kPageBytes, last.span()).ok());
  Pages memory(kBytes);
  IoRequest all = request(IoOp::kRead, memory.data(), kBytes / kPageBytes, 0, 0);
  all.file = sparse;
  submit({all});
  drain();
  EXPECT_EQ(sink_.of(0).code, Errc::kOk);
  EXPECT_EQ(sink_.of(0).bytes, kBytes);
  EXPECT_TRUE(has_pattern(memory.span().last(kPageBytes), 4));
}

TEST_P(QueueStressTest, AFileThatShrinksUnderReadsIsSaidToEndEarly) {
  constexpr std::uint64_t kPages = 512;
  Pages memory(kPages * kPageBytes);
  fill_pattern(memory.span(), 2);
  submit({request(IoOp::kWrite, memory.data(), kPages, 0, 0)});
  drain();
  std::filesystem::resize_file(world_->path("data"), kPages / 2 * kPageBytes);
  std::vector<IoRequest> reads;
  for (std::uint64_t i = 0; i < kPages; ++i) {
    reads.push_back(request(IoOp::kRead, memory.data() + i * kPageBytes, 1, i, 1 + i));
  }
  submit(reads);
  drain();
  sink_.expect_exactly_once(kPages + 1);
  for (std::uint64_t i = 0; i < kPages; ++i) {
    const IoCompletion done = sink_.of(1 + i);
    EXPECT_EQ(done.code, i < kPages / 2 ? Errc::kOk : Errc::kIo) << i;
    EXPECT_EQ(done.sys_errno, 0) << i;
  }
  submit({request(IoOp::kRead, memory.data(), kPages / 2, 0, kPages + 1)});
  drain();
  EXPECT_EQ(sink_.of(kPages + 1).code, Errc::kOk) << "what is there can still be read";
}

INSTANTIATE_TEST_SUITE_P(Io, QueueStressTest, ::testing::Values(World::kThreads, World::kUring),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace penstock::testing
