// Method: a real file in a directory of the test's own; storages that fail stand before it.

#include "measure/drive_probe.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/units.hpp"
#include "io/forwarding_storage.hpp"
#include "io/page_buffer.hpp"
#include "measure/check_speed.hpp"
#include "temporary_directory.hpp"

namespace penstock {
namespace {

constexpr std::uint64_t kFileBytes = 24 * kMiB;

class DriveProbeTest : public ::testing::Test {
 protected:
  Result<ProbeResult> probe(Storage& storage, const std::atomic<bool>* stop = nullptr) {
    ProbeLimits limits{.most_bytes = kFileBytes};
    limits.seconds = 60;  // so that a busy machine measures all of the file, too
    limits.stop = stop;
    return probe_drive(storage, directory_.path(), memory_.span(), limits);
  }
  testing::TemporaryDirectory directory_;
  PageBuffer memory_{kProbeDepth * kProbePieceBytes};
  std::unique_ptr<Storage> storage_ = make_posix_storage();
};

TEST_F(DriveProbeTest, MeasuresAndLeavesNothing) {
  const auto result = probe(*storage_);
  ASSERT_TRUE(result) << result.error().message;
  for (const PassRates& pass :
       {result.value().first_write, result.value().write, result.value().read}) {
    EXPECT_EQ(pass.bytes, kFileBytes);
    EXPECT_GT(pass.bytes_per_second, 0.0);
    EXPECT_GT(pass.p99_seconds, 0.0);
  }
  EXPECT_EQ(result.value().written_bytes, 2 * kFileBytes);
  EXPECT_FALSE(result.value().queue.empty());
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
}

/// Counts what reaches the queue, and lets the n-th request of an operation fail.
class FailingStorage final : public ForwardingStorage, public CompletionSink {
 public:
  FailingStorage(Storage& under, IoOp op, std::int64_t good) : ForwardingStorage(under), op_(op) {
    left_ = good;
  }
  Result<std::unique_ptr<StorageQueue>> make_queue(CompletionSink& sink,
                                                   const QueueOptions& options) override {
    sink_ = &sink;
    auto queue = under_.make_queue(*this, options);
    if (!queue) return std::move(queue).error();
    return std::unique_ptr<StorageQueue>(std::make_unique<Queue>(*this, std::move(queue).value()));
  }
  void io_complete(const IoCompletion& completion) noexcept override {
    IoCompletion changed = completion;
    if (fails_[completion.cookie]) {
      changed.code = Errc::kIo;
      changed.sys_errno = EIO;
    }
    sink_->io_complete(changed);
  }

 private:
  class Queue final : public ForwardingQueue {
   public:
    Queue(FailingStorage& owner, std::unique_ptr<StorageQueue> under)
        : ForwardingQueue(std::move(under)), owner_(owner) {}
    Status submit(std::span<const IoRequest> requests) noexcept override {
      for (const IoRequest& request : requests) {
        const bool counts = request.op == owner_.op_;
        owner_.fails_[request.cookie] = counts && owner_.left_.fetch_sub(1) <= 0;
      }
      return under_->submit(requests);
    }

   private:
    FailingStorage& owner_;
  };
  const IoOp op_;
  CompletionSink* sink_ = nullptr;
  std::atomic<std::int64_t> left_{0};
  std::array<std::atomic<bool>, kProbeDepth> fails_{};  // by the request's place
};

TEST_F(DriveProbeTest, ATransferThatFailsEndsIt) {
  for (const IoOp op : {IoOp::kWrite, IoOp::kRead}) {
    for (const std::int64_t good : {0, 5, 23}) {
      FailingStorage failing(*storage_, op, good);
      const auto result = probe(failing);
      ASSERT_FALSE(result) << good;
      EXPECT_EQ(result.error().code, Errc::kIo);
      EXPECT_EQ(result.error().sys_errno, EIO);
      const Check check = check_speed("/mnt/a", result);
      EXPECT_EQ(check.status, CheckStatus::kFail);
      EXPECT_NE(check.why.find(op == IoOp::kWrite ? "a write of 1 MiB failed: Input/output error"
                                                  : "a read of 1 MiB failed: Input/output error"),
                std::string::npos)
          << check.why;
    }
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
}

TEST_F(DriveProbeTest, StopsWhenAsked) {
  const std::atomic<bool> stop{true};
  const auto result = probe(*storage_, &stop);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Errc::kCancelled);
}

TEST_F(DriveProbeTest, RefusesTooLittleRoom) {
  ProbeLimits limits{.most_bytes = kMiB};
  EXPECT_EQ(probe_drive(*storage_, directory_.path(), memory_.span(), limits).error().code,
            Errc::kArgument);
  limits.most_bytes = kFileBytes;
  EXPECT_EQ(
      probe_drive(*storage_, directory_.path(), memory_.span().first(kMiB), limits).error().code,
      Errc::kArgument);
}

TEST(ProbeBytes, AreLittleOfWhatIsFree) {
  constexpr std::uint64_t kAny = ~std::uint64_t{0};
  EXPECT_EQ(probe_bytes(kTiB, kAny), kGiB);
  EXPECT_EQ(probe_bytes(10 * kGiB, kAny), 512 * kMiB);
  EXPECT_EQ(probe_bytes(kTiB, 100 * kMiB + 5), 100 * kMiB) << "ulimit -f";
  EXPECT_EQ(probe_bytes(300 * kMiB, kAny), 0U) << "5 % would be too little to measure";
  EXPECT_EQ(probe_bytes(0, kAny), 0U);
}

TEST(SpeedCheck, EveryEnd) {
  ProbeResult result;
  result.read = {kGiB, 3e9, 0.002};
  result.write = {kGiB, 6e9, 0.004};
  result.first_write = {kGiB, 2e9, 0.01};
  result.queue = "io_uring";
  Check check = check_speed("/mnt/a", result);
  EXPECT_EQ(check.status, CheckStatus::kOk);
  EXPECT_EQ(check.why,
            "3 GB/s read (p99 2 ms), 6 GB/s overwritten (p99 4 ms), 2 GB/s written at first; short "
            "probe of 1 GiB, io_uring");
  EXPECT_NE(check.cost.find("in 6 s"), std::string::npos) << "12 GB at 3 and at 6 GB/s";
  result.write.bytes_per_second = 100e6;
  check = check_speed("/mnt/a", result);
  EXPECT_EQ(check.status, CheckStatus::kWarn);
  EXPECT_NE(check.fix.find("NVMe"), std::string::npos);
  EXPECT_EQ(skip_speed("/mnt/a", "why").status, CheckStatus::kSkip);
}

}  // namespace
}  // namespace penstock
