#pragma once

// An engine on a simulated drive and its trainer, with a look at what is on the drive.

#include "engine/simulated.hpp"

namespace penstock::testing {

inline const Script& script() {
  static const Script script = default_script();
  return script;
}

inline const Reference& reference() {
  static const Reference reference(tiny_model(), script(), RunSetup{}.seed);
  return reference;
}

inline RunSetup simulated(std::uint32_t commit_every, std::uint32_t checkpoints) {
  RunSetup setup;
  setup.queue = RunSetup::Queue::kSim;
  setup.threads = 0;
  setup.commit_every = commit_every;
  setup.checkpoints = checkpoints;
  return setup;
}

/// An engine on a simulated drive and its trainer.
class Training {
 public:
  explicit Training(const RunSetup& setup) : setup_(setup), world_(setup) {}

  Status open(const std::string& directory = kSimStore) {
    engine_.reset();
    model_ = tiny_model(setup_.level);
    attach_weights(model_, setup_, weights_);
    auto made =
        make_engine(world_.parts(setup_), engine_options(setup_, model_, directory), model_);
    if (!made) return std::move(made).error();
    engine_ = std::move(made).value();
    runner_ = std::make_unique<Runner>(*engine_, model_, setup_, weights_);
    return ok();
  }
  /// Runs up to and with step `last`; `after` is called between steps.
  template <class After>
  void run(std::uint64_t last, After after) {
    for (std::uint64_t step = engine_->step() + 1; step <= last; ++step) {
      const Status done = runner_->run_step(step, script());
      ASSERT_TRUE(done) << "step " << step << ": " << done.error().message;
      after(step);
    }
  }
  void run(std::uint64_t last) {
    run(last, [](std::uint64_t) {});
  }
  void close() {
    const Status flushed = engine_->flush();
    EXPECT_TRUE(flushed) << flushed.error().message;
    engine_.reset();
  }
  [[nodiscard]] Engine& engine() { return *engine_; }
  [[nodiscard]] SimStorage& drive() { return *world_.sim; }
  void expect_state(std::uint64_t step, const std::string& pin = {},
                    const std::string& directory = kSimStore) {
    const auto content = content_of(drive(), directory, pin);
    ASSERT_TRUE(content) << pin << ": " << content.error().message;
    EXPECT_EQ(content.value().step, step) << pin;
    EXPECT_EQ(content.value().hash, expected_hash(reference(), step)) << pin;
  }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const PinSummary& pin : engine_->checkpoints()) names.push_back(pin.name);
    return names;
  }

 private:
  const RunSetup setup_;
  World world_;
  ModelSpec model_;
  TrainerWeights weights_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Runner> runner_;
};

}  // namespace penstock::testing
