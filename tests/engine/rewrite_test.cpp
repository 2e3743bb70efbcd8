// Stores written anew in other blocks, on other drives: the same bits, also for the steps after.

#include "engine/rewrite.hpp"
#include "engine/training.hpp"

namespace penstock::testing {
namespace {

/// small_model: groups of several blocks at 16 Ki elements.
TEST(RewriteTest, KeepsTheBitsInOtherBlocksOnOtherDrives) {
  RunSetup setup = simulated(1, 1);
  World world(setup);
  const ModelSpec model = small_model();
  const Reference plain(model, script(), setup.seed);
  const auto options_at = [&](const std::string& directory, std::uint32_t block_elements) {
    RunSetup other = setup;
    other.block_elements = block_elements;
    return engine_options(other, model, directory);
  };
  const auto train_to = [&](const std::string& directory, std::uint32_t block_elements,
                            std::uint64_t last, std::uint64_t checkpoint_at) {
    auto engine = make_engine(world.parts(setup), options_at(directory, block_elements), model);
    ASSERT_TRUE(engine) << engine.error().message;
    TrainerWeights weights;
    Runner runner(*engine.value(), model, setup, weights);
    for (std::uint64_t step = engine.value()->step() + 1; step <= last; ++step) {
      ASSERT_TRUE(runner.run_step(step, script()));
      if (step == checkpoint_at) {
        ASSERT_TRUE(engine.value()->checkpoint({"kept", 1}));
      }
    }
    ASSERT_TRUE(engine.value()->flush());
  };
  const auto expect = [&](const StoreDirectories& directories, std::uint64_t step) {
    const auto content = content_of(*world.sim, directories);
    ASSERT_TRUE(content) << content.error().message;
    EXPECT_EQ(content.value().step, step);
    EXPECT_EQ(content.value().hash, expected_hash(plain, step));
  };
  train_to(kSimStore, 16384, 7, 3);
  // Step 7 is a partial one, so blocks have different versions.
  const StoreDirectories big(std::vector<std::string>{"/sim/big-0", "/sim/big-1"});
  std::uint64_t last = 0, all = 0;
  Status done = rewrite_store(*world.sim, {kSimStore, "", big, 49152, 2, {1, 3}, 9},
                              [&](std::uint64_t bytes, std::uint64_t total) {
                                EXPECT_GT(bytes, last);
                                last = bytes;
                                all = total;
                                return true;
                              });
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(last, all);
  expect(big, 7);
  ASSERT_TRUE(rewrite_store(*world.sim, {kSimStore, "kept", "/sim/three", 32768, 0, {}, 8}));
  expect("/sim/three", 3);
  train_to("/sim/three", 0, script().steps.size(), 0);
  expect("/sim/three", script().steps.size());
  // And back to small blocks on one drive.
  ASSERT_TRUE(rewrite_store(*world.sim, {big, "", "/sim/small", 16384, 0, {}, 7}));
  expect("/sim/small", 7);
  train_to("/sim/small", 0, script().steps.size(), 0);
  expect("/sim/small", script().steps.size());
  expect(kSimStore, 7);
}

TEST(RewriteTest, StopsWhenAskedAndRefusesWhatCannotBe) {
  Training training(simulated(1, 1));
  ASSERT_TRUE(training.open());
  training.run(2);
  training.close();
  const auto code = [&](const RewriteOptions& options, bool stop = false) {
    const Status done = rewrite_store(training.drive(), options,
                                      [&](std::uint64_t, std::uint64_t) { return !stop; });
    return done ? Errc::kOk : done.error().code;
  };
  EXPECT_EQ(code({kSimStore, "", kSimStore, 0, 0, {}, 1}), Errc::kState);
  EXPECT_EQ(code({kSimStore, "none", "/sim/a", 0, 0, {}, 1}), Errc::kState);
  EXPECT_EQ(code({"/sim/none", "", "/sim/a", 0, 0, {}, 1}), Errc::kState);
  EXPECT_EQ(code({kSimStore, "", "/sim/a", 1000, 0, {}, 1}), Errc::kArgument);
  EXPECT_EQ(code({kSimStore, "", "/sim/a", 0, 0, {1, 2}, 1}), Errc::kArgument);
  EXPECT_EQ(code({kSimStore, "", "/sim/a", 0, 0, {}, 1}, true), Errc::kCancelled);
  EXPECT_EQ(open_store(training.drive(), "/sim/a", {}, false).error().code, Errc::kState);
  EXPECT_EQ(code({kSimStore, "", "/sim/a", 0, 0, {}, 1}), Errc::kOk) << "done again";
  training.expect_state(2, {}, "/sim/a");
}

}  // namespace
}  // namespace penstock::testing
