// What an engine keeps to itself: its memory is not in core dumps or children, a forked child can
// neither use nor harm it, and its log does not name tensors.

#include <sys/wait.h>

#include <mutex>

#include "base/memory_facts.hpp"
#include "engine/simulated.hpp"

namespace penstock::testing {
namespace {

/// A run on the real filesystem, with threads.
class GuardTest : public ::testing::TestWithParam<RunSetup::Queue> {
 protected:
  void SetUp() override {
    setup_.queue = GetParam();
    model_ = tiny_model();
    world_.emplace(setup_);
    world_->logger =
        Logger(LogLevel::kInfo, [this](LogLevel, const char*, int, std::string_view message) {
          const std::lock_guard lock(mutex_);
          log_ += std::string(message) + "\n";
        });
    if (setup_.queue == RunSetup::Queue::kUring) {
      QueueOptions options;
      options.backend = QueueBackend::kUring;
      const auto queue = world_->storage->make_queue(ignored_, options);
      if (!queue) GTEST_SKIP() << queue.error().message;
    }
    open();
  }
  void open() {
    auto made = make_engine(world_->parts(setup_), engine_options(setup_, model_, place()), model_);
    ASSERT_TRUE(made) << made.error().message;
    engine_ = std::move(made).value();
    runner_.emplace(*engine_, model_, setup_, weights_);
  }
  std::string place() const { return world_->store(directory_); }
  void run_steps(std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t step = first; step <= last; ++step) {
      const Status done = runner_->run_step(step, script_);
      ASSERT_TRUE(done) << done.error().message;
    }
  }
  std::string log() {
    const std::lock_guard lock(mutex_);
    return log_;
  }

  struct Ignored final : CompletionSink {
    void io_complete(const IoCompletion&) noexcept override {}
  } ignored_;
  RunSetup setup_;
  const Script script_ = default_script();
  ModelSpec model_;
  TrainerWeights weights_;
  TemporaryDirectory directory_;
  std::mutex mutex_;
  std::string log_;
  std::optional<World> world_;
  std::unique_ptr<Engine> engine_;
  std::optional<Runner> runner_;
};

TEST_P(GuardTest, WeightsAreLeftOutOfCoreDumpsAndChildren) {
  auto lease = engine_->acquire(0);
  ASSERT_TRUE(lease);
  const void* places[] = {lease.value().data(), engine_->workspace().data()};
  for (const void* place : places) {
    ASSERT_TRUE(is_mapped(place));
    const pid_t child = fork();
    if (child == 0) _exit(is_mapped(place) ? 1 : 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the child sees the arena";
  }
  for (const void* place : places) {
    const std::string flags = vm_flags(place);
    if (flags.empty()) GTEST_SKIP() << "no CONFIG_PROC_PAGE_MONITOR: core dumps are unchecked";
    EXPECT_NE(flags.find(" dd "), std::string::npos) << "no MADV_DONTDUMP in:" << flags;
    EXPECT_NE(flags.find(" dc "), std::string::npos) << "no MADV_DONTFORK in:" << flags;
  }
}

/// Every call of the engine, in a child; the number of the first that is not refused, or 0.
int misuse(std::unique_ptr<Engine>& engine, GroupLease& lease) {
  const float value = 0.0F;
  float out = 0.0F;
  const auto refused = [](const auto& result) {
    return !result && result.error().code == Errc::kState &&
           result.error().message.find("forked") != std::string::npos;
  };
  int call = 0;
  for (const bool good :
       {refused(engine->step_begin()), refused(engine->acquire(0)),
        refused(engine->gradient(0, &value, WeightType::kF32, 0, 2)),
        refused(engine->step_end({}, {})), refused(engine->step_skip({})),
        refused(engine->eval_begin()), refused(engine->eval_end()), refused(engine->wait(0, 0)),
        refused(engine->query(0, 0)), refused(engine->flush()),
        refused(engine->export_master(0, &out)), refused(engine->error())}) {
    ++call;
    if (!good) return call;
  }
  // Facts stay readable, and neither a lease nor the engine waits for threads that are not there.
  if (engine->step() != 4 || engine->committed_step() > 4) return 100;
  lease.reset();
  engine.reset();
  return 0;
}

TEST_P(GuardTest, AForkedChildCanNeitherUseNorHarmTheEngine) {
  run_steps(1, 4);  // leaves updates, reads and a commit in flight
  for (int round = 0; round < 3; ++round) {
    auto lease = engine_->acquire(static_cast<GroupId>(round));
    ASSERT_TRUE(lease);
    const pid_t child = fork();
    if (child == 0) _exit(misuse(engine_, lease.value()));
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0) << "the number of the call that was not refused";
  }
  run_steps(5, script_.steps.size());
  ASSERT_TRUE(engine_->flush());
  engine_.reset();
  auto content = content_of(*world_->storage, place());
  ASSERT_TRUE(content) << content.error().message;
  const Reference reference(model_, script_, setup_.seed);
  EXPECT_EQ(content.value().hash, expected_hash(reference, script_.steps.size()));
}

TEST_P(GuardTest, TheLogDoesNotNameTensorsOrGroups) {
  run_steps(1, 3);
  ASSERT_TRUE(engine_->flush());
  engine_.reset();
  {  // every block of the file is spoilt: reading again does not help, and the engine stops
    auto file = world_->storage->open(place() + "/data.0", {});
    ASSERT_TRUE(file);
    const std::vector<std::byte> junk(1U << 20, std::byte{0x5A});
    const std::uint64_t end = world_->storage->size_bytes(file.value()).value();
    for (std::uint64_t at = 2U << 20; at < end; at += junk.size()) {
      const std::uint64_t part = std::min<std::uint64_t>(junk.size(), end - at);
      ASSERT_TRUE(world_->storage->write_at(file.value(), at, std::span(junk).first(part)));
    }
    ASSERT_TRUE(world_->storage->close(file.value()));
  }
  open();
  const auto lease = engine_->acquire(0);
  ASSERT_FALSE(lease);
  EXPECT_EQ(lease.error().code, Errc::kCorrupt);
  EXPECT_NE(lease.error().message.find("tensor \""), std::string::npos)
      << "the caller is told the tensor: " << lease.error().message;
  const std::string text = log();
  EXPECT_NE(text.find("stopped"), std::string::npos) << text;
  for (const TensorSpec& tensor : model_.tensors) {
    EXPECT_EQ(text.find(tensor.name), std::string::npos) << tensor.name << " in: " << text;
  }
  EXPECT_EQ(text.find("embed"), std::string::npos) << text;
}

INSTANTIATE_TEST_SUITE_P(Queues, GuardTest,
                         ::testing::Values(RunSetup::Queue::kThreads, RunSetup::Queue::kUring),
                         [](const auto& info) {
                           return info.param == RunSetup::Queue::kThreads ? "Threads" : "Uring";
                         });

}  // namespace
}  // namespace penstock::testing
