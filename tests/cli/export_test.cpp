// Method: a store with known contents is exported and every byte of the files compared with what
// the contents say; then each way in which an export can fail, after which nothing may be left.

#include "cli/store_export.hpp"

#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "cli/store_case.hpp"
#include "model/safetensors.hpp"

namespace penstock::test {
namespace {

namespace fs = std::filesystem;

std::vector<std::byte> bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> text((std::istreambuf_iterator<char>(file)), {});
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

/// What a tensor's bytes must be.
std::vector<std::byte> expected_bytes(const CaseTensor& tensor, std::uint64_t step, bool f32) {
  std::vector<std::byte> bytes;
  for (std::uint64_t i = 0; i < tensor.elements(); ++i) {
    const std::uint64_t element = tensor.offset + i;
    const std::byte hi[] = {content(step, 0, element * 2), content(step, 0, element * 2 + 1)};
    if (!f32) {
      bytes.insert(bytes.end(), hi, hi + 2);
      continue;
    }
    std::uint16_t high = 0;
    std::int16_t low = 0;
    const std::byte lo[] = {content(step, 1, element * 2), content(step, 1, element * 2 + 1)};
    std::memcpy(&high, hi, 2);
    std::memcpy(&low, lo, 2);
    const std::uint32_t bits = (std::uint32_t{high} << 16) + static_cast<std::uint32_t>(low);
    const auto* from = reinterpret_cast<const std::byte*>(&bits);
    bytes.insert(bytes.end(), from, from + 4);
  }
  return bytes;
}

class ExportTest : public StoreCase {
 protected:
  void SetUp() override { fs::create_directory(work_); }
  Outcome export_to(const std::string& place, std::vector<const char*> flags = {}) {
    std::vector<const char*> arguments = {"export", directory_.c_str(), "--out", place.c_str()};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return run_cli(std::move(arguments));
  }
  /// The tensors of a file have the contents of `step`; returns their names.
  static std::set<std::string> check_file(const fs::path& path, std::uint64_t step, bool f32) {
    std::set<std::string> names;
    const std::vector<std::byte> bytes = bytes_of(path);
    const auto header = safetensors::parse(bytes, bytes.size(), path.string());
    EXPECT_TRUE(header) << header.error().message;
    if (!header) return names;
    EXPECT_EQ(header.value().metadata.at("format"), "pt");
    EXPECT_EQ(header.value().metadata.at("penstock.step"), std::to_string(step));
    EXPECT_EQ(header.value().data_start % 8, 0U);
    for (const safetensors::Tensor& tensor : header.value().tensors) {
      EXPECT_TRUE(names.insert(tensor.name).second);
      for (const CaseTensor& known : kTensors) {
        if (known.name != tensor.name) continue;
        EXPECT_EQ(tensor.dtype, f32 ? "F32" : "BF16");
        EXPECT_EQ(tensor.shape, known.shape);
        const auto begin =
            bytes.begin() + static_cast<std::ptrdiff_t>(header.value().data_start + tensor.begin);
        EXPECT_TRUE(std::vector<std::byte>(
                        begin, begin + static_cast<std::ptrdiff_t>(tensor.end - tensor.begin)) ==
                    expected_bytes(known, step, f32))
            << tensor.name;
      }
    }
    return names;
  }
  std::set<std::string> left() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(work_)) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }

  const std::set<std::string> all_ = {"a.large", "z.small"};
  const std::string work_ = temporary_.path() + "/work", out_ = work_ + "/model";
};

TEST(PlanShardsTest, CutsInOrderAndKeepsLargeTensorsAlone) {
  using Counts = std::vector<std::size_t>;
  EXPECT_EQ(plan_shards({}, 10), Counts({0}));
  EXPECT_EQ(plan_shards({4, 4, 4}, 12), Counts({3}));
  EXPECT_EQ(plan_shards({4, 4, 4}, 11), Counts({2, 1}));
  EXPECT_EQ(plan_shards({4, 100, 4, 4}, 10), Counts({1, 1, 2}));
  EXPECT_EQ(plan_shards({100, 100}, 1), Counts({1, 1}));
  EXPECT_EQ(plan_shards({0, 0, 5}, 5), Counts({3}));
  EXPECT_EQ(plan_shards({~std::uint64_t{0}, ~std::uint64_t{0}}, ~std::uint64_t{0}), Counts({1, 1}));
}

TEST_F(ExportTest, WritesOneFileWithTheStoresBits) {
  for (const auto& blocks : {std::vector<std::uint64_t>{kGroupElements}, {16384, 16384, 7232}}) {
    for (const bool f32 : {false, true}) {
      fs::remove_all(directory_);
      fs::remove_all(out_);
      make_store(blocks);
      const Outcome outcome = export_to(out_, {"--dtype", f32 ? "f32" : "bf16", "--json"});
      ASSERT_EQ(outcome.code, ExitCode::kOk) << outcome.err;
      const json value = json::parse(outcome.out);
      EXPECT_EQ(value["schema"], "penstock.export/1");
      EXPECT_EQ(value["step"], kFirstStep);
      EXPECT_EQ(value["tensors"], 2);
      EXPECT_EQ(value["tensor_bytes"], 30'015 * (f32 ? 4 : 2));
      ASSERT_EQ(value["files"].size(), 1U) << "not of penstock train: no config.json";
      EXPECT_EQ(value["files"][0]["name"], "model.safetensors");
      EXPECT_EQ(value["files"][0]["bytes"], fs::file_size(out_ + "/model.safetensors"));
      EXPECT_EQ(check_file(out_ + "/model.safetensors", kFirstStep, f32), all_);
      EXPECT_EQ(left(), std::set<std::string>{"model"});
      std::set<std::string> inside;
      for (const auto& entry : fs::directory_iterator(out_)) {
        inside.insert(entry.path().filename().string());
      }
      EXPECT_EQ(inside, std::set<std::string>{"model.safetensors"});
    }
  }
}

TEST_F(ExportTest, WritesShardsWithAnIndex) {
  make_store({16384, 16384, 7232});
  const Outcome outcome = export_to(out_, {"--max-shard", "100B"});
  ASSERT_EQ(outcome.code, ExitCode::kOk) << outcome.err;
  std::ifstream file(out_ + "/model.safetensors.index.json");
  const json index = json::parse(file);
  EXPECT_EQ(index["metadata"]["total_size"], 30'015 * 2);
  std::set<std::string> seen;
  for (const char* name :
       {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}) {
    const auto names = check_file(fs::path(out_) / name, kFirstStep, false);
    ASSERT_EQ(names.size(), 1U);
    EXPECT_EQ(index["weight_map"][*names.begin()], name);
    seen.insert(names.begin(), names.end());
  }
  EXPECT_EQ(seen, all_);
  EXPECT_EQ(index["weight_map"].size(), 2U);
}

TEST_F(ExportTest, WritesASingleNamedFile) {
  make_store({kGroupElements});
  const std::string place = work_ + "/weights.safetensors";
  const Outcome outcome = export_to(place, {"--json", "--step", "3"});
  ASSERT_EQ(outcome.code, ExitCode::kOk) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out)["files"][0]["name"], "weights.safetensors");
  EXPECT_EQ(check_file(place, kFirstStep, false), all_);
  EXPECT_EQ(left(), std::set<std::string>{"weights.safetensors"});
  struct stat info {};
  ASSERT_EQ(::stat(place.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600U);
  const Outcome again = export_to(place);
  EXPECT_EQ(again.code, ExitCode::kFailed);
  EXPECT_NE(again.err.find("File exists"), std::string::npos) << again.err;
  EXPECT_EQ(check_file(place, kFirstStep, false), all_) << "nothing is written over";
}

TEST_F(ExportTest, ShowsWhatIsInAFile) {
  make_store({kGroupElements});
  const std::string place = work_ + "/weights.safetensors";
  ASSERT_EQ(export_to(place).code, ExitCode::kOk);
  const Outcome shown = run_cli({"inspect", place.c_str(), "--json"});
  ASSERT_EQ(shown.code, ExitCode::kOk) << shown.err;
  const json value = json::parse(shown.out);
  EXPECT_EQ(value["schema"], "penstock.safetensors/1");
  EXPECT_EQ(value["metadata"]["penstock.step"], "3");
  ASSERT_EQ(value["tensors"].size(), 2U);
  EXPECT_EQ(value["tensors"][1]["name"], "a.large");
  EXPECT_EQ(value["tensors"][1]["shape"], json({300, 100}));
  EXPECT_EQ(value["tensors"][1]["offset_bytes"].get<std::uint64_t>() + 60'000,
            fs::file_size(place));
  EXPECT_NE(run_cli({"inspect", place.c_str()}).out.find("a.large: BF16 [300, 100]"),
            std::string::npos);
  const Outcome other = run_cli({"inspect", place.c_str(), "--tensor", "z.smal"});
  EXPECT_EQ(other.code, ExitCode::kUsage);
  EXPECT_NE(other.err.find("did you mean \"z.small\""), std::string::npos) << other.err;
  EXPECT_EQ(run_cli({"inspect", place.c_str(), "--verify"}).code, ExitCode::kUsage);
  fs::resize_file(place, fs::file_size(place) - 1);
  const Outcome cut = run_cli({"inspect", place.c_str()});
  EXPECT_EQ(cut.code, ExitCode::kFailed);
  EXPECT_EQ(cut.out, "");
}

TEST_F(ExportTest, TakesAnEmptyDirectoryAndNoOther) {
  make_store({kGroupElements});
  fs::create_directory(out_);
  fs::permissions(out_, fs::perms(0750));
  ASSERT_EQ(export_to(out_).code, ExitCode::kOk);
  EXPECT_EQ(fs::status(out_).permissions(), fs::perms(0750)) << "it is the user's";
  const Outcome full = export_to(out_);
  EXPECT_EQ(full.code, ExitCode::kFailed);
  EXPECT_NE(full.err.find("nothing is written over"), std::string::npos) << full.err;
  EXPECT_EQ(left(), std::set<std::string>{"model"});
}

// Method: a training commits twice while the first bytes are exported, so that slots of the commit
// being read are written anew; what is exported must be one commit, the newest.
TEST_F(ExportTest, ExportsOneCommitWhileATrainingGoesOn) {
  make_store({16384, 16384, 7232});
  auto reader = StoreReader::open(*storage_, directory_);
  ASSERT_TRUE(reader) << reader.error().message;
  std::uint64_t step = kFirstStep;
  bool moved = false;
  ExportOptions options;
  options.place = out_;
  options.f32 = true;
  const std::atomic<bool> stop = false;
  const auto train = [&](std::uint64_t, std::uint64_t) {
    if (std::exchange(moved, true)) return;
    commit_next(++step);
    commit_next(++step);
  };
  auto exported = export_store(*reader.value(), options, stop, train);
  ASSERT_TRUE(exported) << exported.error().message;
  EXPECT_EQ(exported.value().step, kFirstStep + 2);
  EXPECT_EQ(check_file(out_ + "/model.safetensors", kFirstStep + 2, true), all_);

  // A step that was asked for is not exchanged for another.
  fs::remove_all(out_);
  moved = false;
  options.step = step;
  exported = export_store(*reader.value(), options, stop, train);
  ASSERT_FALSE(exported);
  EXPECT_NE(exported.error().message.find("went on to step 7 while step 5"), std::string::npos)
      << exported.error().message;
  EXPECT_EQ(left(), std::set<std::string>());
}

TEST_F(ExportTest, LeavesNothingBehindWhenStopped) {
  make_store({16384, 16384, 7232});
  auto reader = StoreReader::open(*storage_, directory_);
  ASSERT_TRUE(reader);
  std::atomic<bool> stop = false;
  for (const bool single : {false, true}) {
    stop = false;
    ExportOptions options;
    options.place = out_;
    options.single_file = single;
    auto exported = export_store(*reader.value(), options, stop,
                                 [&](std::uint64_t, std::uint64_t) { stop = true; });
    ASSERT_FALSE(exported);
    EXPECT_EQ(exported.error().code, Errc::kCancelled);
    EXPECT_EQ(left(), std::set<std::string>());
  }
}

TEST_F(ExportTest, LeavesNothingBehindWhenWritingFails) {
  make_store({kGroupElements});
  std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  for (const rlim_t limit : {0U, 10U, 5000U, 60'000U}) {
    for (const std::string& place : {out_, work_ + "/x.safetensors"}) {
      struct rlimit small = before;
      small.rlim_cur = limit;
      ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
      // Captured output goes through a file, which the limit would hit.
      auto reader = StoreReader::open(*storage_, directory_);
      ExportOptions options;
      options.place = place;
      options.single_file = place != out_;
      const std::atomic<bool> stop = false;
      auto exported = export_store(*reader.value(), options, stop);
      ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
      ASSERT_FALSE(exported) << limit;
      EXPECT_EQ(exported.error().code, Errc::kNoSpace) << exported.error().message;
      EXPECT_EQ(left(), std::set<std::string>()) << limit;
    }
  }
}

TEST_F(ExportTest, RefusesDamagedWeights) {
  make_store({kGroupElements});
  flip(section_offset(0, 1) + 9);
  EXPECT_EQ(export_to(out_).code, ExitCode::kOk) << "bf16 needs no lo";
  fs::remove_all(out_);
  const Outcome outcome = export_to(out_, {"--dtype", "f32"});
  EXPECT_EQ(outcome.code, ExitCode::kFailed);
  EXPECT_NE(outcome.err.find("fails its checksum"), std::string::npos) << outcome.err;
  EXPECT_EQ(left(), std::set<std::string>());
}

TEST_F(ExportTest, RefusesWhatItCannotDo) {
  make_store({kGroupElements});
  const auto refused = [&](const Outcome& outcome, ExitCode code, const char* part) {
    EXPECT_EQ(outcome.code, code) << part;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  };
  const std::string file = work_ + "/x.safetensors";
  refused(run_cli({"export", directory_.c_str()}), ExitCode::kUsage, "--out is missing");
  refused(export_to(out_, {"--dtype", "f16"}), ExitCode::kUsage, "bf16|f32");
  refused(export_to(out_, {"--max-shard", "0"}), ExitCode::kUsage, "--max-shard");
  refused(export_to(out_, {"--max-shard", "5X"}), ExitCode::kUsage, "--max-shard");
  refused(export_to(file, {"--max-shard", "5GB"}), ExitCode::kUsage, "is one file");
  refused(export_to(out_, {"--step", "last"}), ExitCode::kUsage, "--step");
  refused(export_to(out_, {"--step", "4"}), ExitCode::kFailed, "the last commit");
  refused(export_to(work_ + "/none/model"), ExitCode::kUsage, "create");
  std::ofstream(work_ + "/file") << "x";
  refused(export_to(work_ + "/file"), ExitCode::kUsage, "Not a directory");
  refused(export_to(work_ + "/file/model"), ExitCode::kUsage, "Not a directory");
  fs::remove(work_ + "/file");
  EXPECT_EQ(left(), std::set<std::string>());
}

TEST_F(ExportTest, LeavesWhatAnotherExportIsWritingAlone) {
  make_store({kGroupElements});
  fs::create_directory(out_ + ".penstock-export");
  const Outcome outcome = export_to(out_);
  EXPECT_EQ(outcome.code, ExitCode::kFailed);
  EXPECT_NE(outcome.err.find("penstock clean"), std::string::npos) << outcome.err;
  EXPECT_EQ(left(), std::set<std::string>{"model.penstock-export"});
}

}  // namespace
}  // namespace penstock::test
