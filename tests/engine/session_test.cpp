// Every misuse of a session gets its code and a sentence, and leaves the engine usable.

#include "engine/simulated.hpp"
#include "io/store_impl.hpp"

namespace penstock::testing {
namespace {

void expect_parts(const std::string& message, std::initializer_list<const char*> parts) {
  for (const char* part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << "no \"" << part << "\" in: " << message;
  }
}

/// The call failed with the code, and its message has every part.
template <class T>
void expect_refused(const Result<T>& result, Errc code, std::initializer_list<const char*> parts) {
  ASSERT_FALSE(result.ok()) << "accepted";
  EXPECT_EQ(result.error().code, code) << result.error().message;
  expect_parts(result.error().message, parts);
}

class SessionTest : public ::testing::Test {
 protected:
  void open(Level level = Level::kWeights) {
    setup_.queue = RunSetup::Queue::kSim;
    setup_.threads = 0;
    setup_.level = level;
    if (level == Level::kStates) setup_.weights = WeightType::kF32;
    model_ = tiny_model(level);
    attach_weights(model_, setup_, weights_);
    world_.emplace(setup_);
    options_ = engine_options(setup_, model_, kSimStore);
    reopen();
  }
  void reopen() {
    engine_.reset();
    auto made = make_engine(world_->parts(setup_), options_, model_);
    ASSERT_TRUE(made) << made.error().message;
    engine_ = std::move(made).value();
    runner_.emplace(*engine_, model_, setup_, weights_);
    values_.assign(4096, 0.25F);
  }
  Status give(TensorId tensor, std::uint32_t k = 0, std::uint32_t n = 1) {
    return engine_->gradient(tensor, values_.data(), WeightType::kF32, k, n);
  }
  /// Breaks one copy of the manifest of a commit, so that its hash no longer fits.
  void damage_manifest(std::uint64_t sequence, char copy) {
    const std::string path =
        std::string(kSimStore) + "/" + manifest_name({"", sequence, copy, false});
    ASSERT_TRUE(world_->sim->flip_bit(path, 300 * 8));
  }
  /// The warnings of opening the store again.
  std::vector<std::string> warnings_of_reopening() {
    std::vector<std::string> warnings;
    world_->logger =
        Logger(LogLevel::kWarning, [&](LogLevel, const char*, int, std::string_view message) {
          warnings.emplace_back(message);
        });
    reopen();
    world_->logger = Logger();
    return warnings;
  }
  Result<std::unique_ptr<Engine>> again(const EngineOptions& options, const ModelSpec& model) {
    return make_engine(world_->parts(setup_), options, model);
  }
  /// The step that was being misused is dropped; the whole script then gives the plain loop's bits.
  void expect_still_exact(bool in_step) {
    ASSERT_TRUE(engine_->error().ok()) << engine_->error().error().message;
    engine_.reset();
    ASSERT_TRUE(in_step);
    const Script script = default_script();
    const Reference reference(tiny_model(), script, setup_.seed);
    EXPECT_EQ(finish_script(*world_->sim, world_->timeline, setup_, script, reference), "");
  }

  RunSetup setup_;
  ModelSpec model_;
  TrainerWeights weights_;
  std::optional<World> world_;
  EngineOptions options_;
  std::unique_ptr<Engine> engine_;
  std::optional<Runner> runner_;
  std::vector<float> values_;
};

TEST_F(SessionTest, CallsOutOfOrderAreRefusedAndLeaveTheStepIntact) {
  open();
  expect_refused(engine_->step_end(step_input(1, 0.5), {}), Errc::kState, {"no step is under way"});
  expect_refused(engine_->step_skip({}), Errc::kState, {"no step is under way"});
  expect_refused(give(1), Errc::kState, {"a.norm", "step_begin"});
  expect_refused(engine_->eval_end(), Errc::kState, {"no evaluation"});
  ASSERT_TRUE(engine_->step_begin());
  expect_refused(engine_->step_begin(), Errc::kState, {"the last step has not ended"});
  expect_refused(engine_->eval_begin(), Errc::kState, {"under way"});
  expect_refused(engine_->acquire(4), Errc::kArgument, {"no group 4"});
  expect_refused(engine_->wait(9, 0), Errc::kArgument, {"tensor 9", "5 tensors"});
  expect_refused(engine_->wait(0, 1), Errc::kArgument, {"update 1", "0 updates"});
  expect_refused(engine_->query(0, 1), Errc::kArgument, {"update 1"});
  expect_refused(engine_->export_master(9, values_.data()), Errc::kArgument, {"no tensor 9"});
  expect_refused(engine_->export_master(0, nullptr), Errc::kArgument, {"export"});
  ASSERT_TRUE(engine_->step_skip({}));
  ASSERT_TRUE(engine_->eval_begin());
  expect_refused(engine_->step_begin(), Errc::kState, {"evaluation"});
  expect_refused(engine_->eval_begin(), Errc::kState, {"evaluation"});
  expect_refused(give(1), Errc::kState, {"a.norm"});
  ASSERT_TRUE(engine_->eval_end());
  expect_still_exact(true);  // step 1 was never committed: the next opening begins anew
}

TEST_F(SessionTest, GradientsOutOfOrderAreRefusedAndLeaveTheStepIntact) {
  open();
  ASSERT_TRUE(engine_->step_begin());
  expect_refused(give(1), Errc::kState, {"a.norm", "not acquired", "old weights"});
  for (const GroupId group : model_.forward) ASSERT_TRUE(engine_->acquire(group));
  expect_refused(give(9), Errc::kArgument, {"no tensor 9"});
  expect_refused(engine_->gradient(1, nullptr, WeightType::kF32), Errc::kArgument, {"a.norm"});
  expect_refused(engine_->gradient(1, values_.data(), WeightType::kNone), Errc::kArgument,
                 {"a.norm", "bf16"});
  expect_refused(give(1, 0, 2), Errc::kArgument, {"contribution 0 of 2", "registered with 1"});
  expect_refused(give(0, 2, 2), Errc::kArgument, {"contribution 2 of 2"});
  expect_refused(give(0), Errc::kArgument, {"contribution 0 of 1", "registered with 2"});
  ASSERT_TRUE(give(0, 1, 2));
  expect_refused(give(0, 1, 2), Errc::kState, {"wte", "twice"});
  expect_refused(engine_->step_end(step_input(1, 0.5), blob_of(1)), Errc::kState,
                 {"only some", "wte"});
  ASSERT_TRUE(give(1));
  expect_refused(give(1), Errc::kState, {"a.norm", "twice"});
  {
    auto lease = engine_->acquire(2);
    ASSERT_TRUE(lease);
    expect_refused(engine_->step_end(step_input(1, 0.5), blob_of(1)), Errc::kState,
                   {"\"b\"", "leased", "release"});
    expect_refused(engine_->step_skip(blob_of(1)), Errc::kState, {"leased"});
  }
  expect_refused(engine_->step_end(step_input(1, 0.5), std::vector<std::byte>((1 << 20) + 1)),
                 Errc::kArgument, {"1048577 bytes", "1048576"});
  ASSERT_TRUE(engine_->step_skip(blob_of(1)));
  EXPECT_EQ(engine_->step(), 1U);
  EXPECT_EQ(engine_->updates(), 0U);
  ASSERT_TRUE(engine_->step_begin());
  expect_refused(give(1), Errc::kState, {"not acquired in this step"});
  expect_still_exact(true);
}

TEST_F(SessionTest, ALevel1GradientFromOldWeightsIsRefused) {
  open(Level::kStates);
  ASSERT_TRUE(runner_->run_step(1, default_script()));
  ASSERT_TRUE(engine_->step_begin());
  expect_refused(engine_->acquire(0), Errc::kState, {"level 1"});
  expect_refused(give(2), Errc::kState, {"a.w", "old weights", "wait for update 1"});
  ASSERT_TRUE(engine_->wait(2, 1));
  expect_refused(give(3), Errc::kState, {"b.w", "old weights"});
  EXPECT_TRUE(give(2));
  bool is_there = false;
  for (int i = 0; i < 10000 && !is_there; ++i) {
    auto known = engine_->query(3, 1);
    ASSERT_TRUE(known);
    is_there = known.value();
    if (!is_there) world_->timeline.run_one();
  }
  ASSERT_TRUE(is_there) << "updates are done without a wait";
  EXPECT_TRUE(give(3)) << "a successful query is as good as a wait";
  ASSERT_TRUE(engine_->step_skip({}));
  EXPECT_TRUE(engine_->error().ok());
}

TEST_F(SessionTest, ABudgetOneByteBelowTheMinimumIsRefusedWithFigures) {
  open();
  engine_.reset();
  auto minimum = minimum_host_bytes(options_, model_);
  ASSERT_TRUE(minimum);
  EngineOptions options = options_;
  options.directory = "/sim/small";
  options.host_bytes = minimum.value() - 1;
  const std::string figure = std::to_string(minimum.value());
  expect_refused(again(options, model_), Errc::kNoMemory,
                 {"short by", "smallest budget", figure.c_str()});
  auto exists = world_->sim->exists(options.directory);
  ASSERT_TRUE(exists);
  EXPECT_FALSE(exists.value()) << "nothing may be written";
  options.host_bytes = minimum.value();
  EXPECT_TRUE(again(options, model_));
}

TEST_F(SessionTest, AnotherModelOrOtherValuesAreNamedAtResume) {
  open();
  options_.description_json = R"({"lr":0.1,"betas":[0.9,0.95],"note":"x"})";
  options_.directory = "/sim/described";
  reopen();
  ASSERT_TRUE(runner_->run_step(1, default_script()));
  ASSERT_TRUE(engine_->flush());
  engine_.reset();
  EngineOptions options = options_;
  options.mode = OpenMode::kResume;

  ModelSpec other = model_;
  other.tensors[2].shape = {64, 41};
  expect_refused(again(options, other), Errc::kState, {"a.w", "[64,40]", "[64,41]"});
  other = model_;
  other.tensors[3].name = "b.renamed";
  expect_refused(again(options, other), Errc::kState, {"b.w", "b.renamed"});
  other = model_;
  other.tensors.pop_back();
  other.groups.pop_back();
  other.forward = {0, 1, 2, 0};
  other.backward = {0, 2, 1, 0};
  expect_refused(again(options, other), Errc::kState, {"5 tensors"});
  other = model_;
  TensorSpec more = model_.tensors[4];
  more.name = "head.more";
  other.tensors.push_back(more);
  expect_refused(again(options, other), Errc::kState, {"head.more"});

  EngineOptions changed = options;
  changed.description_json = R"({"lr":0.2,"betas":[0.9,0.99],"note":"x"})";
  auto refused = again(changed, model_);
  expect_refused(refused, Errc::kState, {"lr", "0.1", "0.2", "betas", "0.99"});
  EXPECT_EQ(refused.error().message.find("note"), std::string::npos) << "note is the same";

  changed = options;
  changed.mode = OpenMode::kCreate;
  expect_refused(again(changed, model_), Errc::kState, {"/sim/described", "already holds a store"});
  changed = options;
  changed.directory = "/sim/nothing";
  expect_refused(again(changed, model_), Errc::kState, {"/sim/nothing", "no committed store"});

  auto resumed = again(options, model_);
  ASSERT_TRUE(resumed) << resumed.error().message;
  EXPECT_EQ(resumed.value()->step(), 1U);
}

TEST_F(SessionTest, AStoreInUseIsRefusedAndItsOwnerGoesOn) {
  open();
  auto second = again(options_, model_);
  expect_refused(second, Errc::kState, {"/sim/store", "in use"});
  ASSERT_TRUE(runner_->run_step(1, default_script()));
  ASSERT_TRUE(engine_->flush());
  EXPECT_EQ(engine_->committed_step(), 1U);
  engine_.reset();
  auto third = again(options_, model_);
  ASSERT_TRUE(third) << third.error().message;
  EXPECT_EQ(third.value()->step(), 1U);
}

TEST_F(SessionTest, AnOlderCommitIsTakenOnlyWithAWarningThatNamesBoth) {
  open();
  const Script script = default_script();
  for (const std::uint64_t step : {1U, 2U}) {
    ASSERT_TRUE(runner_->run_step(step, script));
    ASSERT_TRUE(engine_->flush());
  }
  engine_.reset();
  EXPECT_EQ(warnings_of_reopening(), std::vector<std::string>());
  EXPECT_EQ(engine_->step(), 2U);
  engine_.reset();

  damage_manifest(2, 'a');
  std::vector<std::string> warnings = warnings_of_reopening();
  ASSERT_EQ(warnings.size(), 1U);
  expect_parts(warnings[0], {kSimStore, "manifest", "the other copy was used"});
  EXPECT_EQ(engine_->step(), 2U);
  engine_.reset();

  damage_manifest(2, 'b');
  warnings = warnings_of_reopening();
  ASSERT_EQ(warnings.size(), 1U);
  expect_parts(warnings[0],
               {kSimStore, "no manifest of commit 2 is usable", "step 1 was used instead"});
  EXPECT_EQ(engine_->committed_step(), 1U);
  engine_.reset();
  const Reference reference(tiny_model(), script, setup_.seed);
  EXPECT_EQ(finish_script(*world_->sim, world_->timeline, setup_, script, reference, 1), "");
}

TEST_F(SessionTest, ModelsThatMakeNoSenseAreRefused) {
  open();
  engine_.reset();
  EngineOptions options = options_;
  options.directory = "/sim/wrong";
  const auto refused = [&](auto change, std::initializer_list<const char*> parts) {
    ModelSpec model = model_;
    change(model);
    expect_refused(again(options, model), Errc::kArgument, parts);
  };
  refused([](ModelSpec& m) { m.tensors[1].name = "wte"; }, {"two tensors", "wte"});
  refused([](ModelSpec& m) { m.tensors[1].name.clear(); }, {"name"});
  refused([](ModelSpec& m) { m.tensors[1].shape.clear(); }, {"a.norm", "dimensions"});
  refused([](ModelSpec& m) { m.tensors[1].shape = {0}; }, {"a.norm", "not positive"});
  refused([](ModelSpec& m) { m.tensors[1].shape = {1LL << 40, 1LL << 40}; }, {"a.norm", "2^48"});
  refused([](ModelSpec& m) { m.tensors[1].group = 7; }, {"a.norm", "group 7"});
  refused([](ModelSpec& m) { m.tensors[1].contributions = 0; }, {"a.norm", "contributions"});
  refused([](ModelSpec& m) { m.tensors[1].trainable = false; }, {"a.w", "frozen"});
  refused([](ModelSpec& m) { m.forward = {0, 9}; }, {"group 9"});
  refused([](ModelSpec& m) { m.groups.push_back("empty"); }, {"no elements"});
}

}  // namespace
}  // namespace penstock::testing
