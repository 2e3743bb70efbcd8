// Method: a run goes on while its store is exported again and again, each time with another number
// of steps between the first bytes and the others; then the same run is stopped at each step that
// was exported, and exported at rest. The files must be equal: training gives the same bits always.

#include <algorithm>
#include <condition_variable>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cli/store_export.hpp"
#include "temporary_directory.hpp"
#include "train/run.hpp"

namespace penstock::test {
namespace {

constexpr std::uint64_t kSteps = 40;

/// A training that goes on only as far as it is told to.
class GuidedRun final : public TrainObserver {
 public:
  explicit GuidedRun(TrainOptions options) : options_(std::move(options)) {
    thread_ = std::thread([this] {
      Status status = run_train(options_, *this, never_);
      const std::lock_guard lock(mutex_);
      result_ = std::move(status);
      ended_ = true;
      changed_.notify_all();
    });
  }
  ~GuidedRun() override {
    allow(kSteps);
    thread_.join();
  }

  void on_note(std::string_view) override {}
  void on_start(const RunStart&) override {}
  void on_eval(const EvalLine&) override {}
  void on_copy(const CopyLine&) override {}
  void on_end(const RunEnd&) override {}
  void on_step(const StepLine& line) override {
    std::unique_lock lock(mutex_);
    step_ = line.step;
    changed_.notify_all();
    changed_.wait(lock, [&] { return step_ < allowed_ || step_ == kSteps; });
  }

  void allow(std::uint64_t step) {
    const std::lock_guard lock(mutex_);
    allowed_ = std::max(allowed_, step);
    changed_.notify_all();
  }
  void wait_for(std::uint64_t step) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return step_ >= step || ended_; });
  }
  Status result() {
    allow(kSteps);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_; });
    return result_;
  }
  std::uint64_t step() {
    const std::lock_guard lock(mutex_);
    return step_;
  }

 private:
  const TrainOptions options_;
  const std::atomic<bool> never_{false};
  std::mutex mutex_;  // guards all below but the thread
  std::condition_variable changed_;
  std::uint64_t step_ = 0, allowed_ = 1;
  bool ended_ = false;
  Status result_ = ok();
  std::thread thread_;
};

/// Stops a run after a step.
class StoppedRun final : public TrainObserver {
 public:
  explicit StoppedRun(std::uint64_t last) : stop(last == 0), last_(last) {}
  void on_note(std::string_view) override {}
  void on_start(const RunStart&) override {}
  void on_eval(const EvalLine&) override {}
  void on_copy(const CopyLine&) override {}
  void on_end(const RunEnd&) override {}
  void on_step(const StepLine& line) override { stop = line.step >= last_; }
  std::atomic<bool> stop;

 private:
  std::uint64_t last_;
};

class ExportTrainingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream text(path("text"));
    for (int i = 0; i < 500; ++i) text << "line " << i << " of a text to train on\n";
  }
  std::string path(const std::string& name) const { return directory_.path() + "/" + name; }
  TrainOptions options(const std::string& store) const {
    TrainOptions options;
    options.model = "nano";
    options.data.path = path("text");
    options.resources.store = path(store);
    options.resources.threads = 1;
    options.steps = kSteps;
    options.batch = options.micro = 2;
    options.seq = 16;
    options.warmup = 4;
    options.lr = 1e-2;
    options.commit_every = 1;
    options.block_elements = 16384;
    options.eval_tokens = 64;
    return options;
  }
  static std::string content(const std::string& file) {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  /// The bytes of an export; `hook` is called once some of them are written.
  std::string exported(const std::string& store, bool f32, std::uint64_t& step,
                       const std::function<void()>& hook = {}) {
    const auto reader = StoreReader::open(*storage_, path(store));
    EXPECT_TRUE(reader) << reader.error().message;
    if (!reader) return {};
    ExportOptions options;
    options.place = path(fmt::format("{}.safetensors", count_++));
    options.single_file = true;
    options.f32 = f32;
    bool called = false;
    const std::atomic<bool> never{false};
    const auto result =
        export_store(*reader.value(), options, never, [&](std::uint64_t, std::uint64_t) {
          if (hook && !std::exchange(called, true)) hook();
        });
    EXPECT_TRUE(result) << result.error().message;
    if (!result) return {};
    step = result.value().step;
    return content(options.place);
  }

  const penstock::testing::TemporaryDirectory directory_;
  const std::unique_ptr<Storage> storage_ = make_posix_storage();
  int count_ = 0;
};

TEST_F(ExportTrainingTest, EveryFileIsOneCommitToTheBit) {
  std::map<std::pair<std::uint64_t, bool>, std::string> files;
  int begun_anew = 0;
  {
    GuidedRun run(options("store"));
    run.wait_for(1);
    for (const std::uint64_t wanted : {0U, 1U, 2U, 3U, 6U}) {
      for (const bool wait : {true, false}) {
        // An export that is overtaken five times gives up.
        const std::uint64_t steps = wait ? wanted : std::min<std::uint64_t>(wanted, 4);
        const bool f32 = wait == (steps % 2 == 0);
        const std::uint64_t before = run.step();
        std::uint64_t step = 0;
        const std::string file = exported("store", f32, step, [&] {
          run.allow(before + steps);
          if (wait) run.wait_for(before + steps);
        });
        ASSERT_FALSE(file.empty());
        EXPECT_LE(step, before + steps);
        // Six steps later every slot of the commit that was begun with is written anew.
        EXPECT_TRUE(!wait || steps < 6 || step > before) << step << " after " << before;
        if (step > before) ++begun_anew;
        files[{step, f32}] = file;
        run.wait_for(before + steps);
      }
    }
    const Status result = run.result();
    ASSERT_TRUE(result) << result.error().message;
  }
  EXPECT_GT(begun_anew, 0);
  EXPECT_GT(files.size(), 4U);
  TrainOptions at_rest = options("again");
  std::uint64_t reached = 0;
  for (const auto& [key, file] : files) {
    const auto& [step, f32] = key;
    if (!at_rest.resume || step > reached) {
      StoppedRun run(step);
      const Status status = run_train(at_rest, run, run.stop);
      ASSERT_TRUE(status) << status.error().message;
      at_rest.resume = true;
      reached = step;
    }
    std::uint64_t stopped_at = 0;
    const std::string expected = exported("again", f32, stopped_at);
    EXPECT_EQ(stopped_at, step);
    EXPECT_TRUE(file == expected) << "step " << step << (f32 ? " f32" : " bf16");
  }
}

}  // namespace
}  // namespace penstock::test
