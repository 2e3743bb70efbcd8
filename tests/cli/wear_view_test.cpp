// Method: reports as drives would give them, and stores whose layout is known.

#include "cli/wear_view.hpp"

#include <unistd.h>

#include "cli/store_case.hpp"
#include "cli/store_wear.hpp"
#include "cli/train_view.hpp"
#include "io/counting_storage.hpp"

namespace penstock::test {
namespace {

using Lines = std::vector<std::string>;

WearReport two_drives() {
  WearReport report;
  report.drives.push_back(
      {"nvme0n1", 60'000'000'000, 59'000'000'000, DriveHealth{12'300'000'000'000, 4}, {}});
  report.drives.push_back(
      {"sda", 25'000'000'000, std::nullopt, std::nullopt, {"sda is no NVMe drive"}});
  return report;
}

TEST(WearViewTest, ComparesOurCountWithTheSystems) {
  EXPECT_EQ(wear_lines(two_drives()),
            (Lines{"nvme0n1: 59 GB written here, the system counted 60 GB (101.7 %, with all other "
                   "programs), 12.3 TB in its life, 4 % of its rated life used",
                   "sda: the system counted 25 GB", "sda is no NVMe drive"}));
}

TEST(WearViewTest, ComparesNothingWhereSomethingIsMissing) {
  WearReport report = two_drives();
  report.drives[0].bytes.reset();
  report.drives[1].bytes.reset();
  report.notes = {"x lies on tmpfs"};
  EXPECT_EQ(wear_lines(report), (Lines{"nvme0n1: 59 GB written here, 12.3 TB in its life, 4 % of "
                                       "its rated life used",
                                       "sda is no NVMe drive", "x lies on tmpfs"}));
  EXPECT_EQ(wear_lines({}), Lines());
}

TEST(WearViewTest, GivesNullForWhatIsNotKnown) {
  const json drives = drives_json(two_drives());
  EXPECT_EQ(drives[0]["system_written_bytes"], 60'000'000'000);
  EXPECT_EQ(drives[0]["written_bytes"], 59'000'000'000);
  EXPECT_TRUE(drives[1]["written_bytes"].is_null());
  EXPECT_EQ(drives[0]["life_written_bytes"], 12'300'000'000'000);
  EXPECT_EQ(drives[0]["life_percent_used"], 4);
  EXPECT_TRUE(drives[1]["life_written_bytes"].is_null());
  EXPECT_EQ(drives[1]["notes"][0], "sda is no NVMe drive");
  EXPECT_TRUE(endurance_json(1, 0).is_null());
  EXPECT_EQ(endurance_json(3, 4), 0.75);
}

TEST(WearViewTest, ShowsTheShareOfAGivenEndurance) {
  EXPECT_EQ(endurance_text(84'000'000'000, 600'000'000'000'000), "; 0.014 % of 600 TB");
  EXPECT_EQ(endurance_text(84'000'000'000, 0), "");
}

TEST(WearViewTest, ShowsTheLifeOfAStore) {
  const LifetimeBytes life{{5'000'000'000'000, 7'000'000'000'000}, true};
  EXPECT_EQ(lifetime_lines(life, {"/a", "/b"}, 600'000'000'000'000),
            (Lines{"12 TB written in the store's life, for steps that were given up, too; 2 % of "
                   "600 TB",
                   "/a: 5 TB of it", "/b: 7 TB of it"}));
  EXPECT_EQ(lifetime_lines({{5'000'000'000'000}, false}, {"/a"}, 0),
            (Lines{"at least 5 TB written in the store's life, for steps that were given up, too",
                   "part of what was written was not counted, or the count was lost"}));
  const json shown = lifetime_json(life, {"/a", "/b"}, 0, 24'000'000'000'000);
  EXPECT_EQ(shown["written_bytes"], 12'000'000'000'000);
  EXPECT_EQ(shown["is_complete"], true);
  EXPECT_TRUE(shown["bytes_per_step"].is_null()) << "there was no step";
  EXPECT_EQ(shown["endurance_used"], 0.5);
  EXPECT_EQ(shown["directories"][1]["directory"], "/b");
  EXPECT_EQ(shown["directories"][1]["written_bytes"], 7'000'000'000'000);
  EXPECT_EQ(lifetime_json(life, {"/a", "/b"}, 1000, 0)["bytes_per_step"], 12'000'000'000);
  EXPECT_TRUE(lifetime_json({}, {"/a"}, 5, 1).is_null());
}

TEST(TrainViewTest, EndsWithATableOfWear) {
  RunEnd end;
  end.step = 70;
  end.steps = 70;
  end.directories = {"/a"};
  end.lifetime = LifetimeBytes{{140'000'000'000}, true};
  end.written_bytes = 84'000'000'000;
  end.first_written_bytes = 2'000'000'000;
  end.wear = two_drives();
  ::testing::internal::CaptureStderr();
  {
    Console console({});
    TrainView(console, 600'000'000'000'000).on_end(end);
  }
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("wear   86 GB written, 1.2 GB a step; 0.0143 % of 600 TB\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("       140 GB written in the store's life, for steps that were given up, "
                      "too; 0.0233 % of 600 TB\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("       nvme0n1: 59 GB written here, the system counted 60 GB"),
            std::string::npos)
      << text;
  ::testing::internal::CaptureStdout();
  {
    Console console({.json = true});
    TrainView(console, 0).on_end(end);
  }
  const json value = json::parse(::testing::internal::GetCapturedStdout());
  EXPECT_EQ(value["written_bytes"], 84'000'000'000);
  EXPECT_EQ(value["first_written_bytes"], 2'000'000'000);
  EXPECT_EQ(value["steps"], 70);
  EXPECT_TRUE(value["endurance_used"].is_null());
  EXPECT_EQ(value["drives"].size(), 2U);
  EXPECT_EQ(value["lifetime"]["written_bytes"], 140'000'000'000);
  EXPECT_EQ(value["lifetime"]["bytes_per_step"], 2'000'000'000);
}

class StoreWearTest : public StoreCase {};

// Blocks of 16384 and 23616 elements: one and two tiles of each of four sections.
TEST_F(StoreWearTest, ComesFromTheLayout) {
  make_store({16384, 23616});
  const std::uint64_t page = 4096;
  const std::uint64_t a_step = 12 * 16384 + (47232 / page + 1) * 2 * page +
                               (94464 / page + 1) * 2 * page + 8 * page;  // sums
  const Outcome outcome = run_cli({"inspect", directory_.c_str(), "--json", "--endurance", "1GB"});
  ASSERT_EQ(outcome.code, ExitCode::kOk) << outcome.err;
  const json wear = json::parse(outcome.out)["wear"];
  EXPECT_EQ(wear["most_bytes_per_step"], a_step);
  const std::uint64_t most =
      a_step * kFirstStep + std::filesystem::file_size(directory_ + "/data.0");
  EXPECT_EQ(wear["most_bytes"], most);
  EXPECT_EQ(wear["endurance_used"], static_cast<double>(most) / 1e9);
  EXPECT_NE(wear["drives"].empty(), wear["notes"].empty()) << "a drive, or why there is none";
  EXPECT_TRUE(wear["lifetime"].is_null()) << "this store's maker did not count";
  const Outcome text = run_cli({"inspect", directory_.c_str(), "--endurance", "1GB"});
  EXPECT_NE(text.out.find("wear        at most "), std::string::npos) << text.out;
  EXPECT_NE(text.out.find(" % of 1 GB"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("was not counted"), std::string::npos) << text.out;
}

TEST_F(StoreWearTest, TheLifeIsWhatWasCounted) {
  auto counting = std::make_unique<CountingStorage>(make_posix_storage());
  const CountingStorage& counted = *counting;
  storage_ = std::move(counting);
  make_store({16384, 23616});
  commit_next(kFirstStep + 1);
  store_.reset();
  const std::uint64_t bytes = counted.written_bytes(directory_);
  const Outcome outcome = run_cli({"inspect", directory_.c_str(), "--json", "--endurance", "1GB"});
  ASSERT_EQ(outcome.code, ExitCode::kOk) << outcome.err;
  const json life = json::parse(outcome.out)["wear"]["lifetime"];
  EXPECT_EQ(life["written_bytes"], bytes);
  EXPECT_EQ(life["bytes_per_step"], bytes / (kFirstStep + 1));
  EXPECT_EQ(life["endurance_used"], static_cast<double>(bytes) / 1e9);
  EXPECT_EQ(life["directories"][0]["directory"], directory_);
  const Outcome text = run_cli({"inspect", directory_.c_str()});
  EXPECT_NE(text.out.find(" written in the store's life, "), std::string::npos) << text.out;
}

// What a step writes at most says nothing of the life of a store that went back.
TEST_F(StoreWearTest, GoingBackIsNoContradiction) {
  room_ = 1;
  storage_ = std::make_unique<CountingStorage>(make_posix_storage());
  make_store({16384, 23616});
  ASSERT_EQ(run_cli({"checkpoint", "pin", directory_.c_str(), "--name", "first"}).code,
            ExitCode::kOk);
  for (std::uint64_t step = kFirstStep + 1; step < kFirstStep + 9; ++step) commit_next(step);
  store_.reset();
  const Outcome back =
      run_cli({"checkpoint", "restore", directory_.c_str(), "--name", "first", "--yes"});
  ASSERT_EQ(back.code, ExitCode::kOk) << back.err;
  const std::string text = run_cli({"inspect", directory_.c_str(), "--endurance", "1GB"}).out;
  EXPECT_NE(text.find(" for the file and the " + std::to_string(kFirstStep) + " steps to this"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("for steps that were given up, too"), std::string::npos) << text;
  EXPECT_EQ(text.find("so far"), std::string::npos) << text;
  EXPECT_EQ(text.find(" % of 1 GB"), text.rfind(" % of 1 GB")) << "one share\n" << text;
}

TEST_F(StoreWearTest, RefusesAnEnduranceThatIsNone) {
  make_store({kGroupElements});
  for (const char* value : {"0", "-1", "lots", "600T", ""}) {
    for (const char* command : {"inspect", "train"}) {
      const Outcome outcome = run_cli({command, directory_.c_str(), "--endurance", value});
      EXPECT_EQ(outcome.code, ExitCode::kUsage) << value;
      EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    }
    const Outcome outcome = run_cli({"inspect", directory_.c_str(), "--endurance", value});
    EXPECT_NE(outcome.err.find("--endurance"), std::string::npos) << outcome.err;
  }
}

}  // namespace
}  // namespace penstock::test
