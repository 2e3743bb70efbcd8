// The bytes that a run moves, by reason, against the plan's R and W.

#include "engine/simulated.hpp"

namespace penstock::testing {
namespace {

constexpr std::uint64_t kWarmUp = 3, kMeasured = 6;  // multiples of every K below

struct Bytes {
  TrafficTable table;
  [[nodiscard]] double of(Link link, TensorClass tensor_class, TrafficKind kind) const {
    return static_cast<double>(table.at(link, tensor_class, kind).bytes);
  }
};

/// Runs until nothing is in flight, so that what is counted ends with the step.
Bytes settled(World& world, const Engine& engine) {
  while (world.timeline.run_one()) {
  }
  return {engine.counters().total()};
}

void expect_near(double measured, double planned, const char* what) {
  EXPECT_LE(std::abs(measured - planned), 0.03 * planned)
      << what << ": " << measured / kMeasured << " bytes per step, the plan says "
      << planned / kMeasured;
}

using CountersCase = std::tuple<int, std::uint32_t, Level>;  // budget in percent, K, level
class CountersTest : public ::testing::TestWithParam<CountersCase> {};

std::string counters_name(const ::testing::TestParamInfo<CountersCase>& info) {
  const auto& [percent, interval, level] = info.param;
  return "budget" + std::to_string(percent) + "_K" + std::to_string(interval);
}

TEST_P(CountersTest, EqualThePlanFromTheSecondStepOn) {
  using enum TrafficKind;
  RunSetup setup;
  setup.queue = RunSetup::Queue::kSim;
  setup.threads = 0;
  setup.budget_percent = std::get<0>(GetParam());
  setup.commit_every = std::get<1>(GetParam());
  setup.level = std::get<2>(GetParam());
  if (setup.level == Level::kStates) setup.weights = WeightType::kBf16;
  SCOPED_TRACE(describe(setup));
  Script script;
  script.steps.assign(kWarmUp + kMeasured, StepKind::kNormal);
  ModelSpec model = small_model(setup.level);
  TrainerWeights weights;
  attach_weights(model, setup, weights);
  World world(setup);
  auto made = make_engine(world.parts(setup), engine_options(setup, model, kSimStore), model);
  ASSERT_TRUE(made) << made.error().message;
  Engine& engine = *made.value();
  const Plan& plan = engine.plan();
  Runner runner(engine, model, setup, weights);
  Bytes before;
  for (std::uint64_t step = 1; step <= script.steps.size(); ++step) {
    const Status status = runner.run_step(step, script);
    ASSERT_TRUE(status) << status.error().message;
    const Bytes now = settled(world, engine);
    if (step == kWarmUp) before = now;
  }
  const Bytes after = settled(world, engine);
  const auto moved = [&](Link link, TensorClass tensor_class, TrafficKind kind) {
    return after.of(link, tensor_class, kind) - before.of(link, tensor_class, kind);
  };
  const auto planned = [](std::uint64_t bytes) { return static_cast<double>(bytes * kMeasured); };
  const Plan::Traffic& traffic = plan.traffic;
  expect_near(moved(Link::kDriveRead, TensorClass::kHi, kDemand) +
                  moved(Link::kDriveRead, TensorClass::kHi, kTiedReuse),
              planned(traffic.hi_read), "hi read");
  expect_near(moved(Link::kDriveWrite, TensorClass::kHi, kDemand), planned(traffic.hi_write),
              "hi written");
  expect_near(moved(Link::kDriveRead, TensorClass::kState, kDemand), planned(traffic.state_read),
              "state read");
  expect_near(moved(Link::kDriveWrite, TensorClass::kState, kDemand), planned(traffic.state_write),
              "state written");
  expect_near(moved(Link::kDriveRead, TensorClass::kGradient, kSpill), planned(traffic.spill),
              "spills read");
  expect_near(moved(Link::kDriveWrite, TensorClass::kGradient, kSpill), planned(traffic.spill),
              "spills written");
  const double homed = moved(Link::kDriveWrite, TensorClass::kHi, kCommitOfRamHomed) +
                       moved(Link::kDriveWrite, TensorClass::kState, kCommitOfRamHomed);
  expect_near(homed, planned(traffic.ram_homed) / setup.commit_every, "commits of RAM-homed bytes");

  // The flush at the end is a kind of its own: nothing before it, all that is pending in it.
  const auto flushed = [](const Bytes& bytes) {
    return bytes.table.of(Link::kDriveWrite, kFinalFlush).bytes +
           bytes.table.of(Link::kDriveRead, kFinalFlush).bytes;
  };
  EXPECT_EQ(flushed(after), 0U);
  script.steps.push_back(StepKind::kNormal);
  ASSERT_TRUE(runner.run_step(script.steps.size(), script));
  const Bytes pending{engine.counters().total()};
  ASSERT_TRUE(engine.flush());
  const Bytes end = settled(world, engine);
  EXPECT_GT(flushed(end), 0U);
  EXPECT_EQ(end.of(Link::kDriveWrite, TensorClass::kState, kDemand),
            pending.of(Link::kDriveWrite, TensorClass::kState, kDemand));
}

INSTANTIATE_TEST_SUITE_P(Level2, CountersTest,
                         ::testing::Combine(::testing::Values(0, 25, 60), ::testing::Values(1U, 3U),
                                            ::testing::Values(Level::kWeights)),
                         counters_name);
INSTANTIATE_TEST_SUITE_P(Level1, CountersTest,
                         ::testing::Combine(::testing::Values(0, 60), ::testing::Values(3U),
                                            ::testing::Values(Level::kStates)),
                         counters_name);

/// Groups of one size: at the minimum none of them has a frame to itself.
ModelSpec layers_alone() {
  ModelSpec model = small_model();
  model.groups.clear();
  std::vector<TensorSpec> tensors;
  for (TensorSpec& tensor : model.tensors) {
    if (tensor.name.rfind("h.", 0) != 0) continue;
    --tensor.group;
    tensors.push_back(tensor);
  }
  model.tensors = std::move(tensors);
  model.forward.clear();
  for (GroupId group = 0; group < 5; ++group) {
    model.groups.push_back("layer" + std::to_string(group));
    model.forward.push_back(group);
  }
  model.backward.assign(model.forward.rbegin(), model.forward.rend());
  return model;
}

TEST(CountersTest, WithEverythingOnTheDriveACommitWritesNothingOfItsOwn) {
  RunSetup setup;
  setup.queue = RunSetup::Queue::kSim;
  setup.threads = 0;
  setup.commit_every = 1;
  ModelSpec model = layers_alone();
  TrainerWeights weights;
  World world(setup);
  auto made = make_engine(world.parts(setup), engine_options(setup, model, kSimStore), model);
  ASSERT_TRUE(made) << made.error().message;
  Engine& engine = *made.value();
  ASSERT_EQ(engine.plan().traffic.ram_homed, 0U) << "at the minimum nothing is at home in RAM";
  Runner runner(engine, model, setup, weights);
  Script script;
  script.steps.assign(6, StepKind::kNormal);
  for (std::uint64_t step = 1; step <= script.steps.size(); ++step) {
    ASSERT_TRUE(runner.run_step(step, script));
  }
  const Bytes end = settled(world, engine);
  EXPECT_EQ(end.table.of(Link::kDriveWrite, TrafficKind::kCommitOfRamHomed).bytes, 0U);
  EXPECT_GT(end.table.of(Link::kDriveWrite, TrafficKind::kDemand).bytes, 0U);
}

}  // namespace
}  // namespace penstock::testing
