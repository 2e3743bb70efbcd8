// Method: whole steps of the engine run on a simulated drive. After every operation of the drive
// several power losses are taken; what is left is opened and hashed. It must be a step that was
// committed, at least the newest acknowledged one, with the hash that a plain loop in memory has
// after that step; a sample also trains on and must end with the loop's last hash. Then the same
// harness runs with each rule of the commit protocol broken on purpose, and must notice.
//
// PENSTOCK_POWER_LOSS_IMAGES sets how many images are opened (default 10,000; a quarter under a
// sanitizer).

#include <algorithm>
#include <cstdlib>

#include "engine/simulated.hpp"
#include "sanitizers.hpp"

namespace penstock::testing {
namespace {

constexpr std::uint64_t kImagesPerOperation = 3;
constexpr std::uint64_t kFlushAfterStep = 5;  // one more commit, off the interval

const Script& script() {
  static const Script script = default_script();
  return script;
}

const Reference& reference() {
  static const Reference reference(tiny_model(), script(), Setup{}.seed);
  return reference;
}

struct Verdict {
  std::uint64_t images = 0;     // opened
  std::uint64_t committed = 0;  // that held a commit
  std::uint64_t resumed = 0;    // trained on to the end
  std::uint64_t bad = 0;
  std::string first;  // the first bad one, in words
};

/// One run of the script and the power losses during it.
class Run {
 public:
  Run(const Setup& setup, std::uint64_t draws, std::uint64_t max_images, Verdict& verdict)
      : setup_(setup), draws_(draws), max_images_(max_images), verdict_(verdict), world_(setup) {}

  void run() {
    ModelSpec model = tiny_model(setup_.level);
    TrainerWeights weights;
    attach_weights(model, setup_, weights);
    ASSERT_TRUE(world_.sim->sync_directory("/"));  // the store's parent is older than the store
    world_.sim->set_observer([this](std::uint64_t operation) { take_images(operation); });
    auto made = make_engine(world_.parts(setup_), engine_options(setup_, model, kSimStore), model);
    ASSERT_TRUE(made) << made.error().message;
    engine_ = made.value().get();
    Runner runner(*engine_, model, setup_, weights);
    for (step_ = 1; step_ <= script().steps.size() && !done(); ++step_) {
      const Status status = runner.run_step(step_, script());
      ASSERT_TRUE(broken_on_purpose() || status) << "step " << step_ << status.error().message;
      if (!status) return;  // a planted bug may show before the power goes
      if (step_ == kFlushAfterStep && !engine_->flush()) return;
    }
    step_ = script().steps.size();
    const Status flushed = engine_->flush();
    ASSERT_TRUE(broken_on_purpose() || flushed) << flushed.error().message;
  }

  /// The engine dies with the run; the drive's observer must not ask it afterwards.
  ~Run() { world_.sim->set_observer({}); }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

 private:
  [[nodiscard]] bool done() const { return verdict_.images >= max_images_; }
  [[nodiscard]] bool broken_on_purpose() const {
    const ProtocolFaults& f = setup_.protocol_faults;
    return f.skip_data_flush || f.reuse_slot_early || f.overwrite_base || f.late_blob ||
           f.skip_directory_sync || f.skip_finite_check || f.skip_sums;
  }

  void take_images(std::uint64_t operation) {
    for (std::uint64_t i = 0; i < kImagesPerOperation && !done(); ++i) {
      const std::uint64_t seed = mix64(draws_, operation, i);
      Timeline timeline(seed);
      auto image = world_.sim->after_power_loss(timeline, seed);
      ++verdict_.images;
      const std::string problem = judge(*image, timeline, seed);
      if (problem.empty()) continue;
      if (verdict_.bad++ != 0) continue;
      verdict_.first = describe(setup_) + " draws " + std::to_string(draws_) + " operation " +
                       std::to_string(operation) + " image " + std::to_string(i) + " during step " +
                       std::to_string(step_) + ": " + problem;
    }
  }

  [[nodiscard]] bool may_be_committed(std::uint64_t step) const {
    if (step > step_) return false;
    return step % setup_.commit_every == 0 || step == kFlushAfterStep ||
           step == script().steps.size();
  }

  /// Empty when what the power loss left is as promised.
  std::string judge(SimStorage& image, Timeline& timeline, std::uint64_t seed) {
    const std::uint64_t acknowledged = engine_ != nullptr ? engine_->committed_step() : 0;
    auto content = content_of(image, kSimStore);
    if (!content) {
      if (engine_ != nullptr) return content.error().message;
      if (content.error().code != Errc::kState) return "creation: " + content.error().message;
      return mix64(seed, 1, 0) % 16 == 0 ? go_on(image, timeline, seed, std::nullopt) : "";
    }
    ++verdict_.committed;
    const std::uint64_t step = content.value().step;
    if (!may_be_committed(step)) return "step " + std::to_string(step) + " was never committed";
    if (step < acknowledged) {
      return "step " + std::to_string(step) + ", but " + std::to_string(acknowledged) +
             " was acknowledged";
    }
    if (content.value().hash != expected_hash(reference(), step)) {
      return "another hash at step " + std::to_string(step);
    }
    return mix64(seed, 1, 0) % 64 == 0 ? go_on(image, timeline, seed, step) : "";
  }

  /// Trains on from the image, with another budget, to the end of the script.
  std::string go_on(SimStorage& image, Timeline& timeline, std::uint64_t seed,
                    std::optional<std::uint64_t> step) {
    ++verdict_.resumed;
    Setup setup = setup_;
    setup.protocol_faults = {};
    setup.budget_percent = static_cast<int>(mix64(seed, 2, 0) % 120);
    return finish_script(image, timeline, setup, script(), reference(), step);
  }

  const Setup setup_;
  const std::uint64_t draws_, max_images_;
  Verdict& verdict_;
  World world_;
  Engine* engine_ = nullptr;  // once it is open: from then on the store exists
  std::uint64_t step_ = 0;    // begun
};

std::uint64_t wanted_images() {
  const char* text = std::getenv("PENSTOCK_POWER_LOSS_IMAGES");
  const std::uint64_t wanted = text != nullptr ? std::strtoull(text, nullptr, 10) : 0;
  return wanted != 0 ? wanted : fewer_if_sanitized(10000, 4);
}

/// The setup of one run: budgets, levels and delays vary from seed to seed.
Setup setup_of(std::uint64_t number, std::uint32_t commit_every, const ProtocolFaults& faults) {
  Setup setup;
  setup.queue = Setup::Queue::kSim;
  setup.threads = 0;
  setup.commit_every = commit_every;
  setup.protocol_faults = faults;
  setup.budget_percent = std::vector<int>{0, 25, 100, 50}[number % 4];
  setup.faults.delay_ns_max = number % 3 == 0 ? 20'000'000 : 1'000'000;
  if (number % 5 == 4) {
    setup.level = Level::kStates;
    setup.lent = number % 2 == 0;
    setup.weights = setup.lent ? WeightType::kBf16 : WeightType::kF32;
  }
  return setup;
}

Verdict run_until(std::uint32_t commit_every, const ProtocolFaults& faults, std::uint64_t images,
                  bool stop_at_bad) {
  Verdict verdict;
  for (std::uint64_t number = 0; verdict.images < images; ++number) {
    const Setup setup = setup_of(number, commit_every, faults);
    Run(setup, number * 2 + commit_every, images, verdict).run();
    if (::testing::Test::HasFatalFailure() || (stop_at_bad && verdict.bad != 0)) break;
  }
  return verdict;
}

class EnginePowerLossTest : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(EnginePowerLossTest, LeavesACommittedStepOfTheUninterruptedRun) {
  const std::uint64_t images = std::max<std::uint64_t>(wanted_images() / 2, 1);
  const Verdict verdict = run_until(GetParam(), {}, images, false);
  EXPECT_EQ(verdict.bad, 0U) << verdict.first;
  EXPECT_EQ(verdict.images, images);
  EXPECT_GT(verdict.committed, verdict.images / 2) << "most images must be of a store in use";
  EXPECT_GT(verdict.resumed, verdict.images / 200);
  RecordProperty("images", static_cast<int>(verdict.images));
  RecordProperty("resumed", static_cast<int>(verdict.resumed));
}

INSTANTIATE_TEST_SUITE_P(CommitInterval, EnginePowerLossTest, ::testing::Values(1, 2),
                         ::testing::PrintToStringParamName());

constexpr std::uint64_t kImagesToFindAFault = 4000;

struct FaultCase {
  const char* name;
  bool ProtocolFaults::*fault;
};

class EngineProtocolFaultTest : public ::testing::TestWithParam<FaultCase> {};

TEST_P(EngineProtocolFaultTest, IsFound) {
  ProtocolFaults faults;
  faults.*GetParam().fault = true;
  for (const std::uint32_t interval : {1U, 2U}) {
    const Verdict verdict = run_until(interval, faults, kImagesToFindAFault, true);
    EXPECT_GT(verdict.bad, 0U) << "K = " << interval << ", " << verdict.images << " images";
    RecordProperty("found", verdict.first);
    RecordProperty("images", static_cast<int>(verdict.images));
    if (std::getenv("PENSTOCK_VERBOSE") != nullptr) {
      std::printf("K = %u, image %llu: %s\n", interval,
                  static_cast<unsigned long long>(verdict.images), verdict.first.c_str());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    EachRule, EngineProtocolFaultTest,
    ::testing::Values(FaultCase{"skip_data_flush", &ProtocolFaults::skip_data_flush},
                      FaultCase{"reuse_slot_early", &ProtocolFaults::reuse_slot_early},
                      FaultCase{"overwrite_base", &ProtocolFaults::overwrite_base},
                      FaultCase{"late_blob", &ProtocolFaults::late_blob},
                      FaultCase{"skip_directory_sync", &ProtocolFaults::skip_directory_sync},
                      FaultCase{"skip_finite_check", &ProtocolFaults::skip_finite_check},
                      FaultCase{"skip_sums", &ProtocolFaults::skip_sums}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace penstock::testing
