// The deterministic executor on the simulated drive: whole runs with faults replay from a seed, and
// end with the bits of the plain loop; a fault that cannot be healed gives one sticky error, no
// commit after it, and a store that goes on from its last commit.

#include <algorithm>

#include "engine/simulated.hpp"

namespace penstock::testing {
namespace {

constexpr std::uint64_t kSeeds = 60;
constexpr std::uint32_t kAlways = 65536;  // of SimFaults' probabilities

Setup simulated(std::uint64_t number) {
  Setup setup;
  setup.queue = Setup::Queue::kSim;
  setup.threads = 0;
  setup.budget_percent = std::vector<int>{0, 10, 30, 60, 100}[number % 5];
  setup.commit_every = 1 + static_cast<std::uint32_t>(number % 3);
  if (number % 4 == 3) {
    setup.level = Level::kStates;
    setup.lent = number % 8 == 3;
    setup.weights = setup.lent ? WeightType::kBf16 : WeightType::kF32;
  }
  return setup;
}

/// Faults that the engine must get over, drawn from the seed.
SimFaults healing_faults(std::uint64_t number) {
  const auto draw = [&](std::uint64_t stream, std::uint64_t n) {
    return static_cast<std::uint32_t>(mix64(77, stream, number) % n);
  };
  SimFaults faults;
  faults.short_transfer = draw(0, kAlways / 2);
  faults.transient = draw(1, kAlways / 8);
  faults.corrupt_read = draw(2, kAlways / 100);
  faults.delay_ns_max = std::vector<std::uint64_t>{0, 10'000, 2'000'000, 100'000'000}[draw(3, 4)];
  return faults;
}

/// All that can be seen of a run.
struct Outcome {
  std::uint64_t digest = 0, events = 0, now_ns = 0, reads = 0;
  std::vector<double> norms;
  std::size_t differences = 0;
  StoreContent content;
  friend bool operator==(const Outcome& a, const Outcome& b) {
    return a.digest == b.digest && a.events == b.events && a.now_ns == b.now_ns &&
           a.reads == b.reads && a.norms == b.norms && a.differences == b.differences &&
           a.content.step == b.content.step && a.content.hash == b.content.hash;
  }
};

void run_whole(const Setup& setup, std::uint64_t world_seed, const ModelSpec& shape,
               const Reference& reference, Outcome& outcome) {
  const Script script = default_script();
  ModelSpec model = shape;
  TrainerWeights weights;
  attach_weights(model, setup, weights);
  Setup seeded = setup;
  seeded.seed = world_seed;  // of the world only: the model's values stay
  World world(seeded);
  auto made = make_engine(world.parts(setup), engine_options(setup, model, kSimStore), model);
  ASSERT_TRUE(made) << made.error().message;
  Engine& engine = *made.value();
  Runner runner(engine, model, setup, weights);
  for (std::uint64_t step = 1; step <= script.steps.size(); ++step) {
    const Status status = runner.run_step(step, script);
    ASSERT_TRUE(status) << "step " << step << ": " << status.error().message;
  }
  const Status flushed = engine.flush();
  ASSERT_TRUE(flushed) << flushed.error().message;
  outcome.norms = runner.norms;
  outcome.differences = count_differences(engine, model, reference, script.steps.size());
  outcome.reads = engine.counters().total().of(Link::kDriveRead).bytes;
  made.value().reset();
  outcome.digest = world.sim->digest();
  outcome.events = world.timeline.events_run();
  outcome.now_ns = world.timeline.now_ns();
  world.sim->set_faults({});
  auto content = content_of(*world.sim, kSimStore);
  ASSERT_TRUE(content) << content.error().message;
  outcome.content = content.value();
}

void expect_replay(const Setup& setup, std::uint64_t seed, const ModelSpec& model,
                   const Reference& reference) {
  SCOPED_TRACE(describe(setup) + " world seed " + std::to_string(seed));
  Outcome first, second, other;
  run_whole(setup, seed, model, reference, first);
  if (::testing::Test::HasFatalFailure()) return;
  EXPECT_EQ(first.norms, reference.norms);
  EXPECT_EQ(first.differences, 0U);
  EXPECT_EQ(first.content.step, default_script().steps.size());
  EXPECT_EQ(first.content.hash, expected_hash(reference, first.content.step));
  run_whole(setup, seed, model, reference, second);
  EXPECT_TRUE(first == second) << first.events << " and " << second.events << " events";
  run_whole(setup, seed + 1000, model, reference, other);
  EXPECT_NE(first.events * 31 + first.now_ns, other.events * 31 + other.now_ns)
      << "another seed must be another world";
  EXPECT_EQ(first.content.hash, other.content.hash) << "but the same training";
}

TEST(ReplayTest, WholeRunsWithFaultsReplayFromASeed) {
  const ModelSpec tiny = tiny_model();
  const Reference reference(tiny, default_script(), RunSetup{}.seed);
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    RunSetup setup = simulated(seed);
    setup.faults = healing_faults(seed);
    expect_replay(setup, seed, tiny_model(setup.level), reference);
    if (HasFailure()) break;
  }
}

TEST(ReplayTest, SoDoRunsWithManyBlocks) {
  const Reference reference(small_model(), default_script(), RunSetup{}.seed);
  for (const std::uint64_t seed : {1U}) {
    RunSetup setup = simulated(seed);
    setup.faults = healing_faults(seed);
    expect_replay(setup, seed, small_model(setup.level), reference);
  }
}

// --- faults that end a run -------------------------------------------------------------------

struct FatalCase {
  const char* name;
  Errc code;
  void (*set)(SimFaults& faults);
  bool after_open = false;  // from the first step on; syncs are counted from there
};

void PrintTo(const FatalCase& fatal, std::ostream* out) {
  *out << fatal.name;
}

class FatalFaultTest : public ::testing::TestWithParam<FatalCase> {
 protected:
  void expect_sticky(Engine& engine, const ModelSpec& model, const Status& failure) {
    const FatalCase& fatal = GetParam();
    ASSERT_FALSE(failure) << "the fault went unnoticed";
    EXPECT_EQ(failure.error().code, fatal.code) << failure.error().message;
    const std::string message = engine.error().ok() ? "" : engine.error().error().message;
    const bool names_it = message.find("tensor \"") != std::string::npos ||
                          message.find(kSimStore) != std::string::npos;
    EXPECT_TRUE(names_it) << message;
    std::vector<float> values(engine.tensor_elements(0));
    const auto same = [&](const char* call, const auto& result) {
      EXPECT_FALSE(result) << call;
      if (result) return;
      EXPECT_EQ(result.error().code, fatal.code) << call << ": " << result.error().message;
      EXPECT_EQ(result.error().message, message) << call;
    };
    same("step_begin", engine.step_begin());
    same("acquire", engine.acquire(1));
    same("gradient", engine.gradient(0, values.data(), WeightType::kF32, 0, 2));
    same("step_end", engine.step_end(step_input(1, 0.5), {}));
    same("step_skip", engine.step_skip({}));
    same("eval_begin", engine.eval_begin());
    same("eval_end", engine.eval_end());
    same("wait", engine.wait(0, 0));
    same("query", engine.query(0, 0));
    same("flush", engine.flush());
    same("export_master", engine.export_master(0, values.data()));
    EXPECT_EQ(model.groups.size(), engine.plan().groups.size());
  }
};

TEST_P(FatalFaultTest, OneStickyErrorThenTheStoreGoesOnFromItsCommit) {
  const Script script = default_script();
  const Reference reference(tiny_model(), script, RunSetup{}.seed);
  for (std::uint64_t number = 0; number < 12; ++number) {
    RunSetup setup = simulated(number);
    setup.seed = 11;
    SCOPED_TRACE(describe(setup) + " number " + std::to_string(number));
    ModelSpec model = tiny_model(setup.level);
    TrainerWeights weights;
    attach_weights(model, setup, weights);
    RunSetup seeded = setup;
    seeded.seed = number;
    World world(seeded);
    ASSERT_TRUE(world.sim->sync_directory("/"));
    auto made = make_engine(world.parts(setup), engine_options(setup, model, kSimStore), model);
    ASSERT_TRUE(made) << made.error().message;
    Engine& engine = *made.value();
    Runner runner(engine, model, setup, weights);
    const std::uint64_t first_bad = GetParam().after_open ? 1 : 2 + number % 4;
    Status status = ok();
    for (std::uint64_t step = 1; step <= script.steps.size() && status; ++step) {
      if (step == first_bad) {
        SimFaults faults;
        GetParam().set(faults);
        if (faults.fail_sync_at != 0) faults.fail_sync_at += world.sim->totals().syncs;
        world.sim->set_faults(faults);
      }
      status = runner.run_step(step, script);
    }
    if (status) status = engine.flush();
    const std::uint64_t committed = engine.committed_step();
    expect_sticky(engine, model, status);
    if (HasFailure()) return;
    while (world.timeline.run_one()) {
    }
    EXPECT_EQ(engine.committed_step(), committed) << "a commit after the failure";
    made.value().reset();
    world.sim->set_faults({});

    auto content = content_of(*world.sim, kSimStore);
    ASSERT_TRUE(content) << content.error().message;
    EXPECT_EQ(content.value().step, committed);
    EXPECT_EQ(content.value().hash, expected_hash(reference, content.value().step));
    Timeline timeline(number);
    auto image = world.sim->after_power_loss(timeline, number);
    EXPECT_EQ(finish_script(*image, timeline, setup, script, reference), "") << "after power loss";
    EXPECT_EQ(finish_script(*world.sim, world.timeline, setup, script, reference, committed), "");
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(
    EachFault, FatalFaultTest,
    ::testing::Values(FatalCase{"read_error", Errc::kIo,
                                [](SimFaults& faults) { faults.read_error = kAlways / 10 * 9; }},
                      FatalCase{"write_error", Errc::kIo,
                                [](SimFaults& faults) { faults.write_error = kAlways / 4; }},
                      FatalCase{"no_space", Errc::kNoSpace,
                                [](SimFaults& faults) { faults.no_space = kAlways / 4; }},
                      FatalCase{"lost_completion", Errc::kTimeout,
                                [](SimFaults& faults) { faults.lost_completion = kAlways / 4; }},
                      FatalCase{"first_sync", Errc::kIo,
                                [](SimFaults& faults) { faults.fail_sync_at = 1; }, true},
                      FatalCase{"later_sync", Errc::kIo,
                                [](SimFaults& faults) { faults.fail_sync_at = 2; }, true}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace penstock::testing
