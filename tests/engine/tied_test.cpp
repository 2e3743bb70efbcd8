// Reads of a tied group's weights for its further uses are counted apart.

#include "engine/harness.hpp"

namespace penstock::testing {
namespace {

/// Four groups of one size; the first is used again at the end of each pass.
ModelSpec tied_model() {
  ModelSpec model;
  for (GroupId g = 0; g < 4; ++g) {
    model.groups.push_back(std::to_string(g));
    TensorSpec tensor;
    tensor.name = model.groups.back();
    tensor.shape = {128, 128};
    tensor.group = g;
    tensor.contributions = g == 0 ? 2 : 1;
    tensor.init.kind = Init::Kind::kNormal;
    tensor.init.deviation = 0.02F;
    model.tensors.push_back(std::move(tensor));
  }
  model.forward = {0, 1, 2, 3, 0};
  model.backward = {0, 3, 2, 1, 0};
  return model;
}

TEST(TiedReuseTest, CountsFurtherUsesInTheirOwnKind) {
  const ModelSpec model = tied_model();
  penstock::testing::Setup setup;
  TemporaryDirectory directory;
  World world(setup);
  auto made =
      make_engine(world.parts(setup), engine_options(setup, model, world.store(directory)), model);
  ASSERT_TRUE(made.ok()) << made.error().message;
  Engine& engine = *made.value();
  ASSERT_EQ(engine.plan().groups[0].hi_pinned, false);  // else nothing is read again
  const TrainerWeights none;
  Runner runner(engine, model, setup, none);
  const Script script{std::vector<StepKind>(6, StepKind::kNormal)};
  for (std::uint64_t step = 1; step <= 6; ++step) ASSERT_TRUE(runner.run_step(step, script).ok());
  ASSERT_TRUE(engine.flush().ok());
  const TrafficTable total = engine.counters().total();
  const std::uint64_t hi = 128 * 128 * kHiBytes;
  // Once at the end of each pass: the two frames have gone to other groups in between. What the
  // look-ahead reads for a step that never comes is not a further use.
  EXPECT_EQ(total.at(Link::kDriveRead, TensorClass::kHi, TrafficKind::kTiedReuse).bytes, 12 * hi);
  EXPECT_GT(total.at(Link::kDriveRead, TensorClass::kHi, TrafficKind::kDemand).bytes, 12 * hi);
}

}  // namespace
}  // namespace penstock::testing
