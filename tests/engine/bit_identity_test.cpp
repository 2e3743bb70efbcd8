// Training through any budget, queue, executor, ISA, block size and commit interval equals a plain
// fp32 AdamW loop in memory, bit for bit.

#include "engine/harness.hpp"
#include "sanitizers.hpp"

namespace penstock::testing {
namespace {

const Reference& reference_for(const ModelSpec& model) {
  static const Reference reference(model, default_script(), Setup{}.seed);
  return reference;
}

void expect_identical(const Setup& setup) {
  SCOPED_TRACE(describe(setup));
  if (!isa_supported(setup.isa)) {
    GTEST_SKIP() << isa_name(setup.isa) << " needs a processor that has it";
  }
  ModelSpec model = small_model(setup.level);
  TrainerWeights weights;
  attach_weights(model, setup, weights);
  const Reference& reference = reference_for(small_model());
  const Script script = default_script();
  TemporaryDirectory directory;
  World world(setup);
  const EngineOptions options = engine_options(setup, model, world.store(directory));
  auto made = make_engine(world.parts(setup), options, model);
  ASSERT_TRUE(made.ok()) << made.error().message;
  Engine& engine = *made.value();
  Runner runner(engine, model, setup, weights);
  for (std::uint64_t step = 1; step <= script.steps.size(); ++step) {
    const Status status = runner.run_step(step, script);
    ASSERT_TRUE(status.ok()) << "step " << step << ": " << status.error().message;
    ASSERT_EQ(runner.norms.back(), reference.norms[step - 1]) << "step " << step;
  }
  const Status flushed = engine.flush();
  ASSERT_TRUE(flushed.ok()) << flushed.error().message;
  EXPECT_EQ(engine.updates(), reference.updates);
  EXPECT_EQ(engine.committed_step(), setup.scratch ? 0 : script.steps.size());
  EXPECT_EQ(count_differences(engine, model, reference, script.steps.size()), 0U);
  if (setup.scratch) return;

  // And again from the drive, with another budget.
  made.value().reset();
  Setup other = setup;
  other.budget_percent = setup.budget_percent == 0 ? 30 : 0;
  EngineOptions again = engine_options(other, model, world.store(directory));
  again.mode = OpenMode::kResume;
  auto reopened = make_engine(world.parts(setup), again, model);
  ASSERT_TRUE(reopened.ok()) << reopened.error().message;
  EXPECT_TRUE(reopened.value()->resumed());
  EXPECT_EQ(reopened.value()->step(), script.steps.size());
  EXPECT_EQ(std::vector<std::byte>(reopened.value()->opened_blob().begin(),
                                   reopened.value()->opened_blob().end()),
            blob_of(script.steps.size()));
  EXPECT_EQ(count_differences(*reopened.value(), model, reference, script.steps.size()), 0U);
}

class BitIdentityTest : public ::testing::TestWithParam<Setup> {};

TEST_P(BitIdentityTest, EqualsThePlainLoop) {
  expect_identical(GetParam());
}

/// One axis at a time around a base, then a seeded sample of the whole space.
std::vector<Setup> setups() {
  std::vector<Setup> all;
  const Setup base;
  all.push_back(base);
  const auto with = [&](auto change) {
    Setup setup = base;
    change(setup);
    all.push_back(setup);
  };
  for (const int percent : {25, 100}) with([&](Setup& s) { s.budget_percent = percent; });
  with([](Setup& s) { s.queue = Setup::Queue::kUring; });
  with([](Setup& s) { s.queue = Setup::Queue::kSim, s.threads = 0; });
  with([](Setup& s) { s.threads = 2; });
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512})
    with([&](Setup& s) { s.isa = isa; });
  for (const std::uint32_t block : {32768U, 65536U}) {
    with([&](Setup& s) { s.block_elements = block; });
  }
  for (const std::uint32_t k : {3U, 0U}) {
    for (const int percent : {0, 25, 100}) {
      with([&](Setup& s) { s.commit_every = k, s.budget_percent = percent; });
    }
  }
  with([](Setup& s) { s.scratch = true; });
  for (const int percent : {0, 25, 100}) {
    with([&](Setup& s) {
      s.level = Level::kStates, s.weights = WeightType::kF32, s.budget_percent = percent;
    });
    with([&](Setup& s) {
      s.level = Level::kStates, s.weights = WeightType::kBf16, s.lent = true;
      s.budget_percent = percent, s.commit_every = 3;
    });
  }
  for (std::uint64_t i = 0; i < fewer_if_sanitized(60, 3); ++i) {
    const auto draw = [&](std::uint64_t stream, std::uint64_t n) {
      return static_cast<std::uint32_t>(mix64(2024, stream, i) % n);
    };
    Setup setup;
    setup.budget_percent = std::vector<int>{0, 10, 25, 60, 100}[draw(0, 5)];
    setup.queue = static_cast<Setup::Queue>(draw(1, 3));
    setup.threads = setup.queue == Setup::Queue::kSim ? 0 : 1 + static_cast<int>(draw(2, 2));
    setup.isa = static_cast<Isa>(draw(3, 3));
    setup.block_elements = 16384U << draw(4, 3);
    setup.commit_every = std::vector<std::uint32_t>{0, 1, 2, 3}[draw(5, 4)];
    if (draw(6, 3) == 0) {
      setup.level = Level::kStates;
      setup.lent = draw(7, 2) == 0;
      setup.weights = setup.lent || draw(8, 2) == 0 ? WeightType::kBf16 : WeightType::kF32;
    }
    setup.scratch = draw(9, 8) == 0;
    all.push_back(setup);
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Setups, BitIdentityTest, ::testing::ValuesIn(setups()),
                         [](const auto& info) {
                           return std::to_string(info.index) + "_" + test_name(info.param);
                         });

}  // namespace
}  // namespace penstock::testing
