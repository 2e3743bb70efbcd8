#include "measure/pipeline.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <system_error>

#include <fmt/format.h>

#include "base/clock.hpp"

namespace penstock {
namespace {

constexpr std::uint64_t kLeastChunks = 4;  // a slow drive gets the time for them
constexpr auto kStopInterval = std::chrono::milliseconds(20);

void update(Isa isa, std::byte* frame) {
  const UpdateRule rule{.weight_decay = 0.1};
  constexpr std::uint64_t kHalf = 2 * kPipelineElements, kFull = 4 * kPipelineElements;
  const auto halves = [frame](std::uint64_t at) {
    return reinterpret_cast<std::uint16_t*>(frame + at);
  };
  const auto floats = [frame](std::uint64_t at) { return reinterpret_cast<float*>(frame + at); };
  UpdateArrays arrays;
  arrays.n = kPipelineElements;
  arrays.hi = halves(0);
  arrays.lo = halves(kHalf);
  arrays.m = floats(2 * kHalf);
  arrays.v = floats(2 * kHalf + kFull);
  arrays.gradient = halves(kPipelineChunkBytes);
  update_kernel(isa, rule, DType::kBf16, Master::kSplit)(update_scalars(rule, 10, 1.0), arrays);
}

/// Invariant: each frame is in one state: reading, updating, writing, or done; busy_ counts those
/// that are not done.
class Pipeline final : public CompletionSink {
 public:
  Pipeline(const PipelineParts& parts, const LoadOptions& options)
      : parts_(parts),
        options_(options),
        frames_(parts.memory.size() / kPipelineFrameBytes),
        chunks_(parts.file_bytes / kPipelineChunkBytes),
        next_(parts.files.size(), parts.first_chunk) {
    for (std::size_t i = 0; i < frames_.size(); ++i) frames_[i].owner = this;
  }

  Status run(StorageQueue& queue, const std::atomic<bool>& stop) {
    queue_ = &queue;
    start_ns_ = now_ns();
    end_ns_ = start_ns_ + static_cast<std::uint64_t>(options_.seconds * 1e9);
    stop_ns_ = end_ns_ + options_.answer_ns;
    ramp_ns_ = start_ns_ + static_cast<std::uint64_t>(options_.seconds * options_.ramp_share * 1e9);
    busy_ = frames_.size();
    for (std::size_t frame = 0; frame < frames_.size(); ++frame) read_next(frame);
    return wait(stop);
  }

  void io_complete(const IoCompletion& completion) noexcept override {
    const auto frame = static_cast<std::size_t>(completion.cookie);
    const std::uint64_t now = now_ns();
    bool was_write = false;
    {
      const std::lock_guard lock(mutex_);
      was_write = frames_[frame].is_writing;
      if (completion.code != Errc::kOk) {
        fail(make_error(completion.code,
                        fmt::format("a transfer failed: {}; check the drive and the kernel log",
                                    completion.sys_errno == 0
                                        ? "the file ended early"
                                        : std::generic_category().message(completion.sys_errno)),
                        completion.sys_errno));
        end_frame();
        return;
      }
      if (was_write) count(now);
    }
    if (was_write) {
      read_next(frame);
    } else {
      parts_.executor.submit({[](void* context, std::uint64_t index) {
                                static_cast<Pipeline*>(context)->update_frame(index);
                              },
                              this, frame});
    }
  }

  [[nodiscard]] PipelineResult result() const {
    PipelineResult result;
    result.next_chunk = next_.front() % chunks_;
    result.seconds = static_cast<double>(stop_ns_ - ramp_ns_) * 1e-9;
    result.dropped_seconds = static_cast<double>(ramp_ns_ - start_ns_) * 1e-9;
    result.chunks = counted_;
    return result;
  }

 private:
  struct FrameState {
    Pipeline* owner = nullptr;
    std::uint64_t offset_bytes = 0;
    bool is_writing = false;
  };

  [[nodiscard]] std::byte* memory(std::size_t frame) const {
    return parts_.memory.data() + frame * kPipelineFrameBytes;
  }

  void read_next(std::size_t frame) noexcept {
    {
      const std::lock_guard lock(mutex_);
      const std::uint64_t now = now_ns();
      const bool wanted = now < end_ns_ || (counted_ < kLeastChunks && now < stop_ns_);
      if (failed_ || stopped_ || !wanted) {
        stop_ns_ = std::min(stop_ns_, now);
        stopped_ = true;
        end_frame();
        return;
      }
      FrameState& state = frames_[frame];
      state.is_writing = false;
      state.offset_bytes = next_[frame % next_.size()]++ % chunks_ * kPipelineChunkBytes;
    }
    submit(frame, IoOp::kRead, IoClass::kPrefetch);
  }

  void update_frame(std::size_t frame) noexcept {
    update(parts_.isa, memory(frame));
    {
      const std::lock_guard lock(mutex_);
      frames_[frame].is_writing = true;
    }
    submit(frame, IoOp::kWrite, IoClass::kWriteBack);
  }

  void submit(std::size_t frame, IoOp op, IoClass io_class) noexcept {
    IoRequest request;
    {
      const std::lock_guard lock(mutex_);
      request = {op,
                 io_class,
                 parts_.files[frame % parts_.files.size()],
                 frames_[frame].offset_bytes,
                 memory(frame),
                 kPipelineChunkBytes,
                 frame};
    }
    const Status status = queue_->submit({&request, 1});
    if (status) return;
    const std::lock_guard lock(mutex_);
    fail(status.error());
    end_frame();
  }

  // These three: mutex_ is held.
  void fail(const Error& error) noexcept {
    if (!failed_) failed_ = error;
  }
  void end_frame() noexcept {
    if (--busy_ == 0) changed_.notify_all();
  }
  void count(std::uint64_t now) noexcept {
    if (now >= ramp_ns_ && !stopped_) ++counted_;
  }

  Status wait(const std::atomic<bool>& stop) {
    const std::uint64_t until_ns = end_ns_ + options_.answer_ns;
    bool cancelled = false;
    std::unique_lock lock(mutex_);
    while (busy_ != 0) {
      changed_.wait_for(lock, kStopInterval);
      if (stop.load()) cancelled = stopped_ = true;
      if (busy_ != 0 && now_ns() > until_ns) {
        return make_error(Errc::kTimeout,
                          fmt::format("{} chunks are still under way {} s after the end; check the "
                                      "drive and the kernel log",
                                      busy_, options_.answer_ns / 1'000'000'000));
      }
    }
    if (failed_) return *failed_;
    if (cancelled) return make_error(Errc::kCancelled, "stopped");
    return ok();
  }

  const PipelineParts& parts_;
  const LoadOptions& options_;
  StorageQueue* queue_ = nullptr;
  std::uint64_t start_ns_ = 0, ramp_ns_ = 0, end_ns_ = 0;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::vector<FrameState> frames_;
  const std::uint64_t chunks_;
  std::vector<std::uint64_t> next_;  // of each file
  std::size_t busy_ = 0;
  std::uint64_t stop_ns_ = 0;  // of reading, at the latest; once stopped_, when it was
  std::uint64_t counted_ = 0;  // chunks written in the window
  bool stopped_ = false;
  std::optional<Error> failed_;
};

}  // namespace

Result<PipelineResult> run_pipeline(const PipelineParts& parts, const QueueOptions& queue_options,
                                    const LoadOptions& options, const std::atomic<bool>& stop) {
  Pipeline pipeline(parts, options);
  PENSTOCK_TAKE(queue, parts.storage.make_queue(pipeline, queue_options));
  const Status status = pipeline.run(*queue, stop);
  queue.reset();  // before the pipeline that it calls
  if (!status) return status.error();
  const PipelineResult result = pipeline.result();
  if (result.chunks == 0) {
    return make_error(Errc::kTimeout,
                      fmt::format("no chunk went through within {:.2f} s; grant more with "
                                  "--time",
                                  options.seconds));
  }
  return result;
}

Result<PipelineResult> run_updates(const PipelineParts& parts, double seconds,
                                   const std::atomic<bool>& stop) {
  const std::size_t frames = parts.memory.size() / kPipelineFrameBytes;
  const std::uint64_t start = now_ns();
  PipelineResult result;
  do {
    parts.executor.parallel_for(frames, [&](std::size_t frame) {
      update(parts.isa, parts.memory.data() + frame * kPipelineFrameBytes);
    });
    result.chunks += frames;
    result.seconds = static_cast<double>(now_ns() - start) * 1e-9;
    if (stop.load()) return make_error(Errc::kCancelled, "stopped");
  } while (result.seconds < seconds);
  return result;
}

}  // namespace penstock
