#include "measure/drive_probe.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include <fmt/format.h>

#include "base/clock.hpp"
#include "base/random.hpp"
#include "base/units.hpp"

namespace penstock {
namespace {

constexpr std::uint64_t kAnswerLimitNs = 10'000'000'000;  // of the last pieces of a pass

/// Pieces of a file, one after the other, kProbeDepth at a time, from the completions themselves.
/// Ends after one round of the file or when the time is over.
class Pass final : public CompletionSink {
 public:
  Pass(FileId file, std::span<std::byte> memory, const ProbeLimits& limits)
      : file_(file), memory_(memory), limits_(limits) {
    latencies_ns_.reserve(limits.most_bytes / kProbePieceBytes + 1);
  }

  Result<PassRates> run(StorageQueue& queue, IoOp op, std::uint64_t pieces) {
    {
      const std::lock_guard lock(mutex_);
      queue_ = &queue;
      op_ = op;
      pieces_ = pieces;
      next_ = moved_ = 0;
      latencies_ns_.clear();
      start_ns_ = last_ns_ = now_ns();
      end_ns_ = start_ns_ + static_cast<std::uint64_t>(limits_.seconds * 1e9);
    }
    const std::size_t depth = std::min<std::uint64_t>(kProbeDepth, pieces);
    for (std::size_t place = 0; place < depth; ++place) submit(place);
    std::unique_lock lock(mutex_);
    const bool ended =
        changed_.wait_for(lock,
                          std::chrono::nanoseconds(
                              static_cast<std::uint64_t>(limits_.seconds * 1e9) + kAnswerLimitNs),
                          [this] { return in_flight_ == 0; });
    if (!ended) {
      return make_error(Errc::kTimeout,
                        fmt::format("a transfer of 1 MiB has had no answer for {} s",
                                    kAnswerLimitNs / 1'000'000'000));
    }
    if (!status_) return status_.error();
    if (limits_.stop != nullptr && *limits_.stop) {
      return make_error(Errc::kCancelled, "stopped");
    }
    return rates();
  }

  void io_complete(const IoCompletion& completion) noexcept override {
    const std::uint64_t now = now_ns();
    bool more = false;
    {
      const std::lock_guard lock(mutex_);
      last_ns_ = now;
      if (completion.code != Errc::kOk) {
        if (status_) {
          status_ =
              make_error(completion.code,
                         fmt::format("a {} of 1 MiB failed", op_ == IoOp::kRead ? "read" : "write"),
                         completion.sys_errno);
        }
      } else {
        moved_ += completion.bytes;
        latencies_ns_.push_back(now - submitted_ns_[completion.cookie]);
      }
      const bool stopped = limits_.stop != nullptr && *limits_.stop;
      more = status_.ok() && now < end_ns_ && next_ < pieces_ && !stopped;
    }
    if (more) submit(completion.cookie);
    const std::lock_guard lock(mutex_);
    --in_flight_;
    if (in_flight_ == 0) changed_.notify_all();
  }

 private:
  void submit(std::uint64_t place) noexcept {
    IoRequest request{op_,
                      IoClass::kDemand,
                      file_,
                      0,
                      memory_.data() + place * kProbePieceBytes,
                      kProbePieceBytes,
                      place};
    {
      const std::lock_guard lock(mutex_);
      if (next_ == pieces_) return;
      request.offset_bytes = next_++ * kProbePieceBytes;
      submitted_ns_[place] = now_ns();
      ++in_flight_;
    }
    Status status = queue_->submit({&request, 1});
    if (status) return;
    const std::lock_guard lock(mutex_);
    --in_flight_;
    if (status_) status_ = std::move(status);
  }

  PassRates rates() {
    PassRates result;
    result.bytes = moved_;
    if (latencies_ns_.empty()) return result;
    result.bytes_per_second =
        static_cast<double>(moved_) / (static_cast<double>(last_ns_ - start_ns_) * 1e-9);
    const auto rank = latencies_ns_.begin() +
                      static_cast<std::ptrdiff_t>((latencies_ns_.size() * 99 + 99) / 100 - 1);
    std::nth_element(latencies_ns_.begin(), rank, latencies_ns_.end());
    result.p99_seconds = static_cast<double>(*rank) * 1e-9;
    return result;
  }

  const FileId file_;
  const std::span<std::byte> memory_;
  const ProbeLimits limits_;
  StorageQueue* queue_ = nullptr;
  IoOp op_ = IoOp::kRead;
  std::mutex mutex_;  // guards all below, and in run() all above
  std::condition_variable changed_;
  std::array<std::uint64_t, kProbeDepth> submitted_ns_{};
  std::vector<std::uint64_t> latencies_ns_;  // room for all of a pass: a callback must not allocate
  std::uint64_t pieces_ = 0, next_ = 0, moved_ = 0;
  std::uint64_t start_ns_ = 0, end_ns_ = 0, last_ns_ = 0;
  std::size_t in_flight_ = 0;
  Status status_ = ok();
};

/// Drives that compress, or find equal blocks, must not look faster than they are.
void fill_with_noise(std::span<std::byte> memory) {
  for (std::size_t at = 0; at + sizeof(std::uint64_t) <= memory.size();
       at += sizeof(std::uint64_t)) {
    const std::uint64_t word = mix64(1, 0, at);
    std::memcpy(memory.data() + at, &word, sizeof(word));
  }
}

Result<ProbeResult> run_passes(Storage& storage, FileId file, std::span<std::byte> memory,
                               const ProbeLimits& limits) {
  ProbeResult result;
  result.is_direct = storage.is_direct(file);
  Pass pass(file, memory, limits);
  // Declared after the sink, so it ends before it.
  QueueOptions options;
  options.memory = {memory};
  PENSTOCK_TAKE(queue, storage.make_queue(pass, options));
  result.queue = queue->backend();
  PENSTOCK_TAKE(first, pass.run(*queue, IoOp::kWrite, limits.most_bytes / kProbePieceBytes));
  result.first_write = first;
  const std::uint64_t filled = first.bytes / kProbePieceBytes;
  PENSTOCK_TAKE(write, pass.run(*queue, IoOp::kWrite, filled));
  result.write = write;
  result.written_bytes = first.bytes + write.bytes;
  PENSTOCK_TAKE(read, pass.run(*queue, IoOp::kRead, filled));
  result.read = read;
  return result;
}

}  // namespace

Result<ProbeResult> probe_drive(Storage& storage, const std::string& directory,
                                std::span<std::byte> memory, const ProbeLimits& limits) {
  if (memory.size() < kProbeDepth * kProbePieceBytes ||
      limits.most_bytes < kProbeDepth * kProbePieceBytes) {
    return make_error(
        Errc::kArgument,
        fmt::format("probe {}: {} of memory and {} of file are less than {} MiB", directory,
                    format_bytes(memory.size()), format_bytes(limits.most_bytes), kProbeDepth));
  }
  fill_with_noise(memory.first(kProbeDepth * kProbePieceBytes));
  PENSTOCK_TAKE(file, storage.open(directory, {.temporary = true}));
  const std::uint64_t bytes = limits.most_bytes / kProbePieceBytes * kProbePieceBytes;
  Status reserved = storage.preallocate(file, bytes);
  Result<ProbeResult> result = reserved ? run_passes(storage, file, memory, limits)
                                        : Result<ProbeResult>(std::move(reserved).error());
  const Status closed = storage.close(file);
  if (result && !closed) return closed.error();
  return result;
}

}  // namespace penstock
