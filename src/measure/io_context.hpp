#pragma once

/// What the measurements of drives share: files written once, memory of huge pages, a log.
///
/// Ownership: the context owns files, memory and log; cases refer to it, and one runs at a time.
/// Threads:   one.
/// Errors:    kArgument, kNoSpace, kNoMemory before anything is written; those of the drive.

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/executor.hpp"
#include "base/result.hpp"
#include "io/storage.hpp"
#include "kernels/cpu/isa.hpp"
#include "measure/bench_target.hpp"
#include "measure/io_load.hpp"
#include "measure/queue_knobs.hpp"
#include "measure/rounds.hpp"
#include "mem/arena.hpp"

namespace penstock {

struct IoContextOptions {
  std::vector<std::string> paths;  ///< one for each drive
  std::uint64_t block_bytes = std::uint64_t{1} << 20;
  std::uint32_t depth = 8;  ///< requests in flight for each drive
  QueueBackend backend = QueueBackend::kAuto;
  std::uint64_t size_bytes = 0;  ///< of the file in each path; 0: the default
  std::uint32_t threads = 1;     ///< that compute
  Isa isa = Isa::kScalar;
  std::uint64_t seed = 1;
  bool with_fio = false;
  const char* time_flag = "--time";  ///< of the command, for what is said
};

class IoContext {
 public:
  /// Makes the files and writes them once, until `write_until_ns` at the latest: what is not
  /// written by then is not used. `memory_bytes`: what the cases need.
  static Result<std::unique_ptr<IoContext>> open(Storage& storage, IoContextOptions options,
                                                 std::uint64_t memory_bytes,
                                                 std::uint64_t write_until_ns,
                                                 BenchObserver& observer,
                                                 const std::atomic<bool>& stop);
  IoContext(const IoContext&) = delete;  // cases point here
  IoContext& operator=(const IoContext&) = delete;
  ~IoContext();

  [[nodiscard]] const IoContextOptions& options() const { return options_; }
  [[nodiscard]] Storage& storage() { return storage_; }
  [[nodiscard]] Executor& executor() { return *executor_; }
  [[nodiscard]] const std::atomic<bool>& stop() const { return stop_; }
  [[nodiscard]] std::uint32_t drives() const { return static_cast<std::uint32_t>(files_.size()); }
  [[nodiscard]] const std::vector<BenchFile>& files() const { return files_; }
  [[nodiscard]] std::uint64_t file_bytes() const { return file_bytes_; }  ///< of each, written
  /// Cases run one at a time, so each may use all of it. Noise at first.
  [[nodiscard]] std::span<std::byte> memory() const { return {arena_->data(), arena_->bytes()}; }

  /// A region for the next run: begins where the last one stopped, so that no part of the file is
  /// hot. A multiple of `unit_bytes`.
  [[nodiscard]] std::uint64_t next_offset(std::uint64_t unit_bytes) const {
    return next_offset_ % file_bytes_ / unit_bytes * unit_bytes;
  }
  void advance_to(std::uint64_t offset_bytes) { next_offset_ = offset_bytes; }

  /// A lane over all files from next_offset(), with memory from `memory_offset` on.
  [[nodiscard]] Lane lane(LaneOps ops, LaneOrder order, std::uint64_t block_bytes,
                          std::uint32_t depth, std::uint64_t memory_offset = 0) const;
  /// For all drives, with the memory of this context.
  [[nodiscard]] QueueOptions queue_options_of(const QueueKnobs& knobs) const {
    return queue_options(knobs, static_cast<std::uint32_t>(options_.paths.size()), memory());
  }
  /// Runs lanes; the first one says where the next run begins.
  Result<RoundFigures> run(std::span<const Lane> lanes, const QueueKnobs& knobs, double seconds);

  /// Targets, memory, queue, and what the user should know of them.
  void report(BenchReport& into) const;

 private:
  IoContext(Storage& storage, IoContextOptions options, const std::atomic<bool>& stop)
      : storage_(storage), options_(std::move(options)), stop_(stop) {}
  Status make_memory(std::uint64_t bytes);
  Status make_files();
  Status write_files(std::uint64_t until_ns, BenchObserver& observer);
  Status ask_queue();

  Storage& storage_;
  const IoContextOptions options_;
  const std::atomic<bool>& stop_;
  std::vector<BenchFile> files_;
  std::uint64_t file_bytes_ = 0, next_offset_ = 0;
  double first_write_bytes_per_second_ = 0.0;
  std::unique_ptr<ByteBudget> budget_;
  std::unique_ptr<Arena> arena_;
  std::vector<LoadSample> log_;
  std::unique_ptr<Executor> executor_;
  std::string queue_, queue_reason_, cut_note_;
};

/// Bytes of memory this machine, and the limits of this process, can still give.
[[nodiscard]] std::uint64_t free_memory_bytes();

}  // namespace penstock
