// Method: stores with known contents, cut into blocks of different sizes, on a real directory; hash
// and statistics are computed a second time from the contents themselves.

#include <bit>
#include <cmath>
#include <cstring>

#include "cli/store_case.hpp"
#include "cli/store_hash.hpp"
#include "cli/store_reader.hpp"

namespace penstock::test {
namespace {

class InspectTest : public StoreCase {
 protected:
  Outcome inspect(const std::vector<const char*>& flags = {}) {
    std::vector<const char*> arguments = {"inspect", directory_.c_str()};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return run_cli(std::move(arguments));
  }
};

TEST_F(InspectTest, SaysWhatAStoreHolds) {
  make_store({kGroupElements});
  const Outcome text = inspect();
  EXPECT_EQ(text.code, ExitCode::kOk) << text.err;
  EXPECT_EQ(text.err, "");
  EXPECT_NE(text.out.find("step 3, 2 updates"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("30015 in 2 tensors"), std::string::npos) << text.out;
  const Outcome as_json = inspect({"--json", "--verify"});
  const json value = json::parse(as_json.out);
  EXPECT_EQ(value["schema"], "penstock.inspect/1");
  EXPECT_EQ(value["step"], 3);
  EXPECT_EQ(value["parameters"], 30015);
  EXPECT_EQ(value["tensors"][0]["name"], "a.large");
  EXPECT_EQ(value["trainer"]["model"], "nano");
  EXPECT_EQ(value["damaged"], 0);
  EXPECT_TRUE(value["damage"].empty());
  EXPECT_FALSE(value.contains("stats"));
}

TEST_F(InspectTest, HashesTheSameForEveryBlockSize) {
  const std::vector<std::vector<std::uint64_t>> cuts = {
      {kGroupElements}, {16384, 16384, 7232}, {4096, 35904}};
  for (const auto& blocks : cuts) {
    std::filesystem::remove_all(directory_);
    make_store(blocks);
    const Outcome outcome = inspect({"--json", "--hash"});
    ASSERT_EQ(outcome.code, ExitCode::kOk) << outcome.err;
    EXPECT_EQ(json::parse(outcome.out)["hash"], expected_hash(kFirstStep)) << blocks.size();
  }
}

// Method: a training commits twice while the first bytes are hashed, so that the slots of the
// commit being read are written anew; the hash must be that of one commit, the newest.
TEST_F(InspectTest, HashesOneCommitWhileATrainingGoesOn) {
  make_store({16384, 16384, 7232});
  auto reader = StoreReader::open(*storage_, directory_);
  ASSERT_TRUE(reader) << reader.error().message;
  bool moved = false;
  std::uint64_t step = kFirstStep;
  std::string hash;
  const std::atomic<bool> stop = false;
  const auto once = [&]() -> Status {
    auto result = hash_store(*reader.value(), stop, [&](std::uint64_t, std::uint64_t) {
      if (moved) return;
      moved = true;
      commit_next(++step);
      commit_next(++step);
    });
    if (!result) return std::move(result).error();
    hash = to_hex(result.value());
    return ok();
  };
  const Status refused = once();
  ASSERT_FALSE(refused);
  EXPECT_TRUE(reader.value()->overtaken());
  EXPECT_EQ(refused.error().code, Errc::kState);
  EXPECT_NE(refused.error().message.find("went on to step 5 while step 3 was read"),
            std::string::npos)
      << refused.error().message;
  moved = false;
  const Status done = reader.value()->with_one_commit(3, once);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(step, kFirstStep + 4);
  EXPECT_EQ(hash, expected_hash(step));
  EXPECT_EQ(reader.value()->step(), step);
}

double decoded(std::size_t section, std::uint64_t element) {
  std::byte bytes[4] = {};
  for (std::size_t i = 0; i < kWidths[section]; ++i) {
    bytes[i] = content(kFirstStep, section, element * kWidths[section] + i);
  }
  std::uint32_t bits = 0;
  std::memcpy(&bits, bytes, 4);
  if (section == 0) return std::bit_cast<float>(bits << 16);
  if (section == 1) return static_cast<std::int16_t>(bits);
  return std::bit_cast<float>(bits);
}

double decoded_weight(std::uint64_t element) {
  std::uint32_t bits = 0;
  for (std::uint32_t i = 0; i < 2; ++i) {
    bits |= std::to_integer<std::uint32_t>(content(kFirstStep, 0, element * 2 + i)) << (8 * i);
  }
  const auto low = static_cast<std::int32_t>(decoded(1, element));
  return std::bit_cast<float>((bits << 16) + static_cast<std::uint32_t>(low));
}

TEST_F(InspectTest, GivesStatisticsOfEverySection) {
  for (const auto& blocks : {std::vector<std::uint64_t>{kGroupElements}, {4096, 16384, 19520}}) {
    std::filesystem::remove_all(directory_);
    make_store(blocks);
    const Outcome outcome = inspect({"--json", "--tensor", "a.large", "--stats"});
    ASSERT_EQ(outcome.code, ExitCode::kOk) << outcome.err;
    const json value = json::parse(outcome.out);
    ASSERT_EQ(value["tensors"].size(), 1U);
    ASSERT_EQ(value["stats"].size(), 5U);
    for (const json& stats : value["stats"]) {
      const std::string name = stats["section"];
      const std::string names = "hi lo m  v  ";
      std::uint64_t finite = 0, bad = 0;
      double min = 0, max = 0, sum = 0, squares = 0;
      for (std::uint64_t i = 0; i < kTensors[1].elements(); ++i) {
        const std::uint64_t element = kTensors[1].offset + i;
        const double x =
            name == "weight" ? decoded_weight(element) : decoded(names.find(name) / 3, element);
        if (!std::isfinite(x)) {
          ++bad;
          continue;
        }
        min = finite == 0 ? x : std::min(min, x);
        max = finite == 0 ? x : std::max(max, x);
        ++finite;
        sum += x;
        squares += x * x;
      }
      EXPECT_EQ(stats["tensor"], "a.large");
      EXPECT_EQ(stats["count"], 30'000) << name;
      EXPECT_EQ(stats["non_finite"], bad) << name;
      EXPECT_EQ(stats["min"], min) << name;
      EXPECT_EQ(stats["max"], max) << name;
      // The same sums in the same order; the division and root are correctly rounded.
      EXPECT_EQ(stats["mean"], sum / static_cast<double>(finite)) << name;
      EXPECT_EQ(stats["rms"], std::sqrt(squares / static_cast<double>(finite))) << name;
    }
    EXPECT_GT(value["stats"][1]["non_finite"], 0) << "the contents must hold some";
  }
}

TEST_F(InspectTest, GivesStatisticsOfAllTensorsWhereNoneIsNamed) {
  make_store({kGroupElements});
  const Outcome outcome = inspect({"--stats"});
  EXPECT_EQ(outcome.code, ExitCode::kOk) << outcome.err;
  for (const char* part : {"a.large", "z.small", "weight", "not finite"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part;
  }
}

TEST_F(InspectTest, RefusesTensorsThatAreNotThere) {
  make_store({kGroupElements});
  const Outcome outcome = inspect({"--tensor", "a.lagre"});
  EXPECT_EQ(outcome.code, ExitCode::kUsage);
  EXPECT_NE(outcome.err.find("did you mean \"a.large\""), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.out, "");
}

TEST_F(InspectTest, FindsFlippedAndMissingBytes) {
  make_store({kGroupElements});
  flip(section_offset(0, 2) + 100);
  const Outcome verified = inspect({"--verify"});
  EXPECT_EQ(verified.code, ExitCode::kFailed);
  EXPECT_NE(verified.out.find("1 damaged places"), std::string::npos) << verified.out;
  EXPECT_NE(verified.err.find("is damaged"), std::string::npos) << verified.err;
  EXPECT_EQ(inspect({"--hash"}).code, ExitCode::kFailed);
  EXPECT_EQ(inspect({"--stats"}).code, ExitCode::kFailed);
  EXPECT_EQ(inspect({"--stats", "--tensor", "z.small"}).code, ExitCode::kFailed)
      << "its elements lie in the damaged tile";

  std::filesystem::resize_file(directory_ + "/data.0", 100);
  const Outcome cut = inspect();
  EXPECT_EQ(cut.code, ExitCode::kFailed);
  EXPECT_EQ(std::count(cut.err.begin(), cut.err.end(), '\n'), 1) << cut.err;
  EXPECT_EQ(cut.out, "");
}

TEST_F(InspectTest, RefusesDescriptionsThatDoNotFit) {
  json outside = describe({kGroupElements});
  outside["tensors"][0]["offset"] = kGroupElements;
  json overflow = describe({kGroupElements});
  overflow["tensors"][0]["shape"] = {std::uint64_t{1} << 40, std::uint64_t{1} << 40};
  json group = describe({kGroupElements});
  group["tensors"][0]["group"] = 1;
  json blocks = describe({kGroupElements});
  blocks["groups"][0]["blocks"] = {kGroupElements - 1};
  json many = describe({kGroupElements});
  many["groups"][0]["first_block"] = 1;
  json twice = describe({kGroupElements});
  twice["tensors"][1]["name"] = twice["tensors"][0]["name"];
  for (const std::string& bad :
       {std::string("{}"), std::string("nonsense"), outside.dump(), overflow.dump(), group.dump(),
        blocks.dump(), many.dump(), twice.dump()}) {
    std::filesystem::remove_all(directory_);
    make_store({kGroupElements}, bad);
    const Outcome outcome = inspect({"--hash"});
    EXPECT_EQ(outcome.code, ExitCode::kFailed) << bad;
    EXPECT_NE(outcome.err.find("the description in the store"), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
}

}  // namespace
}  // namespace penstock::test
