// Whole training runs of both families on text: the losses of every step and the hash of the final
// state are the same for every budget, queue, thread count, kernel, block size and commit interval,
// with and without evaluation, and over stopping and resuming. One plain run is the expectation.

#include "train/run.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "cli/store_hash.hpp"
#include "cli/store_wear.hpp"
#include "io/storage.hpp"
#include "io/store.hpp"
#include "kernels/cpu/isa.hpp"

namespace penstock {
namespace {

constexpr std::uint64_t kSteps = 8;
constexpr std::uint64_t kStateBytesPerParameter = 12;
constexpr std::size_t kTextBytes = 200'000;

/// Quotations where they are installed, otherwise sentences of a small grammar.
std::string make_text() {
  std::string text;
  std::vector<std::filesystem::path> files;
  std::error_code ignored;
  for (const auto& entry :
       std::filesystem::directory_iterator("/usr/share/games/fortunes", ignored)) {
    const auto& path = entry.path();
    if (path.extension().empty() && entry.is_regular_file(ignored)) files.push_back(path);
  }
  std::sort(files.begin(), files.end());
  for (const auto& path : files) {
    std::ostringstream content;
    content << std::ifstream(path, std::ios::binary).rdbuf();
    text += content.str();
    if (text.size() >= kTextBytes) break;
  }
  const char* const words[] = {"the",  "water", "turns", "a",    "wheel", "and",   "under",
                               "hill", "old",   "mill",  "sees", "river", "falls", "slowly"};
  for (std::uint64_t i = 0; text.size() < kTextBytes; ++i) {
    text += words[mix64(7, 1, i) % std::size(words)];
    text += mix64(7, 2, i) % 9 == 0 ? ".\n" : " ";
  }
  text.resize(kTextBytes);
  return text;
}

/// Keeps everything; sets the stop flag when a step ends.
class Recorder final : public TrainObserver {
 public:
  void on_note(std::string_view sentence) override { notes.emplace_back(sentence); }
  void on_start(const RunStart& line) override { start = line; }
  void on_step(const StepLine& line) override {
    losses.push_back(line.loss);
    norms.push_back(line.norm);
    data_indices.push_back(line.data_index);
    if (line.step == stop_after) stop.store(true);
  }
  void on_eval(const EvalLine& line) override { evaluations.push_back(line); }
  void on_copy(const CopyLine& line) override { copies.push_back(line); }
  void on_end(const RunEnd& line) override { end = line; }

  std::uint64_t stop_after = 0;
  std::atomic<bool> stop{false};
  RunStart start;
  RunEnd end;
  std::vector<double> losses, norms;
  std::vector<std::uint64_t> data_indices;
  std::vector<EvalLine> evaluations;
  std::vector<CopyLine> copies;
  std::vector<std::string> notes;
};

std::string hash_of(const std::string& directory) {
  const auto storage = make_posix_storage();
  auto reader = StoreReader::open(*storage, directory);
  if (!reader) return reader.error().message;
  const std::atomic<bool> never{false};
  auto hash = hash_store(*reader.value(), never);
  return hash ? to_hex(hash.value()) : hash.error().message;
}

/// PENSTOCK_ISA for the lifetime of the object.
class ForcedIsa {
 public:
  explicit ForcedIsa(Isa isa) { ::setenv("PENSTOCK_ISA", isa_name(isa).data(), 1); }
  ~ForcedIsa() { ::unsetenv("PENSTOCK_ISA"); }
  ForcedIsa(const ForcedIsa&) = delete;
  ForcedIsa& operator=(const ForcedIsa&) = delete;
};

class RunTest : public ::testing::TestWithParam<const char*> {
 protected:
  struct Outcome {
    std::vector<double> losses, norms;
    std::string hash;
    RunStart start;
    double held_out_loss = 0.0;
  };

  static void SetUpTestSuite() {
    std::string path = (std::filesystem::temp_directory_path() / "penstock-run-XXXXXX").string();
    ASSERT_NE(::mkdtemp(path.data()), nullptr);
    directory_ = path;
    std::ofstream(text_path(), std::ios::binary) << make_text();
  }
  static void TearDownTestSuite() {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  static std::string text_path() { return directory_ + "/text"; }

  /// A store path that no run of this process has used.
  static std::string new_store() {
    static int count = 0;
    return directory_ + "/store" + std::to_string(count++);
  }

  static TrainOptions options() {
    TrainOptions options;
    options.model = GetParam();
    options.data.path = text_path();
    options.resources.store = new_store();
    options.resources.threads = 1;
    options.resources.queue = QueueBackend::kThreads;
    options.steps = kSteps;
    options.batch = 4;
    options.micro = 2;
    options.seq = 16;
    options.warmup = 4;
    options.seed = 3;
    options.commit_every = 1;
    options.eval_tokens = 64;
    return options;
  }

  static Outcome run(const TrainOptions& options) {
    Recorder recorder;
    const Status status = run_train(options, recorder, recorder.stop);
    EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
    EXPECT_EQ(recorder.losses.size(), kSteps);
    return {recorder.losses, recorder.norms,
            options.scratch ? "" : hash_of(options.resources.store), recorder.start,
            recorder.end.held_out_loss};
  }

  /// The plain run: everything in memory, one thread, scalar kernels. Made once for each model.
  static const Outcome& base(std::uint64_t micro = 2) {
    static std::map<std::pair<std::string, std::uint64_t>, Outcome> made;
    const auto [at, is_new] = made.try_emplace({GetParam(), micro});
    if (is_new) {
      const ForcedIsa scalar(Isa::kScalar);
      TrainOptions plain = options();
      plain.micro = micro;
      at->second = run(plain);
    }
    return at->second;
  }

  static void expect_same(const Outcome& expected, const Outcome& outcome, const char* what) {
    EXPECT_EQ(outcome.losses, expected.losses) << what;
    EXPECT_EQ(outcome.norms, expected.norms) << what;
    EXPECT_EQ(outcome.held_out_loss, expected.held_out_loss) << what;
    if (outcome.hash.empty()) return;  // scratch: nothing is left to hash
    EXPECT_EQ(outcome.hash, expected.hash) << what;
  }

  static std::string directory_;
};
std::string RunTest::directory_;

/// One way in which a run may differ from the plain one without changing a bit.
struct Variant {
  const char* name;
  std::function<void(TrainOptions&)> apply;
};

std::vector<Variant> variants() {
  return {
      {"ram min", [](TrainOptions& o) { o.resources.ram = RamBudget::kMinimum; }},
      {"ram min, 2 threads, uring",
       [](TrainOptions& o) {
         o.resources.ram = RamBudget::kMinimum;
         o.resources.threads = 2;
         o.resources.queue = QueueBackend::kAuto;
       }},
      {"2 threads", [](TrainOptions& o) { o.resources.threads = 2; }},
      {"blocks of 16384, ram min",
       [](TrainOptions& o) {
         o.block_elements = 16384;
         o.resources.ram = RamBudget::kMinimum;
       }},
      {"blocks of 65536", [](TrainOptions& o) { o.block_elements = 65536; }},
      {"commit every 3, ram min",
       [](TrainOptions& o) {
         o.commit_every = 3;
         o.resources.ram = RamBudget::kMinimum;
       }},
      {"commits as planned", [](TrainOptions& o) { o.commit_every = 0; }},
      {"evaluation after every second step", [](TrainOptions& o) { o.eval_every = 2; }},
      {"scratch, ram min",
       [](TrainOptions& o) {
         o.scratch = true;
         o.commit_every = 0;
         o.resources.ram = RamBudget::kMinimum;
       }},
  };
}

TEST_P(RunTest, NothingButTheModelDecidesTheBits) {
  const Outcome& expected = base();
  EXPECT_EQ(expected.hash.size(), 32U) << expected.hash;
  EXPECT_LT(expected.losses.back(), expected.losses.front()) << "it does not learn";
  for (const Variant& variant : variants()) {
    SCOPED_TRACE(variant.name);
    TrainOptions changed = options();
    variant.apply(changed);
    expect_same(expected, run(changed), variant.name);
  }
}

TEST_P(RunTest, BetweenTheMinimumAndEverything) {
  const Outcome& expected = base();
  TrainOptions least = options();
  least.resources.ram = RamBudget::kMinimum;
  least.block_elements = 16384;
  const Outcome minimum = run(least);
  expect_same(expected, minimum, "ram min");
  TrainOptions more = options();
  more.block_elements = 16384;
  more.resources.ram = RamBudget::kBytes;
  more.resources.ram_bytes =
      minimum.start.ram_bytes + minimum.start.parameters * kStateBytesPerParameter / 4;
  const Outcome quarter = run(more);
  expect_same(expected, quarter, "a quarter of the state above the minimum");
  EXPECT_NE(quarter.start.plan, minimum.start.plan) << "the budget was not used";
  EXPECT_LT(minimum.start.ram_bytes, expected.start.ram_bytes);
}

TEST_P(RunTest, EveryKernelSetGivesTheSameBits) {
  const Outcome& expected = base();
  int compared = 0;
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
    if (!isa_supported(isa)) continue;
    const ForcedIsa forced(isa);
    TrainOptions changed = options();
    changed.resources.ram = RamBudget::kMinimum;
    changed.resources.threads = 2;
    const Outcome outcome = run(changed);
    EXPECT_EQ(outcome.start.isa.rfind(std::string(isa_name(isa)) + ",", 0), 0U)
        << outcome.start.isa;
    expect_same(expected, outcome, isa_name(isa).data());
    ++compared;
  }
  if (compared < 2) {
    GTEST_SKIP() << "this processor runs only " << compared
                 << " of the two wide kernel sets; AVX2 and AVX-512 would be compared";
  }
}

TEST_P(RunTest, MicroBatchesDoNotDependOnTheBudget) {
  const Outcome& two = base();
  std::uint64_t larger = ~std::uint64_t{0};
  for (const std::uint64_t micro : {std::uint64_t{4}, std::uint64_t{1}}) {
    SCOPED_TRACE(micro);
    const Outcome& expected = base(micro);
    // Sums of gradients are grouped otherwise. That is another function, near but not equal, unless
    // the matrix unit adds one product after another anyway (AMX does).
    EXPECT_NEAR(expected.losses.back(), two.losses.back(), 0.02);
    TrainOptions changed = options();
    changed.micro = micro;
    changed.resources.ram = RamBudget::kMinimum;
    changed.resources.threads = 2;
    const Outcome outcome = run(changed);
    expect_same(expected, outcome, "ram min, 2 threads");
    EXPECT_LT(outcome.start.ram_bytes, larger) << "fewer sequences at once need less memory";
    larger = outcome.start.ram_bytes;
  }
}

TEST_P(RunTest, TheSeedMatters) {
  TrainOptions other = options();
  other.seed = 4;
  const Outcome& expected = base();
  const Outcome outcome = run(other);
  EXPECT_NE(outcome.losses, expected.losses);
  EXPECT_NE(outcome.hash, expected.hash);
}

TEST_P(RunTest, StoppingAndResumingChangesNothing) {
  const Outcome& expected = base();
  for (const std::uint64_t trial : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{2}}) {
    TrainOptions part = options();
    part.commit_every = trial == 0 ? 1 : 3;
    if (trial == 1) part.resources.ram = RamBudget::kMinimum;
    std::vector<double> losses;
    std::vector<std::uint64_t> indices;
    std::uint64_t done = 0;
    for (std::uint64_t visit = 0; done < kSteps; ++visit) {
      Recorder recorder;
      // Stops after one to three more steps; the last visit runs to the end.
      recorder.stop_after = visit == 2 ? 0 : done + 1 + mix64(trial, 17, visit) % 3;
      part.resume = visit > 0;
      const Status status = run_train(part, recorder, recorder.stop);
      ASSERT_TRUE(status.ok()) << status.error().message;
      EXPECT_EQ(recorder.start.first_step, done);
      EXPECT_EQ(recorder.end.committed_step, recorder.end.step) << "a stop must lose nothing";
      EXPECT_EQ(recorder.end.stopped, recorder.end.step < kSteps);
      ASSERT_GT(recorder.end.step, done);
      done = recorder.end.step;
      losses.insert(losses.end(), recorder.losses.begin(), recorder.losses.end());
      indices.insert(indices.end(), recorder.data_indices.begin(), recorder.data_indices.end());
    }
    EXPECT_EQ(losses, expected.losses) << "trial " << trial;
    EXPECT_EQ(hash_of(part.resources.store), expected.hash) << "trial " << trial;
    for (std::uint64_t i = 0; i < indices.size(); ++i) EXPECT_EQ(indices[i], i);
  }
}

TEST_P(RunTest, ResumingAFinishedRunChangesNothing) {
  TrainOptions finished = options();
  const Outcome outcome = run(finished);
  finished.resume = true;
  Recorder recorder;
  ASSERT_TRUE(run_train(finished, recorder, recorder.stop));
  EXPECT_TRUE(recorder.losses.empty());
  EXPECT_EQ(recorder.end.step, kSteps);
  EXPECT_EQ(hash_of(finished.resources.store), outcome.hash);
}

// At the smallest budget everything that changes is written once a step, and what `inspect` derives
// from the layout is never exceeded.
TEST_P(RunTest, CountsWhatItWrites) {
  TrainOptions part = options();
  part.resources.ram = RamBudget::kMinimum;
  Recorder first;
  first.stop_after = 4;
  ASSERT_TRUE(run_train(part, first, first.stop));
  part.resume = true;
  Recorder second;
  ASSERT_TRUE(run_train(part, second, second.stop));
  const std::uint64_t state = first.start.state_bytes;
  const auto storage = make_posix_storage();
  const auto store = open_store(*storage, part.resources.store, {}, /*writable=*/false);
  ASSERT_TRUE(store);
  const std::uint64_t most = most_bytes_per_step(*store.value());
  EXPECT_GE(first.end.first_written_bytes, state);
  EXPECT_LT(second.end.first_written_bytes, state) << "first versions are written once";
  EXPECT_EQ(first.end.steps, 4U);
  EXPECT_EQ(second.end.steps, kSteps - 4);
  for (const Recorder* run : {&first, &second}) {
    EXPECT_GE(run->start.planned_write_bytes, state);
    EXPECT_GE(run->end.written_bytes, state * run->end.steps);
    EXPECT_LE(run->end.written_bytes, most * run->end.steps);
    for (const DriveWear& drive : run->end.wear.drives) {
      // With checksums, manifests and padding; and other programs may write as well.
      if (!drive.ours) continue;
      EXPECT_GE(*drive.ours, run->end.written_bytes);
      EXPECT_GE(drive.bytes.value_or(*drive.ours), *drive.ours / 100 * 99) << drive.drive;
    }
    EXPECT_NE(run->end.wear.drives.empty(), run->end.wear.notes.empty());
  }
  // The second run knows what the first one wrote, and its store says so.
  ASSERT_TRUE(first.end.lifetime && second.end.lifetime);
  EXPECT_GE(first.end.lifetime->total(), first.end.written_bytes + first.end.first_written_bytes);
  EXPECT_GE(second.end.lifetime->total(), first.end.lifetime->total() + second.end.written_bytes);
  EXPECT_TRUE(second.end.lifetime->is_complete);
  EXPECT_EQ(store.value()->lifetime(), second.end.lifetime);
}

INSTANTIATE_TEST_SUITE_P(Models, RunTest, ::testing::Values("nano", "nano-gpt2"),
                         [](const auto& info) {
                           return std::string(info.param) == "nano" ? "Llama" : "Gpt2";
                         });

}  // namespace
}  // namespace penstock
