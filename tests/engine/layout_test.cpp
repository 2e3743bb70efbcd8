// A store says of what it was made, and a run with another model, rule or ladder is told the first
// difference. What it says may have been written by anybody.

#include "engine/layout.hpp"

#include "engine/harness.hpp"
#include "engine/simulated.hpp"
#include "io/store_format.hpp"

namespace penstock::testing {
namespace {

class LayoutTest : public ::testing::Test {
 protected:
  LayoutTest() {
    RunSetup setup;
    const EngineOptions options = engine_options(setup, model_, "nowhere");
    const Plan plan = preview_plan(options, model_).value();
    geometry_ = make_geometry(model_, plan, describe_model(options, model_, layout_, plan),
                              layout_hash(model_, layout_));
  }
  /// Replaces a piece of the description.
  StoreGeometry with(const std::string& from, const std::string& to) const {
    StoreGeometry changed = geometry_;
    const std::size_t at = changed.description.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    changed.description.replace(at, from.size(), to);
    return changed;
  }
  std::string difference(const StoreGeometry& stored, Errc code = Errc::kState) const {
    const Status status = compare_model(stored, "nowhere", model_, layout_);
    if (status) return "none";
    EXPECT_EQ(status.error().code, code) << status.error().message;
    return status.error().message;
  }
  std::string difference(const ModelSpec& model) const {
    const Layout layout = Layout::make(model).value();
    EXPECT_NE(layout_hash(model, layout), geometry_.layout_hash);
    const Status status = compare_model(geometry_, "nowhere", model, layout);
    return status ? "none" : status.error().message;
  }

  const ModelSpec model_ = tiny_model();
  const Layout layout_ = Layout::make(model_).value();
  StoreGeometry geometry_;
};

bool has(const std::string& text, std::initializer_list<const char*> parts) {
  return std::all_of(parts.begin(), parts.end(),
                     [&](const char* part) { return text.find(part) != std::string::npos; });
}

TEST_F(LayoutTest, TheSameModelIsAccepted) {
  EXPECT_EQ(difference(geometry_), "none");
}

// What the store keeps for its next manifest, and a copy's for its own, is the user's memory too.
TEST_F(LayoutTest, ThePlanCountsTheManifestsOfAllBlocks) {
  ModelSpec model = tiny_model();
  model.tensors[0].shape = {64, 1 << 20};
  const Layout layout = Layout::make(model).value();
  std::uint64_t of_small_blocks = 0;
  for (const std::uint32_t elements : {1U << 14, 1U << 16, 1U << 18, 0U}) {
    RunSetup setup;
    EngineOptions options = engine_options(setup, model, "nowhere");
    options.block_elements = elements;
    options.host_bytes = std::uint64_t{1} << 40;
    const PlanRequest request = make_plan_request(options, model, layout);
    const Plan plan = make_plan(request).value();
    const StoreGeometry geometry =
        make_geometry(model, plan, describe_model(options, model, layout, plan), 0);
    EXPECT_GE(request.table_bytes, 2 * manifest_bytes(geometry, 0) + 2048 * plan.blocks.size())
        << elements;
    if (elements == 1U << 14) of_small_blocks = request.table_bytes;
    EXPECT_LE(request.table_bytes, of_small_blocks);
  }
}

TEST_F(LayoutTest, AnotherRuleLadderOrTypeIsNamed) {
  std::string said = difference(with("\"adamw\"", "\"sgd\""));
  EXPECT_TRUE(has(said, {"rule", "\"sgd\"", "\"adamw\""})) << said;
  said = difference(with("\"ladder\":\"fp32\"", "\"ladder\":\"int8\""));
  EXPECT_TRUE(has(said, {"ladder", "\"int8\"", "\"fp32\""})) << said;
  StoreGeometry other = geometry_;
  other.sections[2].codec = "bf16";
  said = difference(other);
  EXPECT_TRUE(has(said, {"section 2", "\"m\"", "\"bf16\"", "\"f32\""})) << said;
  other = geometry_;
  other.sections.push_back(other.sections[0]);
  said = difference(other);
  EXPECT_TRUE(has(said, {"5 sections"})) << said;
}

TEST_F(LayoutTest, AnotherShapeNameRoleOrPlaceIsNamed) {
  ModelSpec other = model_;
  other.tensors[0].shape = {64, 37};  // as many elements
  EXPECT_TRUE(has(difference(other), {"wte", "shape", "[37,64]", "[64,37]"})) << difference(other);
  other = model_;
  other.groups[2] = "c";
  EXPECT_TRUE(has(difference(other), {"group 2", "\"b\"", "\"c\""})) << difference(other);
  other = model_;
  std::swap(other.tensors[1], other.tensors[2]);
  EXPECT_TRUE(has(difference(other), {"tensor 1", "a.norm", "a.w"})) << difference(other);
  other = model_;
  other.tensors[3].trainable = false;
  EXPECT_TRUE(has(difference(other), {"b.w", "trainable", "true", "false"})) << difference(other);
}

TEST_F(LayoutTest, ADescriptionThatItsHashDoesNotFitIsCorrupt) {
  StoreGeometry other = geometry_;
  other.layout_hash += 1;
  const std::string said = difference(other, Errc::kCorrupt);
  EXPECT_TRUE(has(said, {"layout hash"})) << said;
}

/// {"trainer": {"batch": [[[[...]]]]}}: as many levels as a description may have bytes for.
std::string deep_description() {
  constexpr std::size_t kLevels = 2'000'000;
  return R"({"trainer": {"batch": )" + std::string(kLevels, '[') + std::string(kLevels, ']') + "}}";
}

TEST(DescriptionTest, ADeepDescriptionDiffersAndTakesNoStack) {
  const Status same = compare_trainer(deep_description(), "nowhere", R"({"batch": [[8]]})");
  ASSERT_FALSE(same);
  EXPECT_EQ(same.error().code, Errc::kState);
  EXPECT_NE(same.error().message.find("batch"), std::string::npos) << same.error().message;
  EXPECT_LT(same.error().message.size(), 1000U);
}

TEST(DescriptionTest, ADeepDescriptionIsNotOurs) {
  const auto block = block_elements_of(deep_description(), "nowhere");
  ASSERT_FALSE(block);
  EXPECT_EQ(block.error().code, Errc::kCorrupt);
}

}  // namespace
}  // namespace penstock::testing
