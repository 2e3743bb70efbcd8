// What trusting a store costs: its checksums, its extra bytes, its commits, its opening.
//
//   bench_store sums   [STEPS] [ROUNDS]    time of steps with sums / without, states on the drive
//   bench_store bytes                      bytes written / those of states and spilled gradients
//   bench_store commit [BLOCKS ...]        a commit beyond the drive's own flush, in ms
//   bench_store open   [BLOCKS ...]        opening a store, in s for a TB of states
//
// Both sides of a comparison are taken in turn in every round, in one process and on one drive;
// printed are medians. Only ratios mean anything on a shared machine. The stores of `commit` and
// `open` have as many blocks as asked for, but tiny ones, since neither reads or writes a block:
// what they cost grows with the number of blocks, and is given for blocks of 4 Mi elements. Stores
// lie in a directory of their own below the current one, which is removed at the end.

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/random.hpp"
#include "io/page_buffer.hpp"
#include "measure/statistics.hpp"
#include "train/run_setup.hpp"

namespace penstock {
namespace {

constexpr std::uint32_t kBlockElements = 4U << 20;
constexpr std::uint64_t kStateBytes = 12;  // hi, lo, m, v of the fp32 ladder
constexpr std::uint32_t kGroups = 12;

double seconds_since(std::uint64_t start_ns) {
  return static_cast<double>(now_ns() - start_ns) * 1e-9;
}

/// A model of a few blocks that is trained on made-up gradients; all states are on the drive.
class Training {
 public:
  Status open(const std::string& directory, std::uint32_t commit_every, bool sums) {
    PENSTOCK_TRY(parts, make_run_parts({}), "machine");
    parts_ = std::move(parts);
    ModelSpec model;
    for (GroupId g = 0; g < kGroups; ++g) {
      model.groups.push_back(fmt::format("g{}", g));
      TensorSpec tensor;
      tensor.name = fmt::format("t{}", g);
      tensor.shape = {kBlockElements};
      tensor.group = g;
      tensor.init.kind = Init::Kind::kNormal;
      tensor.init.deviation = 0.02F;
      model.tensors.push_back(std::move(tensor));
    }
    EngineOptions options;
    options.directory = directory;
    options.mode = OpenMode::kCreate;
    options.block_elements = kBlockElements;
    options.commit_every = commit_every;
    options.isa = parts_.isa;
    options.faults.skip_sums = !sums;
    PENSTOCK_TRY(least, minimum_host_bytes(options, model), "model");
    options.host_bytes = least;
    PENSTOCK_TRY(engine, make_engine(parts_.engine_parts({}), options, model), "engine");
    engine_ = std::move(engine);
    gradient_.resize(kBlockElements);
    for (std::size_t i = 0; i < gradient_.size(); ++i) {
      gradient_[i] = static_cast<float>(mix64(1, 2, i) % 2048) * 1e-6F - 1e-3F;
    }
    return ok();
  }

  Status step() {
    PENSTOCK_CHECK_OK(engine_->step_begin());
    for (GroupId g = 0; g < kGroups; ++g) {
      if (const auto lease = engine_->acquire(g); !lease) return lease.error();
    }
    for (GroupId g = kGroups; g-- > 0;) {
      const auto lease = engine_->acquire(g);
      if (!lease) return lease.error();
      PENSTOCK_CHECK_OK(engine_->gradient(g, gradient_.data(), WeightType::kF32));
    }
    StepInput input;
    input.hyper.lr = 1e-5;
    PENSTOCK_TRY(report, engine_->step_end(input, {}), "step");
    return report.applied ? ok() : Status(make_error(Errc::kInternal, "a step was not applied"));
  }

  Result<double> steps(int count) {
    const std::uint64_t start = now_ns();
    for (int i = 0; i < count; ++i) PENSTOCK_CHECK_OK(step());
    return seconds_since(start);
  }

  Status flush() { return engine_->flush(); }
  [[nodiscard]] const Plan& plan() const { return engine_->plan(); }
  [[nodiscard]] std::uint64_t written_bytes(const std::string& directory) const {
    return parts_.storage->written_bytes(directory);
  }

 private:
  RunParts parts_;
  std::unique_ptr<Engine> engine_;
  std::vector<float> gradient_;
};

Status compare_sums(const std::string& directory, int steps, int rounds) {
  constexpr std::uint32_t kNoCommit = 1'000'000;
  Training with, without;
  PENSTOCK_CHECK_OK(with.open(directory + "/with", kNoCommit, true));
  PENSTOCK_CHECK_OK(without.open(directory + "/without", kNoCommit, false));
  std::vector<double> a, b, ratios;
  for (int round = 0; round <= rounds; ++round) {
    double seconds[2] = {};
    for (int turn = 0; turn < 2; ++turn) {
      const bool sums = (round + turn) % 2 == 0;
      PENSTOCK_TRY(took, (sums ? with : without).steps(steps), "bench");
      seconds[sums ? 0 : 1] = took;
    }
    if (round == 0) continue;  // the first update of each has nothing to wait for
    a.push_back(seconds[0]);
    b.push_back(seconds[1]);
    ratios.push_back(seconds[0] / seconds[1]);
  }
  std::sort(ratios.begin(), ratios.end());
  const std::size_t n = ratios.size();
  const double bytes = 2.0 * kStateBytes * kGroups * kBlockElements * steps;
  fmt::print(
      "with sums / without = {:.3f} (quartiles {:.3f} to {:.3f})  ({:.2f} s / {:.2f} s for "
      "{} steps, {:.2f} GB/s with, {} rounds)\n",
      ratios[n / 2], ratios[n / 4], ratios[n * 3 / 4], median(a), median(b), steps,
      bytes / median(a) * 1e-9, rounds);
  return ok();
}

Status count_bytes(const std::string& directory) {
  constexpr int kSteps = 4;
  const std::string store = directory + "/bytes";
  Training training;
  PENSTOCK_CHECK_OK(training.open(store, 1, true));
  PENSTOCK_CHECK_OK(training.step());
  PENSTOCK_CHECK_OK(training.flush());
  const std::uint64_t before = training.written_bytes(store);
  PENSTOCK_TRY(took, training.steps(kSteps), "bench");
  PENSTOCK_CHECK_OK(training.flush());
  const auto written = static_cast<double>(training.written_bytes(store) - before);
  const Plan::Traffic& plan = training.plan().traffic;
  const auto states = static_cast<double>(
      kSteps * (plan.hi_write + plan.state_write + plan.spill + plan.ram_homed));
  fmt::print(
      "bytes written / states and gradients = {:.5f}  (blocks of {} elements, a commit every "
      "step, {} steps in {:.1f} s)\n",
      written / states, kBlockElements, kSteps, took);
  return ok();
}

// --- stores of many blocks -------------------------------------------------------------------

/// Four sections of a few bytes in each block.
StoreGeometry many_blocks(std::size_t count) {
  StoreGeometry geometry;
  geometry.sections = {{"hi", "bf16", true, 32768},
                       {"lo", "i16", true, 32768},
                       {"m", "f32", true, 65536},
                       {"v", "f32", true, 65536}};
  geometry.blocks.reserve(count);
  for (std::size_t b = 0; b < count; ++b) geometry.blocks.push_back({b + 1, {64, 64, 128, 128}});
  geometry.description = R"({"model":"bench"})";
  return geometry;
}

/// Names a new version of every block, as if it had been written.
void land_all(SlotTable& table, std::uint64_t version) {
  table.commit_begin();
  for (std::size_t block = 0; block < table.block_count(); ++block) {
    const SlotIndex slot = table.choose_target(block, version);
    for (std::size_t s = 0; s < 4; ++s) {
      table.landed(block, version, slot, s, mix64(block, version, s));
    }
    table.commit_record(block);
  }
}

struct Committed {
  std::vector<double> commits, flushes;  // seconds
};

/// Commits, each followed by a flush of one written page; the first two warm up.
Result<Committed> commit_rounds(Storage& storage, Store& store, int rounds) {
  SlotTable table = store.make_table();
  PageBuffer page(kPageBytes);
  if (page.empty()) return make_error(Errc::kNoMemory, "no page of memory");
  Committed result;
  for (int round = 0; round < rounds + 2; ++round) {
    const auto version = static_cast<std::uint64_t>(round);
    land_all(table, version);
    std::uint64_t start = now_ns();
    PENSTOCK_CHECK_OK(store.commit({version, version, {}}, table.commit_entries()));
    const double commit = seconds_since(start);
    table.commit_finished();
    const DriveExtent place = store.slot(table.entry(0).slot);
    start = now_ns();
    PENSTOCK_CHECK_OK(storage.write_at(place.file, place.offset_bytes, page.span()));
    PENSTOCK_CHECK_OK(storage.sync_data(place.file));
    const double flush = seconds_since(start);
    if (round < 2) continue;
    result.commits.push_back(commit);
    result.flushes.push_back(flush);
  }
  return result;
}

Status commit_and_open(const std::string& directory, std::size_t blocks, bool opens) {
  constexpr int kRounds = 15;
  PENSTOCK_TRY(parts, make_run_parts({}), "machine");
  const std::string place = fmt::format("{}/{}", directory, blocks);
  PENSTOCK_TRY(store, create_store(*parts.storage, place, many_blocks(blocks), {}), "store");
  PENSTOCK_TRY(seen, commit_rounds(*parts.storage, *store, opens ? 0 : kRounds), "commit");
  store.reset();
  const double terabytes = 1e-12 * kStateBytes * kBlockElements * static_cast<double>(blocks);
  if (!opens) {
    const double commit = median(seen.commits), flush = median(seen.flushes);
    fmt::print(
        "{:>7} blocks ({:7.3f} TB of states): commit {:6.1f} ms, flush {:5.1f} ms, beyond "
        "it {:6.1f} ms\n",
        blocks, terabytes, commit * 1e3, flush * 1e3, (commit - flush) * 1e3);
  } else {
    std::vector<double> took;
    for (int round = 0; round < kRounds; ++round) {
      const std::uint64_t start = now_ns();
      PENSTOCK_TRY(opened, open_store(*parts.storage, place, {}, true), "open");
      const SlotTable table = opened->make_table();
      took.push_back(seconds_since(start));
      if (table.block_count() != blocks) return make_error(Errc::kInternal, "blocks are missing");
    }
    fmt::print("{:>7} blocks ({:7.3f} TB of states): opened in {:6.1f} ms, {:.3f} s/TB\n", blocks,
               terabytes, median(took) * 1e3, median(took) / terabytes);
  }
  std::filesystem::remove_all(place);
  return ok();
}

Status run_mode(const std::string& mode, const std::vector<int>& numbers,
                const std::string& directory) {
  const auto number = [&](std::size_t i, int usual) {
    return i < numbers.size() ? std::max(1, numbers[i]) : usual;
  };
  if (mode == "sums") return compare_sums(directory, number(0, 3), number(1, 9));
  if (mode == "bytes") return count_bytes(directory);
  if (mode != "commit" && mode != "open") {
    return make_error(Errc::kArgument, "say sums, bytes, commit or open");
  }
  const std::vector<int> sizes = numbers.empty() ? std::vector{1000, 10'000, 100'000} : numbers;
  for (const int blocks : sizes) {
    PENSTOCK_CHECK_OK(
        commit_and_open(directory, static_cast<std::size_t>(std::max(1, blocks)), mode == "open"));
  }
  return ok();
}

int run(const std::vector<std::string>& words) {
  std::vector<int> numbers;
  for (std::size_t i = 1; i < words.size(); ++i) numbers.push_back(std::atoi(words[i].c_str()));
  const std::string directory = fmt::format("bench-store-{}", now_ns());
  std::filesystem::create_directory(directory);
  const Status status = run_mode(words.empty() ? "" : words[0], numbers, directory);
  std::filesystem::remove_all(directory);
  if (!status) fmt::print(stderr, "bench: {}\n", status.error().message);
  return status ? 0 : 1;
}

}  // namespace
}  // namespace penstock

int main(int count, char** words) {
  return penstock::run({words + 1, words + count});
}
