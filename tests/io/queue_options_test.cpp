// What a queue over real files is told: memory to register, drives and their nodes, priorities;
// and what it does where the system does not play along.

#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <set>
#include <thread>

#include "io/io_thread.hpp"
#include "io/queue_battery.hpp"
#include "io/request_book.hpp"

namespace penstock::testing {
namespace {

class QueueOptionsTest : public QueueBattery {
 protected:
  /// Writes a file from `memory` and reads it back elsewhere in it.
  void round_trip(Pages& memory, std::uint64_t from_page, std::uint64_t pages) {
    const std::span<std::byte> out(memory.data() + from_page * kPageBytes, pages * kPageBytes);
    fill_pattern(out, pages);
    submit({request(IoOp::kWrite, out.data(), pages, 0, 0)});
    drain();
    fill_pattern(out, pages + 1);
    submit({request(IoOp::kRead, out.data(), pages, 0, 1)});
    drain();
    sink_.expect_exactly_once(2);
    sink_.clear();
    EXPECT_TRUE(has_pattern(out, pages));
  }
};

TEST_P(QueueOptionsTest, MemoryMayBeLentInWholeInPartOrNotAtAll) {
  Pages memory(2048 * kPageBytes);
  QueueOptions options;
  // With a gap, so that transfers lie inside, outside and across what is lent.
  options.memory = {{memory.data(), 512 * kPageBytes},
                    {memory.data() + 1024 * kPageBytes, 512 * kPageBytes}};
  remake_queue(options);
  if (GetParam() == World::kUring) {
    EXPECT_NE(queue_->backend_reason().find("4 MiB of 4 MiB of memory registered"),
              std::string::npos)
        << queue_->backend_reason();
    EXPECT_EQ(queue_->shortfall(), "");
  }
  for (const std::uint64_t from : {0U, 100U, 500U, 600U, 1000U, 1024U, 1530U, 1600U}) {
    round_trip(memory, from, 37);
  }
  round_trip(memory, 0, 2048);
}

TEST_P(QueueOptionsTest, MemoryNeedNotBeRegistered) {
  Pages memory(64 * kPageBytes);
  QueueOptions options;
  options.memory = {{memory.data(), 64 * kPageBytes}};
  options.register_memory = false;
  remake_queue(options);
  round_trip(memory, 0, 64);
  if (GetParam() == World::kUring) {
    EXPECT_NE(queue_->backend_reason().find("no registered memory"), std::string::npos)
        << queue_->backend_reason();
    EXPECT_EQ(queue_->shortfall(), "") << "it is as was asked";
  }
}

TEST_P(QueueOptionsTest, MemoryThatCannotBeLentIsTransferredAllTheSame) {
  Pages memory(64 * kPageBytes);
  QueueOptions options;
  options.memory = {{reinterpret_cast<std::byte*>(1 << 12), 64 * kPageBytes}};  // nothing is there
  remake_queue(options);
  round_trip(memory, 0, 64);
  if (GetParam() == World::kUring) {
    EXPECT_NE(queue_->backend_reason().find("0 B of 256 KiB"), std::string::npos)
        << queue_->backend_reason();
    EXPECT_NE(queue_->shortfall().find("ulimit -l"), std::string::npos) << queue_->shortfall();
  }
}

TEST_P(QueueOptionsTest, RequestsGoToTheThreadsOfTheirNode) {
  // Two filesystems stand for two drives on two nodes, each with a CPU of its own.
  char directory[] = "/dev/shm/penstock-node-XXXXXX";
  ASSERT_NE(::mkdtemp(directory), nullptr);
  const auto storage = make_posix_storage();
  cpu_set_t allowed;
  ASSERT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
  std::vector<int> cpus;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(static_cast<unsigned>(i), &allowed)) cpus.push_back(i);
  }
  const std::string here = world_->path("here"), there = std::string(directory) + "/there";
  const FileId files[] = {storage->open(here, {.create = true}).value(),
                          storage->open(there, {.create = true}).value()};
  struct stat facts[2] = {};
  ASSERT_EQ(::stat(here.c_str(), &facts[0]), 0);
  ASSERT_EQ(::stat(there.c_str(), &facts[1]), 0);
  QueueOptions options;
  options.backend = GetParam() == World::kUring ? QueueBackend::kUring : QueueBackend::kThreads;
  options.nodes = {{0, {cpus.front()}, {facts[0].st_dev}}, {1, {cpus.back()}, {facts[1].st_dev}}};
  std::mutex mutex;
  std::set<std::thread::id> threads[2];
  std::set<int> seen_cpus[2];
  sink_.react = [&](const IoCompletion& completion) {
    const std::lock_guard lock(mutex);
    EXPECT_EQ(completion.code, Errc::kOk);
    threads[completion.cookie % 2].insert(std::this_thread::get_id());
    seen_cpus[completion.cookie % 2].insert(::sched_getcpu());
  };
  auto queue = storage->make_queue(sink_, options).value();
  Pages memory(200 * kPageBytes);
  fill_pattern(memory.span(), 3);
  std::vector<IoRequest> requests;
  for (std::uint64_t i = 0; i < 200; ++i) {
    requests.push_back({IoOp::kWrite, IoClass::kWriteBack, files[i % 2], i / 2 * kPageBytes,
                        memory.data() + i * kPageBytes, kPageBytes, i});
  }
  ASSERT_TRUE(queue->submit(requests).ok());
  ASSERT_TRUE(queue->drain(kPatienceNs).ok());
  sink_.expect_exactly_once(200);
  EXPECT_EQ(queue->stats().writes, 200U);
  DriveStats stats[3];
  ASSERT_EQ(queue->drive_stats(stats), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(stats[i].drive, facts[i].st_dev);
    EXPECT_EQ(stats[i].write_bytes, 100 * kPageBytes);
    EXPECT_EQ(stats[i].read_bytes, 0U);
    EXPECT_GT(stats[i].busy_ns, 0U);
    EXPECT_EQ(stats[i].oldest_in_flight_ns, 0U);
  }
  IoRequest bad = requests[1];
  bad.bytes = 1;
  const IoRequest batch[] = {requests[0], bad};
  EXPECT_EQ(queue->submit(batch).error().code, Errc::kArgument);
  EXPECT_EQ(queue->stats().writes, 200U) << "a bad request refuses the batch, on all nodes";
  EXPECT_NE(queue->backend_reason().find("2 I/O threads"), std::string::npos);
  queue.reset();
  for (const std::thread::id id : threads[0]) EXPECT_EQ(threads[1].count(id), 0U);
  EXPECT_EQ(seen_cpus[0], std::set<int>{cpus.front()});
  EXPECT_EQ(seen_cpus[1], std::set<int>{cpus.back()});
  std::filesystem::remove_all(directory);
}

TEST_P(QueueOptionsTest, PrioritiesChangeNoResult) {
  for (const bool priorities : {true, false}) {
    QueueOptions options;
    options.priorities = priorities;
    remake_queue(options);
    Pages memory(400 * kPageBytes);
    fill_pattern(memory.span(), 9);
    std::vector<IoRequest> requests;
    for (std::uint64_t i = 0; i < 400; ++i) {
      requests.push_back(request(IoOp::kWrite, memory.data() + i * kPageBytes, 1, i, i,
                                 static_cast<IoClass>(i % kIoClassCount)));
    }
    submit(requests);
    drain();
    sink_.expect_exactly_once(400);
    EXPECT_EQ(sink_.count(Errc::kOk), 400U);
    sink_.clear();
    const auto content = world_->storage().read_file(world_->path("data"), 400 * kPageBytes);
    EXPECT_TRUE(has_pattern(content.value(), 9));
  }
}

INSTANTIATE_TEST_SUITE_P(Io, QueueOptionsTest, ::testing::Values(World::kThreads, World::kUring),
                         [](const auto& info) { return std::string(name_of(info.param)); });

/// How long the calling thread's turn is; 0: this kernel (before 6.12) does not say.
std::uint64_t turn_ns() {
  std::array<std::uint64_t, 6> attributes{};  // struct sched_attr: the runtime is its fourth word
  if (::syscall(SYS_sched_getattr, 0, attributes.data(), sizeof attributes, 0) != 0) return 0;
  return attributes[3];
}

TEST(IoThreadTest, TakesShorterTurnsThanThoseWhoCompute) {
  if (turn_ns() == 0) GTEST_SKIP() << "this kernel knows no turns; needs Linux 6.12 or newer";
  std::uint64_t before = 0, after = 0;
  int nice = -1;
  std::thread([&] {
    (void)::setpriority(PRIO_PROCESS, 0, 5);
    before = turn_ns();
    settle_io_thread({});
    after = turn_ns();
    nice = ::getpriority(PRIO_PROCESS, 0);
  }).join();
  EXPECT_LT(after, before);
  EXPECT_EQ(nice, 5) << "its share of a CPU stays";
  EXPECT_EQ(turn_ns(), before) << "others keep theirs";
}

TEST(IoThreadTest, PrioritiesAreWhatTheKernelGrants) {
  std::thread([] {
    const long before = ::syscall(SYS_ioprio_get, 1, 0);
    const IoPriorities priorities = io_priorities();
    EXPECT_EQ(::syscall(SYS_ioprio_get, 1, 0), before) << "asking changes nothing";
    for (const int priority : priorities) EXPECT_TRUE(set_io_priority(priority)) << priority;
    EXPECT_NE(priorities[0], priorities[3]) << "a demand is before what is written back";
  }).join();
}

class DrivesTest : public ::testing::Test {
 protected:
  PosixFilePtr make(const std::string& name, std::uint64_t drive) {
    const DriveNamer namer = [drive](std::uint32_t, std::uint32_t) { return drive; };
    return PosixFile::open(directory_.path() + "/" + name, {.create = true}, namer).value();
  }
  IoRequest read(std::uint64_t bytes, std::uint64_t cookie) {
    return {IoOp::kRead, IoClass::kPrefetch, 1, 0, reinterpret_cast<std::byte*>(1 << 21), bytes,
            cookie};
  }
  TemporaryDirectory directory_;
};

TEST_F(DrivesTest, EachHasItsOwnCreditAndTwoFilesOfOneShareIt) {
  const PosixFilePtr a = make("a", 1), b = make("b", 1), c = make("c", 2);
  RequestBook book({.piece_bytes = 4096, .read_credit_bytes = 3 * 4096});
  book.add(read(8 * 4096, 0), a, 0);
  book.add(read(8 * 4096, 1), b, 0);
  book.add(read(8 * 4096, 2), c, 0);
  std::map<const PosixFile*, int> pieces;
  std::vector<Piece> flying;
  while (const std::optional<Piece> piece = book.next_piece()) {
    ++pieces[piece->file];
    flying.push_back(*piece);
  }
  EXPECT_EQ(pieces[a.get()] + pieces[b.get()], 3);
  EXPECT_EQ(pieces[c.get()], 3);
  for (const Piece& piece : flying) {
    if (piece.file == c.get()) (void)book.finish(piece, {});
  }
  int more = 0;
  while (const std::optional<Piece> piece = book.next_piece()) {
    EXPECT_EQ(piece->file, c.get());
    ++more;
  }
  EXPECT_EQ(more, 3);
}

TEST_F(DrivesTest, TheirOldestRequestAndBusyTimeAreKnown) {
  const PosixFilePtr a = make("a", 11), b = make("b", 22);
  RequestBook book({.piece_bytes = 4096});
  const std::uint64_t start = steady_now_ns();
  book.add(read(4096, 0), a, start);
  book.add(read(4096, 1), b, start + 500);
  book.add(read(4096, 2), b, start + 700);
  std::vector<Piece> flying;
  while (const std::optional<Piece> piece = book.next_piece()) flying.push_back(*piece);
  DriveStats stats[2];
  ASSERT_EQ(book.drive_stats(stats, start + 1'000'000'000'000), 2U);
  EXPECT_EQ(stats[0].drive, 11U);
  EXPECT_EQ(stats[0].oldest_in_flight_ns, 1'000'000'000'000U);
  EXPECT_EQ(stats[1].drive, 22U);
  EXPECT_EQ(stats[1].oldest_in_flight_ns, 1'000'000'000'000U - 500);
  EXPECT_GT(stats[1].busy_ns, 900'000'000'000U) << "still under way";
  for (const Piece& piece : flying) (void)book.finish(piece, {});
  ASSERT_EQ(book.drive_stats(stats, steady_now_ns()), 2U);
  EXPECT_EQ(stats[1].oldest_in_flight_ns, 0U);
  EXPECT_EQ(stats[1].read_bytes, 2 * 4096U);
  EXPECT_LT(stats[1].busy_ns, 900'000'000'000U);
  DriveStats one[1];
  EXPECT_EQ(book.drive_stats(one, 0), 2U) << "says that there are more than fit";
}

TEST_F(DrivesTest, MoreThanTheBookKnowsShareTheLast) {
  RequestBook book({.piece_bytes = 4096, .read_credit_bytes = 4096});
  std::vector<PosixFilePtr> files;
  for (std::uint64_t i = 0; i < RequestBook::kDrives + 5; ++i) {
    files.push_back(make(std::to_string(i), 100 + i));
    book.add(read(4096, i), files.back(), 0);
  }
  std::vector<Piece> flying;
  while (const std::optional<Piece> piece = book.next_piece()) flying.push_back(*piece);
  EXPECT_EQ(flying.size(), RequestBook::kDrives);
  std::size_t ended = 0;
  while (!flying.empty()) {
    ended += book.finish(flying.back(), {}) ? 1 : 0;
    flying.pop_back();
    while (const std::optional<Piece> piece = book.next_piece()) flying.push_back(*piece);
  }
  EXPECT_EQ(ended, RequestBook::kDrives + 5);
}

TEST_F(DrivesTest, AFileThatRefusesDirectTransfersGetsThemThroughTheCacheOnce) {
  const PosixFilePtr file = make("f", 1);
  if (!file->direct()) {
    GTEST_SKIP() << "this filesystem refuses O_DIRECT at opening; use ext4 or xfs";
  }
  std::uint64_t refused = 0;
  Transfer transfer{IoOp::kWrite, 4096};
  EXPECT_EQ(judge_on(*file, transfer, -EINVAL, refused).move, NextMove::kRetryNow);
  EXPECT_EQ(refused, 1U);
  EXPECT_FALSE(file->direct());
  EXPECT_EQ(::fcntl(file->descriptor(), F_GETFL) & O_DIRECT, 0);
  const Verdict again = judge_on(*file, transfer, -EINVAL, refused);
  EXPECT_EQ(again.move, NextMove::kFail) << "exactly one downgrade";
  EXPECT_EQ(again.sys_errno, EINVAL);
  EXPECT_EQ(refused, 1U);
}

}  // namespace
}  // namespace penstock::testing
