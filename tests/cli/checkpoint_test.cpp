// The checkpoint command on a store of known contents: what it lists, keeps, gives up and refuses.

#include <filesystem>

#include "cli/store_case.hpp"

namespace penstock::test {
namespace {

class CheckpointCommandTest : public StoreCase {
 protected:
  CheckpointCommandTest() { room_ = 2; }

  Outcome checkpoint(const char* action, const std::vector<const char*>& flags = {}) {
    std::vector<const char*> arguments = {"checkpoint", action, directory_.c_str()};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return run_cli(std::move(arguments));
  }
  json list() { return json::parse(checkpoint("list", {"--json"}).out); }
  void refused(const Outcome& outcome, ExitCode code, const char* part) {
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
  std::string hash() {
    const Outcome outcome = run_cli({"inspect", directory_.c_str(), "--hash", "--json"});
    EXPECT_EQ(outcome.code, ExitCode::kOk) << outcome.err;
    return outcome.code == ExitCode::kOk ? json::parse(outcome.out)["hash"].get<std::string>() : "";
  }
};

TEST_F(CheckpointCommandTest, KeepsListsGoesBackAndDrops) {
  make_store({16384, 16384, 7232});
  const Outcome pinned = checkpoint("pin", {"--name", "best"});
  EXPECT_EQ(pinned.code, ExitCode::kOk) << pinned.err;
  EXPECT_EQ(pinned.out, "step 3 is kept as best\n");
  commit_next(5);
  store_.reset();
  const json held = list();
  EXPECT_EQ(held["schema"], "penstock.checkpoints/1");
  EXPECT_EQ(held["step"], 5);
  EXPECT_EQ(held["room"], 2);
  ASSERT_EQ(held["checkpoints"].size(), 1U);
  const json& best = held["checkpoints"][0];
  EXPECT_EQ(best["name"], "best");
  EXPECT_EQ(best["step"], 3);
  EXPECT_EQ(best["rotating"], false);
  EXPECT_EQ(best["latest"], false);
  EXPECT_GT(best["own_bytes"], 0);
  const Outcome text = checkpoint("list");
  for (const char* part : {"best", "step        3", "1 of 2 checkpoints", "step 5"}) {
    EXPECT_NE(text.out.find(part), std::string::npos) << part << " in " << text.out;
  }
  // Step 5 is held by nothing.
  refused(checkpoint("restore", {"--name", "best"}), ExitCode::kFailed, "--yes");
  EXPECT_EQ(list()["step"], 5);
  EXPECT_EQ(checkpoint("pin", {"--name", "five"}).code, ExitCode::kOk);
  const Outcome back = checkpoint("restore", {"--name", "best", "--json"});
  EXPECT_EQ(back.code, ExitCode::kOk) << back.err;
  EXPECT_EQ(json::parse(back.out)["step"], 3);
  EXPECT_EQ(hash(), expected_hash(3));
  EXPECT_EQ(list()["checkpoints"][0]["latest"], true);
  EXPECT_EQ(checkpoint("restore", {"--name", "five"}).code, ExitCode::kOk);
  EXPECT_EQ(hash(), expected_hash(5));
  EXPECT_EQ(checkpoint("drop", {"--name", "best"}).out, "dropped best\n");
  commit_next(7);
  store_.reset();
  EXPECT_EQ(checkpoint("restore", {"--name", "five", "--yes"}).code, ExitCode::kOk);
  EXPECT_EQ(hash(), expected_hash(5));
  EXPECT_EQ(list()["checkpoints"].size(), 1U);
}

TEST_F(CheckpointCommandTest, GoesBackWhereTheLastCommitIsDamaged) {
  make_store({16384, 16384, 7232});
  ASSERT_EQ(checkpoint("pin", {"--name", "good"}).code, ExitCode::kOk);
  commit_next(5);
  store_.reset();
  for (const auto& file : std::filesystem::directory_iterator(directory_)) {
    if (file.path().filename().string().starts_with("manifest.")) {
      std::filesystem::resize_file(file.path(), 100);
    }
  }
  refused(checkpoint("list"), ExitCode::kFailed, "--name NAME): good");
  const Outcome back = checkpoint("restore", {"--name", "good"});
  EXPECT_EQ(back.code, ExitCode::kOk) << back.err;
  EXPECT_EQ(hash(), expected_hash(3));
}

TEST_F(CheckpointCommandTest, RefusesWhatCannotBe) {
  make_store({16384});
  refused(checkpoint("keep"), ExitCode::kUsage, "list, pin, drop, restore or copy");
  refused(checkpoint("pin"), ExitCode::kUsage, "--name is missing");
  refused(checkpoint("pin", {"--name", "a/b"}), ExitCode::kUsage, "cannot be one of a checkpoint");
  refused(checkpoint("copy"), ExitCode::kUsage, "--to is missing");
  refused(checkpoint("list", {"--to", "x"}), ExitCode::kUsage, "belong to copy");
  refused(checkpoint("copy", {"--to", "x", "--block", "1000"}), ExitCode::kUsage, "multiple");
  refused(checkpoint("drop", {"--name", "none"}), ExitCode::kFailed, "no checkpoint \"none\"");
  refused(checkpoint("restore", {"--name", "none"}), ExitCode::kFailed, "nor any other");
  ASSERT_EQ(checkpoint("pin", {"--name", "one"}).code, ExitCode::kOk);
  refused(checkpoint("pin", {"--name", "one"}), ExitCode::kFailed, "there is one of that name");
  ASSERT_EQ(checkpoint("pin", {"--name", "two"}).code, ExitCode::kOk);
  refused(checkpoint("pin", {"--name", "three"}), ExitCode::kFailed,
          "holds one, two; drop one (penstock");
  commit_next(5);  // and stays open
  refused(checkpoint("drop", {"--name", "one"}), ExitCode::kFailed, "in use");
  EXPECT_EQ(list()["checkpoints"].size(), 2U) << "listing needs no lock";
}

}  // namespace
}  // namespace penstock::test
