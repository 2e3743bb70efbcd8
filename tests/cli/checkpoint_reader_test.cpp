// Method: a training goes on behind a checkpoint, and over two drives; what is read must be the
// checkpoint's state, and damage in it must be found although the last commit is whole.

#include <fstream>

#include "cli/store_case.hpp"
#include "cli/store_export.hpp"
#include "cli/store_reader.hpp"
#include "cli/store_scrub.hpp"
#include "io/store_pins.hpp"

namespace penstock::test {
namespace {

class CheckpointReaderTest : public StoreCase {
 protected:
  /// Checkpoint "best" of kFirstStep, and two commits behind it.
  void make_checkpoint() {
    room_ = 1;
    make_store({16384, 16384, 7232});
    const Status pinned = make_pin(*storage_, directory_, "best");
    ASSERT_TRUE(pinned) << pinned.error().message;
    commit_next(kFirstStep + 1);
    commit_next(kFirstStep + 2);
  }
  std::string path(const std::string& name) const { return temporary_.path() + "/" + name; }
  static std::string content_of(const std::string& file) {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  std::string hash(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), {"inspect", "--json", "--hash"});
    const Outcome outcome = run_cli(std::move(arguments));
    EXPECT_EQ(outcome.code, ExitCode::kOk) << outcome.err;
    return outcome.code == ExitCode::kOk ? json::parse(outcome.out)["hash"] : json("");
  }
};

TEST_F(CheckpointReaderTest, ShowsTheStateOfACheckpoint) {
  make_checkpoint();
  const char* store = directory_.c_str();
  EXPECT_EQ(hash({store}), expected_hash(kFirstStep + 2));
  EXPECT_EQ(hash({store, "--checkpoint", "best"}), expected_hash(kFirstStep));
  for (const char* command : {"inspect", "export"}) {
    const std::string out = path("none");
    std::vector<const char*> arguments = {command, store, "--checkpoint", "worst"};
    if (std::string(command) == "export") arguments.insert(arguments.end(), {"--out", out.c_str()});
    const Outcome outcome = run_cli(arguments);
    EXPECT_EQ(outcome.code, ExitCode::kFailed);
    EXPECT_NE(outcome.err.find("there is no checkpoint \"worst\""), std::string::npos)
        << outcome.err;
  }
}

// The file is the one that was exported when the checkpoint was the last commit; no number of
// commits makes the export begin anew.
TEST_F(CheckpointReaderTest, ExportsACheckpointThatNoTrainingOvertakes) {
  make_checkpoint();
  const std::string expected = path("expected.safetensors"), later = path("later.safetensors");
  const Outcome outcome = run_cli({"export", directory_.c_str(), "--checkpoint", "best", "--out",
                                   expected.c_str(), "--json", "--step", "3"});
  ASSERT_EQ(outcome.code, ExitCode::kOk) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out)["checkpoint"], "best");
  EXPECT_EQ(json::parse(outcome.out)["step"], kFirstStep);
  auto reader = StoreReader::open(*storage_, directory_, "best");
  ASSERT_TRUE(reader) << reader.error().message;
  ExportOptions options;
  options.place = later;
  options.single_file = true;
  options.step = kFirstStep;
  const std::atomic<bool> stop = false;
  std::uint64_t step = kFirstStep + 2;
  const auto exported =
      export_store(*reader.value(), options, stop, [&](std::uint64_t, std::uint64_t) {
        for (int i = 0; i < 4; ++i) commit_next(++step);
      });
  ASSERT_TRUE(exported) << exported.error().message;
  EXPECT_EQ(exported.value().step, kFirstStep);
  EXPECT_TRUE(content_of(later) == content_of(expected));
  EXPECT_FALSE(content_of(later).empty());
}

TEST_F(CheckpointReaderTest, ScrubReadsCheckpointsToo) {
  make_checkpoint();
  store_.reset();
  const char* store = directory_.c_str();
  Outcome outcome = run_cli({"scrub", store, "--rate", "max", "--json"});
  ASSERT_EQ(outcome.code, ExitCode::kOk) << outcome.out << outcome.err;
  const json whole = json::parse(outcome.out);
  EXPECT_EQ(whole["checkpoints"], 1);
  EXPECT_EQ(whole["bytes"], whole["total_bytes"]);
  flip(section_offset(1, 2, "best") + 9);
  for (const char* command : {"scrub", "inspect"}) {
    std::vector<const char*> arguments = {command, store};
    if (std::string(command) == "inspect") arguments.push_back("--verify");
    outcome = run_cli(arguments);
    EXPECT_EQ(outcome.code, ExitCode::kFailed) << command;
    EXPECT_NE(outcome.out.find("section \"m\""), std::string::npos) << outcome.out;
    EXPECT_NE(outcome.out.find("(of the checkpoint \"best\")"), std::string::npos) << outcome.out;
  }
  ASSERT_TRUE(drop_pin(*storage_, directory_, "best"));
  outcome = run_cli({"scrub", store, "--rate", "max", "--json"});
  EXPECT_EQ(outcome.code, ExitCode::kOk) << "what nothing names is not looked at";
  EXPECT_LT(json::parse(outcome.out)["bytes"], whole["bytes"]);
}

// What both the last commit and a checkpoint name is read once.
TEST_F(CheckpointReaderTest, ScrubReadsSharedSlotsOnce) {
  room_ = 1;
  make_store({16384, 16384, 7232});
  const auto bytes = [&] {
    const Outcome outcome = run_cli({"scrub", directory_.c_str(), "--rate", "max", "--json"});
    EXPECT_EQ(outcome.code, ExitCode::kOk) << outcome.err;
    return json::parse(outcome.out)["bytes"].get<std::uint64_t>();
  };
  const std::uint64_t before = bytes();
  ASSERT_TRUE(make_pin(*storage_, directory_, "best"));
  EXPECT_EQ(bytes(), before);
}

TEST_F(CheckpointReaderTest, ScrubLeavesOutACheckpointThatIsDroppedMeanwhile) {
  make_checkpoint();
  store_.reset();
  auto reader = StoreReader::open(*storage_, directory_);
  ASSERT_TRUE(reader);
  struct Dropper final : ScrubObserver {
    void on_damage(const Damage& damage) override { found.push_back(damage.message); }
    void on_progress(std::uint64_t done_bytes, std::uint64_t total_bytes) override {
      if (done_bytes == total_bytes && drop) std::exchange(drop, nullptr)();
    }
    std::vector<std::string> found;
    std::function<void()> drop;
  } dropper;
  dropper.drop = [&] { EXPECT_TRUE(drop_pin(*storage_, directory_, "best")); };
  Throttle throttle(0);
  const std::atomic<bool> stop = false;
  const auto result = scrub_store(*reader.value(), throttle, dropper, stop);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_TRUE(result.value().complete);
  EXPECT_EQ(result.value().checkpoints, 0U);
  EXPECT_EQ(dropper.found, std::vector<std::string>());
}

TEST_F(CheckpointReaderTest, ReadsAStoreOverTwoDrives) {
  second_ = path("second");
  make_store({16384, 16384, 7232});
  commit_next(kFirstStep + 1);
  store_.reset();
  const char* first = directory_.c_str();
  const char* second = second_.c_str();
  EXPECT_EQ(hash({first, second}), expected_hash(kFirstStep + 1));
  EXPECT_EQ(hash({second, first}), expected_hash(kFirstStep + 1));
  EXPECT_EQ(run_cli({"scrub", first, "--rate", "max", second}).code, ExitCode::kOk);
  const std::string out = path("model");
  EXPECT_EQ(run_cli({"export", first, second, "--out", out.c_str()}).code, ExitCode::kOk);
  const Outcome alone = run_cli({"scrub", first});
  EXPECT_EQ(alone.code, ExitCode::kFailed);
  EXPECT_EQ(std::count(alone.err.begin(), alone.err.end(), '\n'), 1) << alone.err;
  const Outcome mistyped = run_cli({"inspect", first, (second_ + "x").c_str()});
  EXPECT_EQ(mistyped.code, ExitCode::kUsage);
  EXPECT_NE(mistyped.err.find(second_ + "x"), std::string::npos) << mistyped.err;
}

}  // namespace
}  // namespace penstock::test
