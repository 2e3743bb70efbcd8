#include "cli/train_flags.hpp"

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace penstock {
namespace {

template <class Options, class Declared>
Result<Options> parse(std::vector<std::string> arguments) {
  CLI::App app;
  Flags flags(app);
  Declared declared;
  declared.declare(flags);
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes vectors from the back
  app.parse(arguments);
  PENSTOCK_CHECK_OK(flags.convert());
  return declared.finish();
}

Result<TrainOptions> parse_train(const std::vector<std::string>& arguments) {
  return parse<TrainOptions, TrainFlags>(arguments);
}

std::string error_of(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"--data", "x", "--store", "s"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const auto options = parse_train(arguments);
  EXPECT_FALSE(options);
  if (options) return "";
  EXPECT_EQ(options.error().code, Errc::kArgument);
  EXPECT_EQ(options.error().message.find('\n'), std::string::npos);
  return options.error().message;
}

TEST(TrainFlagsTest, HasDefaults) {
  const auto options = parse_train({"--data", "x", "--store", "s"});
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options.value().model, "tiny");
  EXPECT_EQ(options.value().family, "");
  EXPECT_EQ(options.value().batch, 8U);
  EXPECT_EQ(options.value().micro, 8U);
  EXPECT_EQ(options.value().warmup, 100U);
  EXPECT_EQ(options.value().clip, 1.0);
  EXPECT_EQ(options.value().commit_every, 0U);
  EXPECT_EQ(options.value().resources.ram, RamBudget::kAll);
  EXPECT_EQ(options.value().resources.threads, 0U);
  EXPECT_FALSE(options.value().resources.fp32);
  EXPECT_FALSE(options.value().resume);
}

TEST(TrainFlagsTest, TakesEveryFlag) {
  const auto options = parse_train({"--model",
                                    "nano",
                                    "--family",
                                    "gpt2",
                                    "--data",
                                    "d",
                                    "--vocab",
                                    "1000",
                                    "--data-type",
                                    "u32",
                                    "--store",
                                    "s",
                                    "--ram",
                                    "60MiB",
                                    "--steps",
                                    "7",
                                    "--batch",
                                    "12",
                                    "--micro",
                                    "3",
                                    "--seq",
                                    "64",
                                    "--lr",
                                    "3e-4",
                                    "--clip",
                                    "0.5",
                                    "--seed",
                                    "18446744073709551615",
                                    "--commit-every",
                                    "5",
                                    "--resume",
                                    "--threads",
                                    "2",
                                    "--warmup",
                                    "0",
                                    "--eval-every",
                                    "9",
                                    "--eval-tokens",
                                    "0",
                                    "--compute",
                                    "fp32",
                                    "--queue",
                                    "threads",
                                    "--block",
                                    "65536"});
  ASSERT_TRUE(options) << options.error().message;
  const TrainOptions& o = options.value();
  EXPECT_EQ(o.model, "nano");
  EXPECT_EQ(o.family, "gpt2");
  EXPECT_EQ(o.data.path, "d");
  EXPECT_EQ(o.data.vocab, 1000U);
  EXPECT_EQ(o.data.type, DataType::kU32);
  EXPECT_EQ(o.resources.store, "s");
  EXPECT_EQ(o.resources.ram, RamBudget::kBytes);
  EXPECT_EQ(o.resources.ram_bytes, 60U << 20);
  EXPECT_EQ(o.steps, 7U);
  EXPECT_EQ(o.batch, 12U);
  EXPECT_EQ(o.micro, 3U);
  EXPECT_EQ(o.seq, 64U);
  EXPECT_EQ(o.lr, 3e-4);
  EXPECT_EQ(o.clip, 0.5);
  EXPECT_EQ(o.seed, ~std::uint64_t{0});
  EXPECT_EQ(o.commit_every, 5U);
  EXPECT_TRUE(o.resume);
  EXPECT_EQ(o.resources.threads, 2U);
  EXPECT_EQ(o.warmup, 0U);
  EXPECT_EQ(o.eval_every, 9U);
  EXPECT_EQ(o.eval_tokens, 0U);
  EXPECT_TRUE(o.resources.fp32);
  EXPECT_EQ(o.resources.queue, QueueBackend::kThreads);
  EXPECT_EQ(o.block_elements, 65536U);
  EXPECT_EQ(parse_train({"--data", "x", "--store", "s", "--ram", "min"}).value().resources.ram,
            RamBudget::kMinimum);
  EXPECT_TRUE(parse_train({"--data", "x", "--store", "s", "--scratch"}).value().scratch);
  EXPECT_EQ(parse_train({"--data", "x", "--store", "s", "--config", "c"}).value().model, "./c");
}

TEST(TrainFlagsTest, TakesDrivesAndCheckpoints) {
  const auto drives = parse_train({"--data", "x", "--store", "s", "--store", "t", "--store=u"});
  ASSERT_TRUE(drives) << drives.error().message;
  EXPECT_EQ(drives.value().resources.store, "s");
  EXPECT_EQ(drives.value().resources.further_stores, (std::vector<std::string>{"t", "u"}));
  const auto kept = parse_train({"--data", "x", "--store", "s", "--checkpoint-every", "10"});
  EXPECT_EQ(kept.value().checkpoint_every, 10U);
  EXPECT_EQ(kept.value().keep, 1U);
  EXPECT_EQ(parse_train({"--data", "x", "--store", "s", "--keep", "3"}).value().keep, 3U);
  EXPECT_FALSE(parse_train({"--data", "x", "--store", "s", "--keep", "65"}));
  EXPECT_FALSE(parse_train({"--data", "x", "--store", "s", "--keep", "3", "--scratch"}));
  EXPECT_FALSE(parse_train({"--data", "x", "--store", "s", "--store", ""}));
}

TEST(TrainFlagsTest, TakesSharesOfDrives) {
  const auto options =
      parse_train({"--data", "x", "--store", "a", "--store", "b", "--shares", "4,1"});
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options.value().drive_shares, (std::vector<std::uint32_t>{4, 1}));
  for (const char* wrong : {"", "0", "4,", ",4", "4;1", "-1", "257", "4,x", "1.5"}) {
    EXPECT_NE(error_of({"--shares", wrong}).find("from 1 to 256, such as 4,1"), std::string::npos)
        << wrong;
  }
  EXPECT_NE(error_of({"--shares", "4,1"}).find("2 numbers for 1 --store"), std::string::npos);
}

TEST(TrainFlagsTest, RefusesWrongValues) {
  EXPECT_NE(error_of({"--steps", "0"}).find("--steps \"0\" is not a whole number"),
            std::string::npos);
  EXPECT_NE(error_of({"--steps", "1e3"}).find("--steps"), std::string::npos);
  EXPECT_NE(error_of({"--steps", "-5"}).find("--steps"), std::string::npos);
  EXPECT_NE(error_of({"--steps", "99999999999999999999"}).find("--steps"), std::string::npos);
  EXPECT_NE(error_of({"--lr", "nan"}).find("--lr"), std::string::npos);
  EXPECT_NE(error_of({"--lr", "-1"}).find("--lr"), std::string::npos);
  EXPECT_NE(error_of({"--ram", "5X"}).find("unknown unit"), std::string::npos);
  EXPECT_NE(error_of({"--compute", "fp16"}).find("bf16|fp32"), std::string::npos);
  EXPECT_NE(error_of({"--queue", "uringg"}).find("did you mean \"uring\""), std::string::npos);
  EXPECT_NE(error_of({"--family", "bert"}).find("llama|gpt2"), std::string::npos);
  EXPECT_NE(error_of({"--block", "1000"}).find("multiple of 16384"), std::string::npos);
  EXPECT_NE(error_of({"--block", "8MiB"}).find("multiple of 16384"), std::string::npos);
  EXPECT_NE(error_of({"--micro", "0"}).find("--micro"), std::string::npos);
  EXPECT_NE(error_of({"--threads", "0"}).find("--threads"), std::string::npos);
  EXPECT_NE(error_of({"--seq", "1048576"}).find("--seq"), std::string::npos);
}

TEST(TrainFlagsTest, RefusesContradictions) {
  EXPECT_NE(error_of({"--batch", "8", "--micro", "3"}).find("does not divide"), std::string::npos);
  EXPECT_NE(error_of({"--batch", "4", "--micro", "8"}).find("does not divide"), std::string::npos);
  EXPECT_NE(error_of({"--scratch", "--resume"}).find("contradict"), std::string::npos);
  EXPECT_NE(error_of({"--scratch", "--commit-every", "1"}).find("contradict"), std::string::npos);
  EXPECT_NE(error_of({"--model", "tiny", "--config", "c"}).find("two models"), std::string::npos);
  EXPECT_NE(parse_train({"--store", "s"}).error().message.find("--data is missing"),
            std::string::npos);
  EXPECT_NE(parse_train({"--data", "x"}).error().message.find("--store is missing"),
            std::string::npos);
}

TEST(GenerateFlagsTest, TakesEveryFlag) {
  const auto options = parse<GenerateOptions, GenerateFlags>(
      {"--store", "s", "--prompt", "Once", "--tokens", "9", "--temperature", "0", "--seed", "4"});
  ASSERT_TRUE(options);
  EXPECT_EQ(options.value().prompt, "Once");
  EXPECT_EQ(options.value().tokens, 9U);
  EXPECT_EQ(options.value().temperature, 0.0);
  EXPECT_EQ(options.value().seed, 4U);
  EXPECT_FALSE((parse<GenerateOptions, GenerateFlags>({"--tokens", "9"})));
}

}  // namespace
}  // namespace penstock
