#include "measure/io_context.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "base/clock.hpp"
#include "base/units.hpp"
#include "measure/check_memory.hpp"

namespace penstock {
namespace {

constexpr std::size_t kLogEntries = std::size_t{1} << 20;
constexpr std::uint64_t kFillBlockBytes = kMiB;
constexpr std::uint32_t kFillDepth = 8;

/// For asking a queue what it is.
class NoSink final : public CompletionSink {
 public:
  void io_complete(const IoCompletion&) noexcept override {}
};

double seconds_until(std::uint64_t time_ns) {
  const std::uint64_t now = now_ns();
  return now < time_ns ? static_cast<double>(time_ns - now) * 1e-9 : 0.0;
}

}  // namespace

std::uint64_t free_memory_bytes() {
  const MemoryFacts facts = read_memory_facts({});
  std::uint64_t free = facts.available_bytes.value_or(std::numeric_limits<std::uint64_t>::max());
  if (facts.group) free = std::min(free, facts.group->left_bytes());
  return free;
}

Result<std::unique_ptr<IoContext>> IoContext::open(Storage& storage, IoContextOptions options,
                                                   std::uint64_t memory_bytes,
                                                   std::uint64_t write_until_ns,
                                                   BenchObserver& observer,
                                                   const std::atomic<bool>& stop) {
  for (const std::string& path : options.paths) PENSTOCK_CHECK_OK(check_bench_path(path));
  std::unique_ptr<IoContext> context(new IoContext(storage, std::move(options), stop));
  const std::uint64_t filling = context->options_.paths.size() * kFillDepth * kFillBlockBytes;
  PENSTOCK_CHECK_OK(context->make_memory(std::max(memory_bytes, filling)));
  PENSTOCK_CHECK_OK(context->ask_queue());
  PENSTOCK_CHECK_OK(context->make_files());
  PENSTOCK_CHECK_OK(context->write_files(write_until_ns, observer));
  context->executor_ = make_tbb_executor(static_cast<int>(context->options_.threads));
  return context;
}

IoContext::~IoContext() {
  for (BenchFile& file : files_) close_bench_file(storage_, file);
}

Status IoContext::make_memory(std::uint64_t bytes) {
  const std::uint64_t free = free_memory_bytes();
  const std::uint64_t log_bytes = kLogEntries * sizeof(LoadSample);
  // Twice: the rest of the program, and what else runs on the machine.
  if (2 * (bytes + log_bytes) > free) {
    return make_error(Errc::kNoMemory,
                      fmt::format("memory for the buffers is short: they take {} and {} are free, "
                                  "of which half is used at most; take a smaller --depth or "
                                  "--block, or free some",
                                  format_bytes(bytes + log_bytes), format_bytes(free)));
  }
  budget_ = std::make_unique<ByteBudget>("host", bytes + kHugePageBytes);
  PENSTOCK_TAKE(arena, Arena::create(*budget_, "bench", bytes));
  arena_ = std::make_unique<Arena>(std::move(arena));
  fill_with_noise(memory(), options_.seed);
  log_.reserve(kLogEntries);
  return ok();
}

Status IoContext::ask_queue() {
  NoSink sink;
  QueueKnobs knobs;
  knobs.backend = options_.backend;
  PENSTOCK_TAKE(queue, storage_.make_queue(sink, queue_options_of(knobs)));
  queue_ = queue->backend();
  queue_reason_ = queue->backend_reason();
  return ok();
}

Status IoContext::make_files() {
  PENSTOCK_TAKE(bytes, bench_file_bytes(storage_, options_.paths, options_.size_bytes));
  file_bytes_ = bytes;
  for (const std::string& path : options_.paths) {
    PENSTOCK_TAKE(file, make_bench_file(storage_, path, bytes, options_.with_fio));
    files_.push_back(std::move(file));
  }
  return ok();
}

Status IoContext::write_files(std::uint64_t until_ns, BenchObserver& observer) {
  observer.on_progress(fmt::format("writing {} once, so that no later write is a first one",
                                   format_bytes(file_bytes_ * files_.size())));
  Lane filling = lane(LaneOps::kWrite, LaneOrder::kSequential, kFillBlockBytes, kFillDepth);
  filling.turns = file_bytes_ / kFillBlockBytes;
  LoadOptions load;
  load.seconds = std::max(seconds_until(until_ns), 0.1);
  load.ramp_share = 0.0;
  load.least_requests = 2 * files_.size() * kLeastBenchBytes / kFillBlockBytes;
  const QueueKnobs knobs = knobs_for(options_.backend, kFillBlockBytes, kFillDepth);
  PENSTOCK_TAKE(result,
                run_load(storage_, queue_options_of(knobs), {&filling, 1}, load, log_, stop_));
  first_write_bytes_per_second_ = result.bytes_per_second();
  // Each file is written without gaps as far as its turns came.
  const std::uint64_t written =
      *std::min_element(result.turns_done.begin(), result.turns_done.end()) * kFillBlockBytes;
  if (written < file_bytes_) {
    cut_note_ = fmt::format(
        "only {} of {} were written before the time for it was over, and only they are used; "
        "grant more with {}, or set a smaller --size",
        format_bytes(written), format_bytes(file_bytes_), options_.time_flag);
    file_bytes_ = written / kHugePageBytes * kHugePageBytes;
    for (BenchFile& file : files_) file.target.file_bytes = file_bytes_;
  }
  if (file_bytes_ < kLeastBenchBytes) {
    return make_error(Errc::kArgument,
                      fmt::format("only {} could be written to the file in the time for it; grant "
                                  "more with {}",
                                  format_bytes(written), options_.time_flag));
  }
  return ok();
}

Lane IoContext::lane(LaneOps ops, LaneOrder order, std::uint64_t block_bytes, std::uint32_t depth,
                     std::uint64_t memory_offset) const {
  Lane lane;
  lane.ops = ops;
  lane.order = order;
  for (const BenchFile& file : files_) lane.files.push_back(file.file);
  lane.file_bytes = file_bytes_;
  lane.first_offset = next_offset(block_bytes);
  lane.block_bytes = block_bytes;
  lane.places = depth * drives();
  lane.memory = memory().subspan(memory_offset, lane.places * block_bytes);
  lane.seed = options_.seed + next_offset_;
  return lane;
}

Result<RoundFigures> IoContext::run(std::span<const Lane> lanes, const QueueKnobs& knobs,
                                    double seconds) {
  LoadOptions load;
  load.seconds = seconds;
  PENSTOCK_TAKE(result, run_load(storage_, queue_options_of(knobs), lanes, load, log_, stop_));
  advance_to(result.next_offset.front());
  RoundFigures figures;
  figures.bytes_per_second = result.bytes_per_second();
  figures.read_share = static_cast<double>(result.read_bytes) / static_cast<double>(result.bytes());
  figures.cpu_seconds_per_gb =
      result.cpu_seconds / (static_cast<double>(result.moved_bytes) * 1e-9);
  figures.latency = latency_of(std::move(result.latencies_ns));
  figures.mean_depth = result.mean_depth;
  figures.window_seconds = result.window_seconds;
  figures.dropped_seconds = result.dropped_seconds;
  for (const std::uint64_t bytes : result.file_bytes) {
    figures.drive_bytes_per_second.push_back(static_cast<double>(bytes) / result.window_seconds);
  }
  return figures;
}

void IoContext::report(BenchReport& into) const {
  for (const BenchFile& file : files_) into.targets.push_back(file.target);
  into.queue = queue_;
  into.queue_reason = queue_reason_;
  into.buffer_bytes = arena_->bytes();
  into.huge_buffer_bytes = arena_->huge_bytes();
  into.first_write_bytes_per_second = first_write_bytes_per_second_;
  if (!cut_note_.empty()) into.notes.push_back(cut_note_);
  if (!arena_->note().empty()) into.notes.push_back(arena_->note());
  for (const BenchFile& file : files_) {
    if (file.target.direct) continue;
    into.notes.push_back(fmt::format(
        "\"{}\": the filesystem ({}) does not take direct transfers, so these figures are partly "
        "those of the page cache; use ext4 or xfs",
        file.target.path, file.target.filesystem));
  }
  constexpr std::uint64_t kSmall = kGiB;
  if (file_bytes_ < kSmall) {
    into.notes.push_back(fmt::format(
        "the file has {} only: caches of the drive or its host may hold all of it; compare with "
        "--size 8GiB",
        format_bytes(file_bytes_)));
  }
}

}  // namespace penstock
