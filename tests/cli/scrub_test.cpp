// Method: bytes of known tiles are changed, and each must be named with tensor, elements, file and
// offset; and a training goes on while its store is scrubbed.

#include <fstream>

#include "cli/store_case.hpp"
#include "cli/store_reader.hpp"
#include "cli/store_scrub.hpp"

namespace penstock::test {
namespace {

class ScrubTest : public StoreCase {
 protected:
  Outcome scrub(const std::vector<const char*>& flags = {}) {
    std::vector<const char*> arguments = {"scrub", directory_.c_str(), "--rate", "max"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return run_cli(std::move(arguments));
  }
  /// The events of `--json`, one a line.
  static std::vector<json> events(const Outcome& outcome) {
    std::vector<json> lines;
    std::istringstream text(outcome.out);
    for (std::string line; std::getline(text, line);) lines.push_back(json::parse(line));
    return lines;
  }
};

struct Recorder final : ScrubObserver {
  void on_damage(const Damage& damage) override { found.push_back(damage.message); }
  void on_progress(std::uint64_t done_bytes, std::uint64_t) override {
    if (after_block) after_block(done_bytes);
  }
  std::vector<std::string> found;
  std::function<void(std::uint64_t)> after_block;
};

TEST_F(ScrubTest, FindsNothingInAWholeStore) {
  make_store({16384, 16384, 7232});
  const Outcome text = scrub();
  EXPECT_EQ(text.code, ExitCode::kOk) << text.err;
  EXPECT_EQ(text.err, "");
  EXPECT_NE(text.out.find("of step 3"), std::string::npos) << text.out;
  const auto lines = events(scrub({"--json"}));
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0]["schema"], "penstock.scrub/1");
  EXPECT_EQ(lines[0]["event"], "end");
  EXPECT_EQ(lines[0]["complete"], true);
  EXPECT_EQ(lines[0]["bytes"], lines[0]["total_bytes"]);
  EXPECT_EQ(lines[0]["damaged"], 0);
}

// z.small is elements 0..14 of the group, a.large 4096..34095; blocks of 16384 and tiles of 16384.
TEST_F(ScrubTest, NamesEveryBadTile) {
  make_store({32768, 7232});
  struct Case {
    std::size_t block, section;
    std::uint64_t byte;  // in the section
    const char* section_name;
    std::uint64_t tile_offset;  // in the section
    std::uint64_t tile_bytes;
    json tensors;
  };
  const std::vector<Case> cases = {
      {0,
       0,
       7,
       "hi",
       0,
       32768,
       {{{"name", "z.small"}, {"first_element", 0}, {"elements", 15}},
        {{"name", "a.large"}, {"first_element", 0}, {"elements", 12288}}}},
      {0,
       2,
       65536,
       "m",
       65536,
       65536,
       {{{"name", "a.large"}, {"first_element", 12288}, {"elements", 16384}}}},
      {1,
       3,
       7232 * 4 - 1,
       "v",
       0,
       7232 * 4,
       {{{"name", "a.large"}, {"first_element", 28672}, {"elements", 1328}}}}};
  for (const Case& c : cases) flip(section_offset(c.block, c.section) + c.byte);
  const Outcome outcome = scrub({"--json"});
  EXPECT_EQ(outcome.code, ExitCode::kFailed);
  EXPECT_NE(outcome.err.find("damaged in 3 places"), std::string::npos) << outcome.err;
  const auto lines = events(outcome);
  ASSERT_EQ(lines.size(), 4U) << outcome.out;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const json& line = lines[i];
    EXPECT_EQ(line["schema"], "penstock.scrub/1");
    EXPECT_EQ(line["event"], "damage");
    EXPECT_EQ(line["section"], cases[i].section_name);
    EXPECT_EQ(line["kind"], "tile");
    EXPECT_EQ(line["cause"], "checksum");
    EXPECT_EQ(line["group"], "layer");
    EXPECT_EQ(line["tensors"], cases[i].tensors);
    EXPECT_EQ(line["file"], directory_ + "/data.0");
    EXPECT_EQ(line["offset_bytes"],
              section_offset(cases[i].block, cases[i].section) + cases[i].tile_offset);
    EXPECT_EQ(line["bytes"], cases[i].tile_bytes);
  }
  EXPECT_EQ(lines[3]["damaged"], 3);
  const Outcome text = scrub();
  EXPECT_NE(text.out.find("tensor \"a.large\" elements 12288 to 28671, section \"m\""),
            std::string::npos)
      << text.out;
}

TEST_F(ScrubTest, NamesDamagedSumsAndPadding) {
  make_store({kGroupElements});
  const std::uint64_t section = section_offset(0, 0);
  const std::uint64_t padded = round_up(kGroupElements * 2, kPageBytes);
  flip(section + kGroupElements * 2);  // behind the data of hi
  auto lines = events(scrub({"--json"}));
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0]["kind"], "padding");
  EXPECT_TRUE(lines[0]["tensors"].empty());
  flip(section + padded + 1);  // its sums
  lines = events(scrub({"--json"}));
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0]["kind"], "sums");
  EXPECT_EQ(lines[0]["tensors"].size(), 2U) << "any element of the block may be wrong";
}

// The slots of the commit under the scrub are written anew twice while it runs.
TEST_F(ScrubTest, FollowsATrainingWithoutFalseAlarms) {
  make_store({16384, 16384, 7232});
  auto reader = StoreReader::open(*storage_, directory_);
  ASSERT_TRUE(reader);
  Recorder recorder;
  std::uint64_t step = kFirstStep;
  recorder.after_block = [&](std::uint64_t) {
    commit_next(++step);
    commit_next(++step);
  };
  Throttle throttle(0);
  const std::atomic<bool> stop = false;
  auto result = scrub_store(*reader.value(), throttle, recorder, stop);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_TRUE(result.value().complete);
  EXPECT_EQ(recorder.found, std::vector<std::string>());
  EXPECT_EQ(result.value().reread_blocks, 2U) << "the first block was read before the commits";
}

TEST_F(ScrubTest, FindsRealDamageWhileATrainingGoesOn) {
  make_store({16384, 16384, 7232});
  auto reader = StoreReader::open(*storage_, directory_);
  ASSERT_TRUE(reader);
  Recorder recorder;
  bool moved = false;
  recorder.after_block = [&](std::uint64_t) {
    if (std::exchange(moved, true)) return;
    commit_next(kFirstStep + 1);
    commit_next(kFirstStep + 2);
    flip(section_offset(2, 1) + 5);
  };
  Throttle throttle(0);
  const std::atomic<bool> stop = false;
  auto result = scrub_store(*reader.value(), throttle, recorder, stop);
  ASSERT_TRUE(result) << result.error().message;
  ASSERT_EQ(recorder.found.size(), 1U);
  EXPECT_NE(recorder.found[0].find("section \"lo\""), std::string::npos) << recorder.found[0];
}

TEST_F(ScrubTest, StopsWhenAsked) {
  make_store({16384, 16384, 7232});
  auto reader = StoreReader::open(*storage_, directory_);
  ASSERT_TRUE(reader);
  std::atomic<bool> stop = false;
  Recorder recorder;
  recorder.after_block = [&](std::uint64_t) { stop = true; };
  Throttle throttle(0);
  auto result = scrub_store(*reader.value(), throttle, recorder, stop);
  ASSERT_TRUE(result);
  EXPECT_FALSE(result.value().complete);
  EXPECT_LT(result.value().bytes, result.value().total_bytes);
}

TEST_F(ScrubTest, RefusesRatesThatAreNone) {
  make_store({kGroupElements});
  for (const char* rate : {"0", "fast", "", "-1", "200MB/h", "5/s/s"}) {
    const Outcome outcome = run_cli({"scrub", directory_.c_str(), "--rate", rate});
    EXPECT_EQ(outcome.code, ExitCode::kUsage) << rate;
    EXPECT_NE(outcome.err.find("is not a rate such as 200MB/s"), std::string::npos) << outcome.err;
  }
  for (const char* rate : {"5GB/s", "5 GiB", "max"}) {
    const Outcome outcome = run_cli({"scrub", directory_.c_str(), "--rate", rate});
    EXPECT_EQ(outcome.code, ExitCode::kOk) << rate << outcome.err;
  }
}

}  // namespace
}  // namespace penstock::test
