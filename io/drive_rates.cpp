#include "io/drive_rates.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "base/clock.hpp"
#include "io/section.hpp"

namespace penstock {
namespace {

constexpr std::uint64_t kPieceBytes = 1U << 20;
constexpr std::size_t kDepth = 8;  // for each region: more buys latency, not throughput
constexpr std::uint64_t kDeadlineNs = 10'000'000'000;

/// Keeps `kDepth` pieces in flight from the completions themselves until the time is over.
class Stream final : public CompletionSink {
 public:
  /// Starts over after `pieces`.
  Stream(IoOp op, std::span<const DriveRegion> regions, std::span<std::byte> memory,
         std::uint64_t pieces)
      : op_(op), regions_(regions), memory_(memory), pieces_(pieces) {}

  Result<double> run(StorageQueue& queue, double seconds) {
    queue_ = &queue;
    const std::uint64_t start = now_ns();
    end_ns_ = start + static_cast<std::uint64_t>(seconds * 1e9);
    const std::size_t depth =
        std::min<std::uint64_t>(kDepth * regions_.size(), memory_.size() / kPieceBytes);
    for (std::size_t i = 0; i < depth; ++i) PENSTOCK_CHECK_OK(submit(i));
    std::unique_lock lock(mutex_);
    const bool done = changed_.wait_for(lock, std::chrono::nanoseconds(kDeadlineNs),
                                        [&] { return in_flight_ == 0; });
    if (failed_ != Errc::kOk) {
      return make_error(failed_, "measure drive: a transfer failed", sys_errno_);
    }
    if (!done) return make_error(Errc::kTimeout, "measure drive: no answer within ten seconds");
    const auto elapsed = static_cast<double>(last_ns_ - start) * 1e-9;
    return static_cast<double>(moved_) / std::max(elapsed, 1e-9);
  }

  void io_complete(const IoCompletion& completion) noexcept override {
    const std::uint64_t now = now_ns();
    bool more = false;
    {
      const std::lock_guard lock(mutex_);
      --in_flight_;
      last_ns_ = now;
      moved_ += completion.bytes;
      if (completion.code != Errc::kOk) {
        failed_ = completion.code;
        sys_errno_ = completion.sys_errno;
      }
      more = failed_ == Errc::kOk && now < end_ns_;
    }
    if (more && !submit(completion.cookie)) {
      const std::lock_guard lock(mutex_);
      failed_ = Errc::kIo;
    }
    changed_.notify_all();
  }

  /// After run().
  [[nodiscard]] std::uint64_t moved_bytes() {
    const std::lock_guard lock(mutex_);
    return moved_;
  }

 private:
  Status submit(std::uint64_t place) noexcept {
    std::uint64_t piece = 0;
    {
      const std::lock_guard lock(mutex_);
      piece = next_piece_++ % pieces_;
      ++in_flight_;
    }
    const DriveRegion& region = regions_[piece % regions_.size()];
    const std::uint64_t at = piece / regions_.size() % (region.bytes / kPieceBytes);
    const IoRequest request{op_,
                            IoClass::kPrefetch,
                            region.file,
                            region.offset_bytes + at * kPieceBytes,
                            memory_.data() + place * kPieceBytes,
                            kPieceBytes,
                            place};
    Status status = queue_->submit({&request, 1});
    if (!status) {
      const std::lock_guard lock(mutex_);
      --in_flight_;
    }
    return status;
  }

  const IoOp op_;
  const std::span<const DriveRegion> regions_;
  const std::span<std::byte> memory_;
  const std::uint64_t pieces_;
  StorageQueue* queue_ = nullptr;
  std::uint64_t end_ns_ = 0;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::uint64_t next_piece_ = 0, moved_ = 0, last_ns_ = 0;
  std::size_t in_flight_ = 0;
  Errc failed_ = Errc::kOk;
  int sys_errno_ = 0;
};

}  // namespace

Result<DriveRates> measure_drives(Storage& storage, std::span<const DriveRegion> regions,
                                  std::span<std::byte> memory, double seconds,
                                  const QueueOptions& options) {
  const bool small = std::any_of(regions.begin(), regions.end(), [](const DriveRegion& region) {
    return region.bytes < 2 * kPieceBytes;
  });
  if (regions.empty() || small || memory.size() < 2 * kPieceBytes) {
    return make_error(Errc::kArgument,
                      fmt::format("measure drive: needs 2 MiB of each file and of memory, has {} "
                                  "bytes of memory",
                                  memory.size()));
  }
  QueueOptions own = options;
  own.read_share = 0.0;
  own.memory = {memory};
  DriveRates rates;
  // What was never written may be read without the drive: only what the writes reached is read.
  std::uint64_t pieces = ~std::uint64_t{0};
  for (const IoOp op : {IoOp::kWrite, IoOp::kRead}) {
    Stream stream(op, regions, memory, pieces);
    PENSTOCK_TRY(queue, storage.make_queue(stream, own), "measure drive");
    PENSTOCK_TRY(rate, stream.run(*queue, seconds), "measure drive");
    if (op == IoOp::kWrite) {
      rates.written_bytes = stream.moved_bytes();
      pieces = std::max<std::uint64_t>(1, rates.written_bytes / kPieceBytes);
    }
    (op == IoOp::kWrite ? rates.write_bytes_per_second : rates.read_bytes_per_second) = rate;
  }
  return rates;
}

}  // namespace penstock
