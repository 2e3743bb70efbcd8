#include "train/shape.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "train/model_case.hpp"

namespace penstock {
namespace {

using test::model_case;

const TensorSpec* find(const ModelSpec& spec, const std::string& name) {
  for (const TensorSpec& tensor : spec.tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

TEST(ShapeTest, ListsTheTensorsOfALlamaModel) {
  const ModelSpec spec = make_model_spec(model_case("llama").config);
  EXPECT_EQ(spec.groups,
            (std::vector<std::string>{"embed", "layer.0", "layer.1", "layer.2", "head"}));
  EXPECT_EQ(spec.tensors.size(), 1U + 3 * 9 + 2);
  const TensorSpec* const k = find(spec, "model.layers.1.self_attn.k_proj.weight");
  ASSERT_NE(k, nullptr);
  EXPECT_EQ(k->shape, (std::vector<std::int64_t>{2 * 10, 64}));
  EXPECT_EQ(k->group, 2U);
  ASSERT_NE(find(spec, "lm_head.weight"), nullptr);
  EXPECT_EQ(spec.forward, (std::vector<GroupId>{0, 1, 2, 3, 4}));
  EXPECT_EQ(spec.backward, (std::vector<GroupId>{4, 3, 2, 1, 0}));
}

TEST(ShapeTest, VisitsATiedEmbeddingTwice) {
  const ModelSpec spec = make_model_spec(model_case("gpt2").config);
  EXPECT_EQ(spec.forward, (std::vector<GroupId>{0, 1, 2, 3, 4, 0}));
  EXPECT_EQ(spec.backward, (std::vector<GroupId>{0, 4, 3, 2, 1, 0}));
  EXPECT_EQ(find(spec, "transformer.wte.weight")->contributions, 2U);
  EXPECT_EQ(find(spec, "transformer.wpe.weight")->contributions, 1U);
  EXPECT_EQ(find(spec, "lm_head.weight"), nullptr);
  EXPECT_EQ(find(spec, "transformer.h.0.attn.c_attn.weight")->shape,
            (std::vector<std::int64_t>{64, 192}));
}

TEST(ShapeTest, StartsResidualProjectionsSmallerAndDecaysMatricesOnly) {
  for (const std::string name : {"llama", "gpt2"}) {
    const ModelConfig& config = model_case(name).config;
    const ModelSpec spec = make_model_spec(config);
    std::set<std::string> names;
    for (const TensorSpec& tensor : spec.tensors) {
      EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name;
      EXPECT_EQ(tensor.decay, tensor.shape.size() >= 2) << tensor.name;
      const bool residual = tensor.name.ends_with("o_proj.weight") ||
                            tensor.name.ends_with("down_proj.weight") ||
                            tensor.name.ends_with("c_proj.weight");
      const bool bias = tensor.name.ends_with(".bias");
      if (tensor.shape.size() >= 2) {
        EXPECT_EQ(tensor.init.kind, Init::Kind::kNormal);
        const double layers = residual ? 2.0 * static_cast<double>(config.layers) : 1.0;
        EXPECT_NEAR(static_cast<double>(tensor.init.deviation), 0.02 / std::sqrt(layers), 1e-9)
            << tensor.name;
      } else {
        EXPECT_EQ(tensor.init.kind, bias ? Init::Kind::kZeros : Init::Kind::kConstant);
        EXPECT_EQ(tensor.init.constant, bias ? 0.0F : 1.0F) << tensor.name;
      }
    }
  }
}

TEST(ShapeTest, IndexAgreesWithTheNames) {
  for (const test::ModelCase& which : test::model_cases()) {
    const ModelSpec spec = make_model_spec(which.config);
    const ModelIndex index = make_model_index(which.config);
    const bool llama = which.config.family == ModelFamily::kLlama;
    const std::string at = llama ? "model." : "transformer.";
    const auto name = [&](TensorId id) { return spec.tensors.at(id).name; };
    EXPECT_EQ(name(index.token_embedding), at + (llama ? "embed_tokens.weight" : "wte.weight"));
    EXPECT_EQ(name(index.final_norm), at + (llama ? "norm.weight" : "ln_f.weight"));
    EXPECT_EQ(index.logits == index.token_embedding, which.config.tie_embeddings);
    EXPECT_EQ(spec.tensors[index.final_norm].group, index.head_group);
    EXPECT_EQ(spec.groups.at(index.head_group), "head");
    const TensorId second = index.first_layer + index.layer_tensors;
    if (which.config.layers < 2) continue;
    EXPECT_EQ(name(second), at + (llama ? "layers.1.input_layernorm.weight" : "h.1.ln_1.weight"));
    EXPECT_EQ(name(second + (llama ? std::uint32_t{kLlamaDown} : std::uint32_t{kGpt2Down})),
              at + (llama ? "layers.1.mlp.down_proj.weight" : "h.1.mlp.c_proj.weight"));
  }
}

TEST(ShapeTest, RefusesContradictions) {
  const ModelConfig good = model_case("llama").config;
  const BatchShape batch{1, 1, 8};
  EXPECT_TRUE(check_shape(good, batch));
  const auto refused = [&](auto change) {
    ModelConfig config = good;
    BatchShape shape = batch;
    change(config, shape);
    const Status status = check_shape(config, shape);
    return !status && status.error().code == Errc::kArgument;
  };
  EXPECT_TRUE(refused([](ModelConfig& c, BatchShape&) { c.kv_heads = 4; }));
  EXPECT_TRUE(refused([](ModelConfig& c, BatchShape&) { c.head_dim = 7; }));
  EXPECT_TRUE(refused([](ModelConfig& c, BatchShape&) { c.hidden = 0; }));
  EXPECT_TRUE(refused([](ModelConfig& c, BatchShape&) { c.family = ModelFamily::kGpt2; }));
  EXPECT_TRUE(refused([](ModelConfig& c, BatchShape& b) { b.seq = c.max_positions + 1; }));
  EXPECT_TRUE(refused([](ModelConfig&, BatchShape& b) { b.micro = 0; }));
}

}  // namespace
}  // namespace penstock
