// What only the queues over real files can show: concurrent submitters, limits of the system, a
// kernel that refuses io_uring, completions nobody asked for.

#include <linux/limits.h>
#include <seccomp.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <thread>

#include "io/queue_battery.hpp"
#include "io/uring_queue.hpp"
#include "sanitizers.hpp"

namespace penstock::testing {
namespace {

using RealQueueTest = QueueBattery;

TEST_P(RealQueueTest, ManyThreadsMaySubmit) {
  constexpr std::uint64_t kEach = 300, kThreads = 4;
  Pages memory(kThreads * kEach * kPageBytes), read(kThreads * kEach * kPageBytes);
  fill_pattern(memory.span(), 8);
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = t * kEach; i < (t + 1) * kEach; ++i) {
        const IoRequest one = request(IoOp::kWrite, memory.data() + i * kPageBytes, 1, i, i);
        EXPECT_TRUE(queue_->submit({&one, 1}).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  drain();
  sink_.expect_exactly_once(kThreads * kEach);
  submit({request(IoOp::kRead, read.data(), kThreads * kEach, 0, kThreads * kEach)});
  drain();
  EXPECT_TRUE(has_pattern(read.span(), 8));
}

TEST_P(RealQueueTest, AForkedChildCannotUseIt) {
  if (kThreadSanitizer) {
    GTEST_SKIP() << "the thread sanitizer stops a forked child that lets go of its parent's "
                    "threads; the other builds run this test";
  }
  Pages memory(kPageBytes);
  fill_pattern(memory.span(), 8);
  const IoRequest one = request(IoOp::kWrite, memory.data(), 1, 0, 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool refused = queue_->submit({&one, 1}).error().code == Errc::kState &&
                         queue_->drain(kPatienceNs).error().code == Errc::kState &&
                         queue_->drop_queued() == 0 && queue_->stats().writes == 0;
    queue_.reset();  // waits for no thread that the child has not
    ::_exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  ASSERT_TRUE(queue_->submit({&one, 1}).ok());
  drain();
  sink_.expect_exactly_once(1);
}

// The limit on file size cuts a write short and then refuses the rest.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(std::uint64_t bytes) {
    old_handler_ = std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit{bytes, old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, old_handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit old_{};
  void (*old_handler_)(int) = nullptr;
};

TEST_P(RealQueueTest, AWriteThatDoesNotFitIsContinuedThenReportedAsNoSpace) {
  constexpr std::uint64_t kLimitPages = 300, kPages = 512;
  Pages memory(kPages * kPageBytes);
  fill_pattern(memory.span(), 3);
  {
    const FileSizeLimit limit(kLimitPages * kPageBytes);
    submit({request(IoOp::kWrite, memory.data(), kPages, 0, 0)});
    drain();
  }
  sink_.expect_exactly_once(1);
  const IoCompletion done = sink_.of(0);
  EXPECT_EQ(done.code, Errc::kNoSpace);
  EXPECT_EQ(done.sys_errno, EFBIG);
  EXPECT_EQ(done.bytes, kLimitPages * kPageBytes);
  EXPECT_GE(queue_->stats().short_transfers, 1U);
  EXPECT_EQ(queue_->stats().errors, 1U);
  const auto content = world_->storage().read_file(world_->path("data"), kPages * kPageBytes);
  ASSERT_EQ(content.value().size(), kLimitPages * kPageBytes);
  EXPECT_TRUE(has_pattern(content.value(), 3)) << "what did fit was written";
  submit({request(IoOp::kWrite, memory.data(), kPages, 0, 1)});
  drain();
  EXPECT_EQ(sink_.of(1).code, Errc::kOk) << "the queue goes on";
}

TEST_P(RealQueueTest, WaitingSubmittersAreLetGoByACompletion) {
  // The table is full while the gate is closed: one more submitter must wait, and then finish.
  constexpr std::uint64_t kTable = RequestBook::kRequests;
  Pages memory((kTable + 100) * kPageBytes);
  submit({request(IoOp::kWrite, memory.data(), 1, 0, kTable + 1)});
  drain();
  sink_.clear();
  sink_.close_gate();
  std::vector<IoRequest> requests;
  for (std::uint64_t i = 0; i < kTable; ++i) {
    requests.push_back(request(IoOp::kRead, memory.data() + i * kPageBytes, 1, 0, i));
  }
  submit(requests);
  std::atomic<bool> entered = false;
  std::thread late([&] {
    entered = true;
    std::vector<IoRequest> more;
    for (std::uint64_t i = 0; i < 100; ++i) {
      more.push_back(
          request(IoOp::kRead, memory.data() + (kTable + i) * kPageBytes, 1, 0, kTable + i));
    }
    submit(more);
  });
  while (!entered) std::this_thread::yield();
  sink_.open_gate();
  late.join();
  drain();
  sink_.expect_exactly_once(kTable + 100);
}

TEST_P(RealQueueTest, CompletionsMaySubmitWhileTheTableIsFull) {
  constexpr std::uint64_t kTable = RequestBook::kRequests;
  Pages memory((kTable + 50) * kPageBytes);
  submit({request(IoOp::kWrite, memory.data(), 1, 0, 0)});
  drain();
  sink_.clear();
  std::atomic<std::uint64_t> next = kTable;
  std::atomic<int> refused = 0;
  sink_.react = [&](const IoCompletion& completion) {
    if (completion.cookie != 0) return;
    for (int i = 0; i < 50; ++i) {  // into the reserve: a wait here would never end
      const IoRequest more = request(IoOp::kRead, memory.data() + next * kPageBytes, 1, 0, next);
      ++next;
      EXPECT_TRUE(queue_->submit({&more, 1}).ok());
    }
    const std::vector<IoRequest> too_many(kTable + RequestBook::kReserve,
                                          IoRequest(request(IoOp::kRead, memory.data(), 1, 0, 0)));
    const Status status = queue_->submit(too_many);
    refused += !status && status.error().code == Errc::kState ? 1 : 0;
  };
  std::vector<IoRequest> requests;
  for (std::uint64_t i = 0; i < kTable; ++i) {
    requests.push_back(request(IoOp::kRead, memory.data() + i * kPageBytes, 1, 0, i));
  }
  submit(requests);
  drain();
  EXPECT_EQ(refused, 1);
  sink_.expect_exactly_once(kTable + 50);
}

INSTANTIATE_TEST_SUITE_P(Io, RealQueueTest, ::testing::Values(World::kThreads, World::kUring),
                         [](const auto& info) { return std::string(name_of(info.param)); });

// Runs in a child process: the filter cannot be taken back.
[[noreturn]] void use_without_io_uring(int error, const char* expected_words) {
  scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
  const auto deny = static_cast<std::uint32_t>(SCMP_ACT_ERRNO(static_cast<unsigned>(error)));
  if (seccomp_rule_add(filter, deny, SCMP_SYS(io_uring_setup), 0) != 0 ||
      seccomp_load(filter) != 0) {
    std::fprintf(stderr, "seccomp filter not loaded\n");
    std::_Exit(2);
  }
  seccomp_release(filter);
  StorageWorld world(World::kUring);
  BatterySink sink;
  const auto refused = world.make_queue(sink);
  auto queue = world.storage().make_queue(sink, {}).value();
  Pages memory(300 * kPageBytes), back(300 * kPageBytes);
  fill_pattern(memory.span(), 1);
  const FileId file = world.storage().open(world.path("f"), {.create = true}).value();
  const IoRequest write{IoOp::kWrite, {}, file, 0, memory.data(), memory.size(), 0};
  const IoRequest read{IoOp::kRead, {}, file, 0, back.data(), back.size(), 1};
  const bool moved = queue->submit({&write, 1}).ok() && queue->drain(kPatienceNs).ok() &&
                     queue->submit({&read, 1}).ok() && queue->drain(kPatienceNs).ok();
  const std::string reason = queue->backend_reason();
  const bool good = !refused && refused.error().code == Errc::kUnsupported &&
                    queue->backend() == "threads" &&
                    reason.find(expected_words) != std::string::npos &&
                    queue->shortfall().find(expected_words) != std::string::npos && moved &&
                    has_pattern(back.span(), 1);
  std::fprintf(stderr, "%s: %s\n", queue->backend().c_str(), reason.c_str());
  queue.reset();
  std::error_code ignored;
  std::filesystem::remove_all(world.directory(), ignored);
  std::_Exit(good ? 0 : 1);
}

TEST(UringFallbackDeathTest, ThreadsTakeOverWithTheReason) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(use_without_io_uring(EPERM, "seccomp"), ::testing::ExitedWithCode(0), "threads: ");
  EXPECT_EXIT(use_without_io_uring(ENOSYS, "Linux 5.6"), ::testing::ExitedWithCode(0), "threads");
  EXPECT_EXIT(use_without_io_uring(ENOMEM, "ulimit -l"), ::testing::ExitedWithCode(0), "threads");
}

TEST(UringQueueTest, AnUnknownCompletionStopsTheQueue) {
  auto files = std::make_shared<PosixFileTable>();
  const TemporaryDirectory directory;
  const FileId file =
      files->add(PosixFile::open(directory.path() + "/f", {.create = true}).value());
  BatterySink sink;
  auto state = std::make_shared<UringQueueState>(files, sink, QueueOptions{});
  std::thread thread([state] { state->run(); });
  const Status started = state->wait_started();
  if (!started) {
    thread.join();
    GTEST_SKIP() << started.error().message;
  }
  Pages memory(kPageBytes);
  const IoRequest write{IoOp::kWrite, {}, file, 0, memory.data(), kPageBytes, 0};
  ASSERT_TRUE(state->submit({&write, 1}).ok());
  ASSERT_TRUE(state->drain(kPatienceNs).ok());
  // The name of the piece that has just ended: index 0, generation 1. It must not be taken again.
  state->inject_completion(std::uint64_t{1} << 32);
  while (state->stats().errors == 0) std::this_thread::yield();
  const Status refused = state->submit({&write, 1});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::kInternal);
  EXPECT_NE(refused.error().message.find("0x100000000"), std::string::npos);
  sink.expect_exactly_once(1);
  EXPECT_TRUE(state->shut_down());
  thread.join();
}

}  // namespace
}  // namespace penstock::testing
