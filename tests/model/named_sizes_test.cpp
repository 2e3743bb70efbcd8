#include "model/named_sizes.hpp"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include <gtest/gtest.h>

namespace penstock {
namespace {

std::uint64_t parameters(std::string_view name, std::int64_t vocab, std::string_view family = "") {
  const auto config = named_model(name, family, vocab);
  EXPECT_TRUE(config) << name;
  if (!config) return 0;
  const auto count = parameter_count(config.value());
  EXPECT_TRUE(count);
  return count ? count.value() : 0;
}

TEST(NamedSizesTest, HoldWhatTheirNamesPromise) {
  EXPECT_NEAR(static_cast<double>(parameters("tiny", 256)), 25e6, 0.02 * 25e6);
  EXPECT_NEAR(static_cast<double>(parameters("124M", 50257)), 124e6, 0.01 * 124e6);
  EXPECT_NEAR(static_cast<double>(parameters("1B", 50257)), 1e9, 0.03 * 1e9);
  EXPECT_NEAR(static_cast<double>(parameters("4B", 50257)), 4e9, 0.03 * 4e9);
  EXPECT_NEAR(static_cast<double>(parameters("tiny-gpt2", 256)), 25e6, 0.03 * 25e6);
  EXPECT_NEAR(static_cast<double>(parameters("1B-gpt2", 50257)), 1e9, 0.03 * 1e9);
  EXPECT_NEAR(static_cast<double>(parameters("4B-gpt2", 50257)), 4e9, 0.03 * 4e9);
  // The published count of the small GPT-2.
  EXPECT_EQ(parameters("124M-gpt2", 50257), 124'439'808U);
}

// Method: the tensors of nano written out by hand.
TEST(NamedSizesTest, CountEveryTensor) {
  const std::uint64_t attention = 64 * 64 + 2 * 64 * 32 + 64 * 64;
  const std::uint64_t layer = 2 * 64 + attention + 3 * 64 * 176;
  EXPECT_EQ(parameters("nano", 256), 2 * 256 * 64 + 4 * layer + 64);
  const std::uint64_t gpt2_layer =
      4 * 64 + (64 * 192 + 192) + (64 * 64 + 64) + (64 * 256 + 256) + (256 * 64 + 64);
  EXPECT_EQ(parameters("nano-gpt2", 256), 256 * 64 + 1024 * 64 + 4 * gpt2_layer + 2 * 64);
  ModelConfig tied = named_model("nano", "", 256).value();
  tied.tie_embeddings = true;
  EXPECT_EQ(parameter_count(tied).value(), parameters("nano", 256) - 256 * 64);
}

TEST(NamedSizesTest, KeepTheRulesOfModelConfig) {
  for (const std::string_view size : size_names()) {
    for (const std::string_view family : {"llama", "gpt2"}) {
      const ModelConfig config = named_model(size, family, 300).value();
      EXPECT_EQ(config.vocab, 300);
      EXPECT_EQ(config.heads % config.kv_heads, 0);
      EXPECT_EQ(config.head_dim % 2, 0);
      EXPECT_EQ(config.heads * config.head_dim, config.hidden);
      EXPECT_EQ(config.family == ModelFamily::kGpt2, family == "gpt2");
      if (family == "gpt2") {
        EXPECT_TRUE(config.tie_embeddings);
        EXPECT_EQ(config.kv_heads, config.heads);
      }
    }
  }
}

TEST(NamedSizesTest, TakeTheFamilyFromNameOrFlag) {
  EXPECT_EQ(named_model("nano-gpt2", "", 256).value().family, ModelFamily::kGpt2);
  EXPECT_EQ(named_model("nano", "gpt2", 256).value().family, ModelFamily::kGpt2);
  EXPECT_EQ(named_model("nano-gpt2", "gpt2", 256).value().name, "nano-gpt2");
  EXPECT_EQ(named_model("nano-llama", "", 256).value().name, "nano");
  EXPECT_NE(named_model("nano-gpt2", "llama", 256).error().message.find("contradict"),
            std::string::npos);
  EXPECT_NE(named_model("nano", "bert", 256).error().message.find("llama or gpt2"),
            std::string::npos);
}

TEST(NamedSizesTest, RefuseUnknownNamesWithAHint) {
  EXPECT_NE(named_model("tiney", "", 256).error().message.find("did you mean \"tiny\""),
            std::string::npos);
  EXPECT_NE(named_model("124m", "", 256).error().message.find("did you mean \"124M\""),
            std::string::npos);
  EXPECT_NE(named_model("nano-gtp2", "", 256).error().message.find("did you mean \"nano-gpt2\""),
            std::string::npos);
  EXPECT_NE(named_model("mistral-7b", "", 256).error().message.find("known sizes are"),
            std::string::npos);
  EXPECT_FALSE(named_model("nano", "", 0));
  EXPECT_FALSE(named_model("", "", 256));
}

TEST(NamedSizesTest, RefuseProductsThatOverflow) {
  ModelConfig config = named_model("4B", "", 50257).value();
  config.layers = config.hidden = config.intermediate = std::int64_t{1} << 30;
  EXPECT_FALSE(parameter_count(config));
  config.layers = std::numeric_limits<std::int64_t>::max();
  EXPECT_FALSE(parameter_count(config));
  config.layers = -1;
  EXPECT_FALSE(parameter_count(config));
}

TEST(ChooseModelTest, ReadsFilesAndChecksThemAgainstTheData) {
  const auto directory = std::filesystem::temp_directory_path() / "penstock_choose_model_test";
  std::filesystem::create_directories(directory);
  std::ofstream(directory / "config.json")
      << R"({"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 300})";
  const std::string path = directory.string();
  ASSERT_TRUE(choose_model(path, "", 256));
  EXPECT_EQ(choose_model(path, "", 256).value().config.vocab, 300);
  EXPECT_TRUE(choose_model(path + "/config.json", "gpt2", 300));
  EXPECT_NE(choose_model(path, "", 301).error().message.find("vocabulary of 301"),
            std::string::npos);
  EXPECT_NE(choose_model(path, "llama", 256).error().message.find("contradicts"),
            std::string::npos);
  EXPECT_NE(choose_model(path + "/none.json", "", 256).error().message.find("No such file"),
            std::string::npos);
  EXPECT_EQ(choose_model("nano", "", 256).value().config.name, "nano");
  EXPECT_FALSE(choose_model("", "", 256));
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace penstock
