// How much of its drives' sum a set of unequal drives gives.
//
//   bench_drive_set ROUNDS BLOCK_MIB FRAMES DIRECTORY DIRECTORY [...]
//
// The drives are measured and blocks dealt as for a new store (engine/drive_set.hpp); then, in each
// round, in an order that changes: every drive alone and all together, by those shares and by equal
// ones; reading, writing, and half and half as an update does (a block is read, then written).
// Prints medians, as a share of what the drives gave alone in the same round.
// bench/drive_set.py makes the unequal drives.

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <numeric>
#include <random>

#include "base/clock.hpp"
#include "engine/drive_set.hpp"
#include "engine/system_drives.hpp"
#include "io/page_buffer.hpp"
#include "io/store_layout.hpp"
#include "measure/statistics.hpp"

namespace penstock {
namespace {

constexpr std::uint64_t kFileBytes = 512U << 20;
constexpr double kSeconds = 1.5;
constexpr std::uint64_t kDeadlineNs = 60'000'000'000;

enum class Mode { kRead, kWrite, kUpdate };

/// Blocks in the order of a sweep, through a few frames, for a while.
class Sweep final : public CompletionSink {
 public:
  Sweep(Mode mode, std::vector<FileId> files, const std::vector<std::uint32_t>& shares,
        PageBuffer& memory, std::uint64_t block_bytes)
      : mode_(mode),
        files_(std::move(files)),
        deal_(shares),
        memory_(memory),
        block_bytes_(block_bytes),
        frames_(memory.span().size() / block_bytes) {}

  /// Bytes a second, both directions together.
  double run(Storage& storage) {
    QueueOptions options;
    options.memory = {memory_.span()};
    options.read_share = mode_ == Mode::kUpdate ? 0.5 : 0.0;
    auto queue = storage.make_queue(*this, options);
    if (!queue) return 0.0;
    queue_ = queue.value().get();
    const std::uint64_t start = now_ns();
    end_ns_ = start + static_cast<std::uint64_t>(kSeconds * 1e9);
    for (std::size_t frame = 0; frame < frames_.size(); ++frame) begin(frame);
    std::unique_lock lock(mutex_);
    const bool done = changed_.wait_for(lock, std::chrono::nanoseconds(kDeadlineNs),
                                        [&] { return in_flight_ == 0; });
    if (!done || failed_) return 0.0;
    return static_cast<double>(moved_) / (static_cast<double>(last_ns_ - start) * 1e-9);
  }

  void io_complete(const IoCompletion& completion) noexcept override {
    const std::size_t frame = completion.cookie;
    bool write = false, more = false;
    {
      const std::lock_guard lock(mutex_);
      last_ns_ = now_ns();
      moved_ += completion.bytes;
      failed_ = failed_ || completion.code != Errc::kOk;
      write = mode_ == Mode::kUpdate && !frames_[frame].writing;
      more = !failed_ && last_ns_ < end_ns_;
      --in_flight_;
    }
    if (write) {
      frames_[frame].writing = true;
      submit(frame, IoOp::kWrite);
    } else if (more) {
      begin(frame);
    }
    changed_.notify_all();
  }

 private:
  void begin(std::size_t frame) noexcept {
    {
      const std::lock_guard lock(mutex_);
      frames_[frame].number = next_++;
    }
    frames_[frame].writing = false;
    submit(frame, mode_ == Mode::kWrite ? IoOp::kWrite : IoOp::kRead);
  }
  void submit(std::size_t frame, IoOp op) noexcept {
    const Deal::Place place = deal_.place(frames_[frame].number);
    const IoRequest request{op,
                            op == IoOp::kRead ? IoClass::kPrefetch : IoClass::kWriteBack,
                            files_[place.file],
                            place.index % (kFileBytes / block_bytes_) * block_bytes_,
                            memory_.span().data() + frame * block_bytes_,
                            block_bytes_,
                            frame};
    {
      const std::lock_guard lock(mutex_);
      ++in_flight_;
    }
    if (queue_->submit({&request, 1})) return;
    const std::lock_guard lock(mutex_);
    failed_ = true;
    --in_flight_;
  }

  struct Slot {
    std::uint64_t number = 0;
    bool writing = false;
  };
  const Mode mode_;
  const std::vector<FileId> files_;
  const Deal deal_;
  PageBuffer& memory_;
  StorageQueue* queue_ = nullptr;
  const std::uint64_t block_bytes_;
  std::vector<Slot> frames_;
  std::uint64_t end_ns_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t next_ = 0, moved_ = 0, last_ns_ = 0;
  std::size_t in_flight_ = 0;
  bool failed_ = false;
};

int run(int rounds, std::uint64_t block_bytes, std::uint64_t frames,
        const std::vector<std::string>& directories) {
  const auto storage = make_posix_storage(system_drive_namer());
  const auto offers = measure_offers(*storage, directories, 1.0, {});
  if (!offers) {
    fmt::print(stderr, "{}\n", offers.error().message);
    return 1;
  }
  const DriveShares dealt = deal_shares(offers.value(), directories, 0.5, kFileBytes);
  fmt::print("{}\n", dealt.words);
  PageBuffer memory(frames * block_bytes);
  std::mt19937_64 random(1);
  for (std::uint64_t at = 0; at + 8 <= memory.span().size(); at += 8) {
    const std::uint64_t word = random();
    std::memcpy(memory.span().data() + at, &word, 8);
  }
  std::vector<FileId> files;
  for (const std::string& directory : directories) {
    auto file = storage->open(directory, {.temporary = true});
    if (!file || !storage->preallocate(file.value(), kFileBytes)) return 1;
    for (std::uint64_t at = 0; at < kFileBytes; at += block_bytes) {
      if (!storage->write_at(file.value(), at, memory.first(block_bytes))) return 1;
    }
    files.push_back(file.value());
  }
  const std::vector<std::uint32_t> equal(files.size(), 1);
  const std::pair<Mode, const char*> modes[] = {
      {Mode::kRead, "read"}, {Mode::kWrite, "write"}, {Mode::kUpdate, "read and write"}};
  for (const auto& [mode, name] : modes) {
    std::vector<double> sums, by_shares, by_equal;
    for (int round = 0; round < rounds; ++round) {
      double sum = 0.0, shared = 0.0, even = 0.0;
      std::vector<int> order(files.size() + 2);
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random);
      for (const int what : order) {
        const auto index = static_cast<std::size_t>(what);
        if (index < files.size()) {
          sum += Sweep(mode, {files[index]}, {1}, memory, block_bytes).run(*storage);
        } else if (index == files.size()) {
          shared = Sweep(mode, files, dealt.shares, memory, block_bytes).run(*storage);
        } else {
          even = Sweep(mode, files, equal, memory, block_bytes).run(*storage);
        }
      }
      sums.push_back(sum);
      by_shares.push_back(shared / sum);
      by_equal.push_back(even / sum);
    }
    fmt::print("{:<15} drives alone {:7.0f} MB/s   by shares {:.3f}   equal {:.3f}\n", name,
               median(sums) * 1e-6, median(by_shares), median(by_equal));
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  if (argc < 6) {
    fmt::print(stderr,
               "usage: bench_drive_set ROUNDS BLOCK_MIB FRAMES DIRECTORY DIRECTORY [...]\n");
    return 2;
  }
  return penstock::run(std::atoi(argv[1]), std::strtoull(argv[2], nullptr, 10) << 20,
                       std::strtoull(argv[3], nullptr, 10),
                       std::vector<std::string>(argv + 4, argv + argc));
}
