// Losses, logits and gradients against golden files (double precision, PyTorch), and bit for bit
// against the model itself over everything that must not matter.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "base/allocation_count.hpp"
#include "train/model_case.hpp"

namespace penstock::test {
namespace {

constexpr double kF32Limit = 1e-4;

Outcome run(const ModelCase& which, const RunOptions& options) {
  auto outcome = outcome_of(which, options);
  EXPECT_TRUE(outcome) << outcome.error().message;
  return outcome ? std::move(outcome).value() : Outcome{};
}

void expect_same_bits(const Outcome& a, const Outcome& b, const std::string& what) {
  EXPECT_FALSE(a.gradients.empty());
  EXPECT_TRUE(std::isfinite(a.loss));
  EXPECT_EQ(a.loss, b.loss) << what;
  EXPECT_TRUE(a.logits == b.logits) << what;
  EXPECT_TRUE(a.gradients == b.gradients) << what;
}

double distance(const float* a, const float* b, std::size_t n) {
  double difference = 0.0, norm = 0.0;
  for (std::size_t i = 0; i < n; ++i) {
    const double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    difference += (x - y) * (x - y);
    norm += y * y;
  }
  return std::sqrt(difference / norm);
}

/// The largest distance of loss, logits and the gradient of each tensor.
double largest_distance(const ModelCase& which, const Outcome& ours, const Outcome& reference) {
  double worst = std::abs(ours.loss - reference.loss) / reference.loss;
  worst = std::max(worst,
                   distance(ours.logits.data(), reference.logits.data(), reference.logits.size()));
  std::size_t at = 0;
  for (const TensorSpec& tensor : make_model_spec(which.config).tensors) {
    const auto n = static_cast<std::size_t>(element_count(tensor));
    worst =
        std::max(worst, distance(ours.gradients.data() + at, reference.gradients.data() + at, n));
    at += n;
  }
  EXPECT_EQ(at, reference.gradients.size());
  return worst;
}

Outcome golden(const ModelCase& which) {
  std::ifstream file(std::string(PENSTOCK_GOLDEN_DIRECTORY) + "/" + which.name + ".f32",
                     std::ios::binary);
  EXPECT_TRUE(file.good()) << which.name;
  std::vector<float> values;
  float value = 0.0F;
  while (file.read(reinterpret_cast<char*>(&value), sizeof value)) values.push_back(value);
  const auto vocab = static_cast<std::ptrdiff_t>(which.config.vocab);
  if (static_cast<std::ptrdiff_t>(values.size()) <= vocab + 1) return {};
  return {static_cast<double>(values[0]),
          {values.begin() + 1, values.begin() + 1 + vocab},
          {values.begin() + 1 + vocab, values.end()}};
}

TEST(GoldenTest, ModelsAgreeWithTheReference) {
  int count = 0;
  for (const ModelCase& which : model_cases()) {
    if (!which.golden) continue;
    ++count;
    EXPECT_LE(largest_distance(which, run(which, {}), golden(which)), kF32Limit) << which.name;
  }
  EXPECT_EQ(count, 4);
}

// The comparison can fail: small changes of one formula are seen.
TEST(GoldenTest, OtherModelsDisagreeWithTheReference) {
  ModelCase changed = model_case("llama-golden");
  changed.config.rope_theta = 9000.0;
  EXPECT_GT(largest_distance(changed, run(changed, {}), golden(changed)), kF32Limit);
  changed = model_case("gpt2-golden");
  changed.config.norm_eps = 2e-4;
  EXPECT_GT(largest_distance(changed, run(changed, {}), golden(changed)), kF32Limit);
}

// bf16 operands carry 8 bits, 2^-9 relative per input, through some ten products in a chain.
TEST(TransformerTest, Bf16StaysNearF32) {
  for (const std::string name : {"llama", "llama-tied", "gpt2"}) {
    const ModelCase& which = model_case(name);
    RunOptions options;
    options.compute = ComputeMode::kBf16;
    EXPECT_LE(largest_distance(which, run(which, options), run(which, {})), 4e-2) << name;
  }
}

class BitIdentityTest : public ::testing::TestWithParam<std::tuple<std::string, ComputeMode>> {
 protected:
  [[nodiscard]] ModelCase which() const { return model_case(std::get<0>(GetParam())); }
  [[nodiscard]] RunOptions options() const {
    RunOptions options;
    options.compute = std::get<1>(GetParam());
    return options;
  }
};

TEST_P(BitIdentityTest, VerticalEqualsHorizontal) {
  for (const std::int64_t micro_batches : {1, 2, 4}) {
    ModelCase some = which();
    some.batch.micro_batches = micro_batches;
    RunOptions horizontal = options();
    horizontal.order = StepOrder::kHorizontal;
    expect_same_bits(run(some, options()), run(some, horizontal),
                     std::to_string(micro_batches) + " micro-batches");
  }
}

TEST_P(BitIdentityTest, ThreadsAndTaskOrderDoNotMatter) {
  const Outcome two = run(which(), options());
  for (const int threads : {1, 3}) {
    RunOptions other = options();
    other.threads = threads;
    expect_same_bits(two, run(which(), other), std::to_string(threads) + " threads");
  }
  for (const std::uint64_t seed : {std::uint64_t{1}, std::uint64_t{2}}) {
    RunOptions shuffled = options();
    shuffled.deterministic_executor = true;
    shuffled.seed = seed;
    expect_same_bits(two, run(which(), shuffled), "seed " + std::to_string(seed));
  }
}

TEST_P(BitIdentityTest, InstructionSetsDoNotMatter) {
  RunOptions scalar = options();
  scalar.isa = Isa::kScalar;
  const Outcome reference = run(which(), scalar);
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
    if (!isa_supported(isa)) {
      GTEST_SKIP() << isa_name(isa) << " is missing; a processor with it runs the rest";
    }
    RunOptions other = options();
    other.isa = isa;
    expect_same_bits(reference, run(which(), other), std::string(isa_name(isa)));
  }
}

TEST_P(BitIdentityTest, KeptActivationsDoNotMatter) {
  const Outcome none = run(which(), options());
  for (std::int64_t layers = 1; layers <= which().config.layers; ++layers) {
    RunOptions kept = options();
    kept.kept_layers = layers;
    expect_same_bits(none, run(which(), kept), std::to_string(layers) + " kept layers");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, BitIdentityTest,
    ::testing::Combine(::testing::Values("llama-4", "gpt2-4", "llama-blocks-golden"),
                       ::testing::Values(ComputeMode::kF32, ComputeMode::kBf16)),
    [](const auto& info) {
      std::string name = std::get<0>(info.param);
      for (char& c : name) c = c == '-' ? '_' : c;
      return name + (std::get<1>(info.param) == ComputeMode::kF32 ? "_F32" : "_Bf16");
    });

TEST(TransformerTest, EvaluationGivesTheLossOfTheStep) {
  auto made = ModelRun::make(model_case("gpt2-4"), {});
  ASSERT_TRUE(made);
  ModelRun& model = *made.value();
  const auto before = model.trainer().evaluate(model.batch());
  const auto step = model.step();
  const auto after = model.trainer().evaluate(model.batch());
  ASSERT_TRUE(before && step && after);
  EXPECT_EQ(before.value(), step.value().loss);
  EXPECT_EQ(after.value(), step.value().loss);
}

TEST(TransformerTest, RepeatsAStepToTheSameBits) {
  auto made = ModelRun::make(model_case("llama-4"), {});
  ASSERT_TRUE(made);
  ASSERT_TRUE(made.value()->step());
  const std::vector<float> first = made.value()->gradients();
  ASSERT_TRUE(made.value()->step());
  EXPECT_TRUE(first == made.value()->gradients());
}

TEST(TransformerTest, TakesFewerMicroBatchesThanBound) {
  ModelCase two = model_case("llama-4");
  two.batch.micro_batches = 2;
  auto made_two = ModelRun::make(two, {});
  auto made_four = ModelRun::make(model_case("llama-4"), {});
  ASSERT_TRUE(made_two && made_four);
  const TokenBatch batch = made_two.value()->batch();
  const auto a = made_two.value()->trainer().step(batch, {}, {});
  const auto b = made_four.value()->trainer().step(batch, {}, {});
  ASSERT_TRUE(a && b);
  EXPECT_EQ(a.value().loss, b.value().loss);
  EXPECT_TRUE(made_two.value()->gradients() == made_four.value()->gradients());
}

// Causality: the logits behind a prefix do not depend on what follows it.
TEST(TransformerTest, LogitsOfAPrefixIgnoreTheRest) {
  auto made = ModelRun::make(model_case("llama"), {});
  ASSERT_TRUE(made);
  ModelRun& model = *made.value();
  const auto vocab = static_cast<std::size_t>(model.which().config.vocab);
  std::vector<float> short_one(vocab), long_one(vocab);
  const auto tokens = model.batch().inputs;
  ASSERT_TRUE(model.trainer().next_token_logits(tokens.first(5), short_one));
  ASSERT_TRUE(model.trainer().next_token_logits(tokens.first(6), long_one));
  EXPECT_FALSE(short_one == long_one);
  std::vector<float> again(vocab);
  ASSERT_TRUE(model.trainer().next_token_logits(tokens.first(5), again));
  EXPECT_TRUE(short_one == again);
}

TEST(TransformerTest, VisitsGroupsInTheOrderOfTheModel) {
  for (const std::string name : {"llama-4", "gpt2-4"}) {
    auto made = ModelRun::make(model_case(name), {});
    ASSERT_TRUE(made);
    ASSERT_TRUE(made.value()->step());
    const ModelSpec& spec = made.value()->model().spec();
    std::vector<GroupId> order = spec.forward;
    order.insert(order.end(), spec.backward.begin(), spec.backward.end());
    EXPECT_EQ(made.value()->engine().acquired(), order);
    EXPECT_EQ(made.value()->engine().leases(), 0);
  }
}

TEST(TransformerTest, KeepsUsesOfATiedTensorApart) {
  auto made = ModelRun::make(model_case("gpt2-4"), {});
  ASSERT_TRUE(made);
  ASSERT_TRUE(made.value()->step());
  const auto embedding = made.value()->engine().contribution_of(0, 0);
  const auto logits = made.value()->engine().contribution_of(0, 1);
  ASSERT_FALSE(embedding.empty());
  ASSERT_EQ(embedding.size(), logits.size());
  // 84 tokens cannot name all of 100 rows, but every row has a logit.
  const auto width = static_cast<std::size_t>(made.value()->which().config.hidden);
  std::size_t empty_embedding_rows = 0, empty_logit_rows = 0;
  for (std::size_t row = 0; row < embedding.size() / width; ++row) {
    const auto none = [&](const std::vector<float>& sums) {
      return std::all_of(sums.begin() + static_cast<std::ptrdiff_t>(row * width),
                         sums.begin() + static_cast<std::ptrdiff_t>((row + 1) * width),
                         [](float value) { return value == 0.0F; });
    };
    empty_embedding_rows += none(embedding) ? 1U : 0U;
    empty_logit_rows += none(logits) ? 1U : 0U;
  }
  EXPECT_GT(empty_embedding_rows, 0U);
  EXPECT_EQ(empty_logit_rows, 0U);
}

// Counts operator new of the trainer's thread. oneDNN builds a map of four arguments for each
// product (5 allocations, freed at once) and the task library a few objects; we add none.
TEST(TransformerTest, AStepAllocatesNothingOfItsOwn) {
  for (const std::string name : {"llama", "gpt2"}) {
    auto made = ModelRun::make(model_case(name), {});
    ASSERT_TRUE(made);
    ASSERT_TRUE(made.value()->step());
    made.value()->engine().capture(false);
    const Matmul& matmul = made.value()->model().matmul();
    const std::uint64_t products = matmul.executed();
    const std::uint64_t allocations = penstock::testing::allocations_of_this_thread();
    ASSERT_TRUE(made.value()->step());
    EXPECT_LE(penstock::testing::allocations_of_this_thread() - allocations,
              5 * (matmul.executed() - products) + 8)
        << name;
  }
}

TEST(TransformerTest, RefusesAWorkspaceOneByteShort) {
  RunOptions options;
  options.lacking_bytes = 1;
  const auto made = ModelRun::make(model_case("llama-4"), options);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Errc::kNoMemory);
}

TEST(TransformerTest, CountsKeptLayersByTheirBytes) {
  auto made = ModelRun::make(model_case("llama"), {});
  ASSERT_TRUE(made);
  const Transformer& model = made.value()->model();
  const std::size_t layer = model.workspace_bytes(1) - model.workspace_bytes(0);
  EXPECT_EQ(model.kept_layers_within(0), 0);
  EXPECT_EQ(model.kept_layers_within(2 * layer - 1), 1);
  EXPECT_EQ(model.kept_layers_within(100 * layer), model.options().config.layers);
}

TEST(TransformerTest, RefusesTokensOutsideTheVocabularyBeforeTheStepBegins) {
  auto made = ModelRun::make(model_case("llama-4"), {});
  ASSERT_TRUE(made);
  std::vector<std::uint32_t> tokens(made.value()->batch().inputs.size(), 7U);
  std::vector<std::uint32_t> bad = tokens;
  bad.back() = 100;
  Trainer& trainer = made.value()->trainer();
  for (const TokenBatch& batch : {TokenBatch{bad, tokens}, TokenBatch{tokens, bad},
                                  TokenBatch{{tokens.data(), 20}, {tokens.data(), 20}},
                                  TokenBatch{tokens, {tokens.data(), 21}}, TokenBatch{}}) {
    const auto step = trainer.step(batch, {}, {});
    ASSERT_FALSE(step);
    EXPECT_EQ(step.error().code, Errc::kArgument);
  }
  EXPECT_EQ(made.value()->engine().step(), 0U);
  EXPECT_TRUE(made.value()->step());  // nothing was begun
}

}  // namespace
}  // namespace penstock::test
