#include "measure/io_load.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>

#include <fmt/format.h>

#include "base/clock.hpp"
#include "base/random.hpp"

namespace penstock {
namespace {

constexpr auto kStopInterval = std::chrono::milliseconds(20);  // how soon Ctrl-C is noticed
constexpr std::uint64_t kSecondNs = 1'000'000'000;

/// Invariant: in_flight_ places have a request with the queue, or are about to give it one; the log
/// grows by one for each completion.
class Loop final : public CompletionSink {
 public:
  Loop(std::span<const Lane> lanes, std::vector<LoadSample>& log) : lanes_(lanes), log_(log) {
    for (const Lane& lane : lanes) {
      first_place_.push_back(submitted_ns_.size());
      submitted_ns_.resize(submitted_ns_.size() + lane.places);
      is_read_.resize(submitted_ns_.size());
      bytes_.resize(submitted_ns_.size());
      lane_of_.resize(submitted_ns_.size(), static_cast<std::uint16_t>(first_place_.size() - 1));
      // Each file has a position of its own, so that drives of different pace stay sequential.
      next_.emplace_back(lane.files.size(),
                         lane.block_bytes == 0 ? 0 : lane.first_offset / lane.block_bytes);
    }
  }

  Status run(StorageQueue& queue, const LoadOptions& options, const std::atomic<bool>& stop) {
    queue_ = &queue;
    start_ns_ = now_ns();
    const auto length_ns = static_cast<std::uint64_t>(options.seconds * 1e9);
    end_ns_ = start_ns_ + length_ns;
    stop_ns_ = end_ns_ + options.answer_ns;
    ramp_end_ns_ =
        start_ns_ + static_cast<std::uint64_t>(options.ramp_share * static_cast<double>(length_ns));
    least_ = options.least_requests;
    in_flight_ = submitted_ns_.size();
    for (std::size_t place = 0; place < submitted_ns_.size(); ++place) {
      if (auto status = go_on(place); !status) {
        const std::lock_guard lock(mutex_);
        in_flight_ -= submitted_ns_.size() - place - 1;  // those that will not begin
        stopped_ = true;
        break;
      }
    }
    return wait(end_ns_ + options.answer_ns, stop);
  }

  void io_complete(const IoCompletion& completion) noexcept override {
    const std::uint64_t now = now_ns();
    const auto place = static_cast<std::size_t>(completion.cookie);
    bool more = false;
    {
      const std::lock_guard lock(mutex_);
      if (completion.code == Errc::kOk) {
        add_sample(place, now);
      } else if (code_ == Errc::kOk) {
        code_ = completion.code;
        sys_errno_ = completion.sys_errno;
      }
      more = code_ == Errc::kOk && !failed_ && !stopped_ && wants_more(now) &&
             log_.size() < log_.capacity();
      if (!more && !stopped_) {
        stopped_ = true;
        // Where the time was not extended the window ends with it, not with a completion.
        stop_ns_ = now > end_ns_ && counted_ > least_ ? end_ns_ : std::min(stop_ns_, now);
      }
      if (!more) end_place();
    }
    if (more) (void)go_on(place);  // a failure is remembered
  }

  [[nodiscard]] std::uint64_t start_ns() const { return start_ns_; }
  [[nodiscard]] std::uint64_t stop_ns() const { return stop_ns_; }
  /// After run(): where the lane's first file would go on.
  [[nodiscard]] std::uint64_t next_offset(std::size_t lane) const {
    const Lane& of = lanes_[lane];
    const std::uint64_t blocks = of.block_bytes == 0 ? 0 : of.file_bytes / of.block_bytes;
    return blocks == 0 ? 0 : next_[lane].front() % blocks * of.block_bytes;
  }
  /// After run(): requests of the first lane, by file.
  [[nodiscard]] std::vector<std::uint64_t> turns_done() const {
    std::vector<std::uint64_t> turns = next_.front();
    const Lane& of = lanes_.front();
    for (std::uint64_t& turn : turns) turn -= of.first_offset / of.block_bytes;
    return turns;
  }

 private:
  /// Until the time is over, and until there are enough requests to tell a rate.
  [[nodiscard]] bool wants_more(std::uint64_t now) const noexcept {
    return now < end_ns_ || (counted_ < least_ && now < stop_ns_);
  }

  void add_sample(std::size_t place, std::uint64_t now) noexcept {
    if (now >= ramp_end_ns_) ++counted_;
    if (log_.size() == log_.capacity()) return;  // of the last ones only
    const std::uint16_t lane = lane_of_[place];
    log_.push_back({now, now - submitted_ns_[place], bytes_[place], lane,
                    static_cast<std::uint16_t>(file_index(place)), is_read_[place] != 0});
  }

  [[nodiscard]] std::size_t file_index(std::size_t place) const noexcept {
    const std::uint16_t lane = lane_of_[place];
    return (place - first_place_[lane]) % lanes_[lane].files.size();
  }

  IoRequest next_request(std::size_t place) noexcept {  // mutex_ is held
    const std::size_t lane_index = lane_of_[place];
    const Lane& lane = lanes_[lane_index];
    const std::size_t file = file_index(place);
    const std::uint64_t turn = next_[lane_index][file]++;
    IoRequest request;
    request.io_class = lane.io_class;
    request.file = lane.files[file];
    request.cookie = place;
    request.bytes = lane.block_bytes;
    request.memory = lane.memory.data() + (place - first_place_[lane_index]) * lane.block_bytes;
    request.op = lane.ops == LaneOps::kWrite || (lane.ops == LaneOps::kAlternate && turn % 2 == 1)
                     ? IoOp::kWrite
                     : IoOp::kRead;
    const std::uint64_t blocks = lane.file_bytes / lane.block_bytes;
    switch (lane.order) {
      case LaneOrder::kSequential:
        request.offset_bytes = turn % blocks * lane.block_bytes;
        break;
      case LaneOrder::kRandom:
        request.offset_bytes = mix64(lane.seed, file, turn) % blocks * lane.block_bytes;
        break;
      case LaneOrder::kExtents: {
        const Extent& extent = lane.extents[turn % lane.extents.size()];
        request.offset_bytes = extent.offset_bytes;
        request.bytes = extent.bytes;
        break;
      }
    }
    bytes_[place] = static_cast<std::uint32_t>(request.bytes);
    is_read_[place] = request.op == IoOp::kRead ? 1 : 0;
    submitted_ns_[place] = now_ns();
    return request;
  }

  void end_place() noexcept {  // mutex_ is held
    if (--in_flight_ != 0) return;
    stop_ns_ = std::min(stop_ns_, now_ns());  // where all turns were had before the time was over
    changed_.notify_all();
  }

  /// Submits the place's next request, or ends it when its file has had all turns.
  Status go_on(std::size_t place) noexcept {
    IoRequest request;
    {
      const std::lock_guard lock(mutex_);
      const std::size_t lane = lane_of_[place];
      const std::uint64_t turns = lanes_[lane].turns;
      if (turns != 0 && next_[lane][file_index(place)] >= turns) {
        end_place();
        return ok();
      }
      request = next_request(place);
    }
    Status status = queue_->submit({&request, 1});
    if (!status) {
      const std::lock_guard lock(mutex_);
      if (!failed_) failed_ = status.error();
      end_place();
    }
    return status;
  }

  Status wait(std::uint64_t until_ns, const std::atomic<bool>& stop) {
    std::unique_lock lock(mutex_);
    bool cancelled = false;
    while (in_flight_ != 0) {
      changed_.wait_for(lock, kStopInterval);
      if (stop.load() && !cancelled) {
        cancelled = stopped_ = true;
        stop_ns_ = std::min(stop_ns_, now_ns());
      }
      if (in_flight_ != 0 && now_ns() > until_ns) {
        return make_error(Errc::kTimeout,
                          fmt::format("the drive has not answered {} requests for {} s; check the "
                                      "kernel log",
                                      in_flight_, (until_ns - end_ns_) / kSecondNs));
      }
    }
    if (failed_) return *failed_;
    if (code_ != Errc::kOk) {
      return make_error(code_,
                        fmt::format("a transfer failed: {}; check the drive and the kernel log",
                                    sys_errno_ == 0 ? "the file ended early"
                                                    : std::generic_category().message(sys_errno_)),
                        sys_errno_);
    }
    if (cancelled) return make_error(Errc::kCancelled, "stopped");
    return ok();
  }

  const std::span<const Lane> lanes_;
  StorageQueue* queue_ = nullptr;
  std::uint64_t start_ns_ = 0, ramp_end_ns_ = 0, end_ns_ = 0, least_ = 0;
  std::vector<std::size_t> first_place_;  // of each lane
  std::vector<std::uint16_t> lane_of_;    // of each place
  std::mutex mutex_;                      // guards all below, once run() has begun
  std::condition_variable changed_;
  std::vector<LoadSample>& log_;
  std::vector<std::vector<std::uint64_t>> next_;  // turn, of each lane and file
  std::vector<std::uint64_t> submitted_ns_;       // this and the next two: of each place
  std::vector<std::uint32_t> bytes_;
  std::vector<std::uint8_t> is_read_;
  std::uint64_t stop_ns_ = 0;  // of submission, at the latest; once stopped_, when it was
  std::uint64_t counted_ = 0;  // requests done after the ramp
  std::size_t in_flight_ = 0;
  bool stopped_ = false;
  std::optional<Error> failed_;  // of a submission
  Errc code_ = Errc::kOk;        // of a transfer
  int sys_errno_ = 0;
};

Status check_lane(const Lane& lane) {
  const bool fits = !lane.files.empty() && lane.places > 0 && lane.block_bytes > 0 &&
                    lane.file_bytes >= lane.block_bytes &&
                    lane.memory.size() / lane.places >= lane.block_bytes &&
                    (lane.order != LaneOrder::kExtents || !lane.extents.empty());
  if (fits) return ok();
  return make_error(Errc::kArgument, "a lane has no file, no memory or no place");
}

}  // namespace

double process_cpu_seconds() {
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) != 0) return 0.0;
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

LoadResult summarise_load(std::span<const Lane> lanes, std::span<const LoadSample> log,
                          std::uint64_t start_ns, std::uint64_t stop_ns, double ramp_share) {
  LoadResult result;
  std::size_t files = 0;
  for (const Lane& lane : lanes) files = std::max(files, lane.files.size());
  result.file_bytes.resize(files);
  const auto ramp_ns =
      static_cast<std::uint64_t>(ramp_share * static_cast<double>(stop_ns - start_ns));
  const std::uint64_t begin_ns = start_ns + ramp_ns;
  double latency_sum_ns = 0.0;
  for (const LoadSample& sample : log) {
    result.moved_bytes += sample.bytes;
    if (sample.end_ns < begin_ns || sample.end_ns > stop_ns) continue;
    (sample.is_read ? result.read_bytes : result.write_bytes) += sample.bytes;
    result.file_bytes[sample.file] += sample.bytes;
    latency_sum_ns += static_cast<double>(sample.latency_ns);
    if (lanes[sample.lane].is_probe) {
      result.latencies_ns.push_back(static_cast<double>(sample.latency_ns));
    }
  }
  if (stop_ns > begin_ns) {
    result.window_seconds = static_cast<double>(stop_ns - begin_ns) * 1e-9;
    result.dropped_seconds = static_cast<double>(ramp_ns) * 1e-9;
    result.mean_depth = latency_sum_ns / static_cast<double>(stop_ns - begin_ns);
  }
  return result;
}

Result<LoadResult> run_load(Storage& storage, const QueueOptions& queue_options,
                            std::span<const Lane> lanes, const LoadOptions& options,
                            std::vector<LoadSample>& log, const std::atomic<bool>& stop) {
  for (const Lane& lane : lanes) PENSTOCK_CHECK_OK(check_lane(lane));
  log.clear();
  Loop loop(lanes, log);
  PENSTOCK_TAKE(queue, storage.make_queue(loop, queue_options));
  const double cpu_before = process_cpu_seconds();
  const Status status = loop.run(*queue, options, stop);
  const double cpu_after = process_cpu_seconds();
  queue.reset();  // before the loop that it calls
  if (!status) return status.error();
  LoadResult result =
      summarise_load(lanes, log, loop.start_ns(), loop.stop_ns(), options.ramp_share);
  result.cpu_seconds = cpu_after - cpu_before;
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    result.next_offset.push_back(loop.next_offset(lane));
  }
  result.turns_done = loop.turns_done();
  if (result.window_seconds <= 0.0 || result.bytes() == 0) {
    return make_error(Errc::kTimeout,
                      fmt::format("no request was done within {:.2f} s, so there is no rate; "
                                  "grant more time, or take smaller blocks",
                                  options.seconds));
  }
  return result;
}

}  // namespace penstock
