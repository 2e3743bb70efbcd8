// Method: stores with known contents, cut into blocks of different sizes, on a real directory; the
// hash is computed a second time from the contents themselves.

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/checksum.hpp"
#include "base/random.hpp"
#include "cli/app.hpp"
#include "io/page_buffer.hpp"
#include "io/section_sums.hpp"
#include "io/store.hpp"

namespace penstock {
namespace {

using nlohmann::json;

constexpr std::uint64_t kGroupElements = 40'000;
constexpr std::size_t kWidths[] = {2, 2, 4, 4};  // hi, lo, m, v

// Byte `index` of a section of the only group.
std::byte content(std::size_t section, std::uint64_t index) {
  return static_cast<std::byte>(mix64(9, section, index));
}

struct Tensor {
  const char* name;
  std::uint64_t offset;
  std::vector<std::uint64_t> shape;
};
// Registered in another order than that of the names, with a gap between.
const std::vector<Tensor> kTensors = {{"z.small", 0, {5, 3}}, {"a.large", 4096, {300, 100}}};

class InspectTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = (std::filesystem::temp_directory_path() /
                  ("penstock_inspect_" + std::to_string(::getpid())))
                     .string();
    std::filesystem::remove_all(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  static json describe(const std::vector<std::uint64_t>& blocks) {
    json tensors = json::array();
    for (const Tensor& tensor : kTensors) {
      tensors.push_back({{"name", tensor.name},
                         {"group", 0},
                         {"offset", tensor.offset},
                         {"shape", tensor.shape},
                         {"trainable", true}});
    }
    return {{"groups",
             {{{"name", "layer"},
               {"elements", kGroupElements},
               {"first_block", 0},
               {"blocks", blocks}}}},
            {"tensors", tensors},
            {"trainer", {{"model", "nano"}}}};
  }

  void make_store(const std::vector<std::uint64_t>& blocks, const std::string& description) {
    StoreGeometry geometry;
    geometry.sections = {{"hi", "bf16", true, 2 * kTileElements},
                         {"lo", "i16", true, 2 * kTileElements},
                         {"m", "f32", true, 4 * kTileElements},
                         {"v", "f32", true, 4 * kTileElements}};
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      BlockGeometry block;
      block.key = 100 + i;
      for (const std::size_t width : kWidths) block.lengths.push_back(blocks[i] * width);
      geometry.blocks.push_back(block);
    }
    geometry.description = description;
    const auto storage = make_posix_storage();
    auto created = create_store(*storage, directory_, geometry, {});
    ASSERT_TRUE(created) << created.error().message;
    Store& store = *created.value();
    SlotTable table = store.make_table();
    std::uint64_t first = 0;
    for (std::size_t block = 0; block < blocks.size(); ++block) {
      write_block(*storage, store, table, block, first);
      first += blocks[block];
    }
    table.commit_begin();
    for (std::size_t block = 0; block < blocks.size(); ++block) table.commit_record(block);
    CommitRecord record;
    record.step = 3;
    record.updates = 2;
    record.blob = {std::byte{1}, std::byte{2}, std::byte{3}};
    const Status committed = store.commit(record, table.commit_entries());
    ASSERT_TRUE(committed) << committed.error().message;
  }

  static void write_block(Storage& storage, const Store& store, SlotTable& table, std::size_t block,
                          std::uint64_t first_element) {
    const SlotIndex slot = table.choose_target(block, 2);
    for (std::size_t section = 0; section < 4; ++section) {
      const SectionExtent& extent = store.extents(block)[section];
      PageBuffer bytes(extent.total_bytes());
      for (std::uint64_t i = 0; i < extent.data_bytes; ++i) {
        bytes.span()[i] = content(section, first_element * kWidths[section] + i);
      }
      const std::uint64_t root =
          seal_section(store, block, 2, section, bytes.first(extent.total_bytes()));
      const DriveExtent place = store.slot(slot);
      ASSERT_TRUE(storage.write_at(place.file, place.offset_bytes + extent.data_offset,
                                   bytes.first(extent.total_bytes())));
      table.landed(block, 2, slot, section, root);
    }
  }

  static std::string expected_hash() {
    StreamHash128 hash;
    for (const Tensor& tensor : {kTensors[1], kTensors[0]}) {  // by name
      const std::uint64_t elements = std::accumulate(tensor.shape.begin(), tensor.shape.end(),
                                                     std::uint64_t{1}, std::multiplies<>());
      for (std::size_t section = 0; section < 4; ++section) {
        for (std::uint64_t i = 0; i < elements * kWidths[section]; ++i) {
          const std::byte byte = content(section, tensor.offset * kWidths[section] + i);
          hash.update(&byte, 1);
        }
      }
    }
    const std::byte blob[] = {std::byte{1}, std::byte{2}, std::byte{3}};
    hash.update(blob, sizeof blob);
    return to_hex(hash.digest());
  }

  struct Outcome {
    ExitCode code;
    std::string out, err;
  };
  Outcome inspect(std::vector<const char*> flags = {}) {
    std::vector<const char*> arguments = {"penstock", "inspect", directory_.c_str()};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const ExitCode code = run_program(static_cast<int>(arguments.size()), arguments.data());
    return {code, testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
  }

  std::string directory_;
};

TEST_F(InspectTest, SaysWhatAStoreHolds) {
  make_store({kGroupElements}, describe({kGroupElements}).dump());
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
  EXPECT_TRUE(value["damage"].empty());
}

TEST_F(InspectTest, HashesTheSameForEveryBlockSize) {
  const std::vector<std::vector<std::uint64_t>> cuts = {
      {kGroupElements}, {16384, 16384, 7232}, {4096, 35904}};
  for (const auto& blocks : cuts) {
    std::filesystem::remove_all(directory_);
    make_store(blocks, describe(blocks).dump());
    const Outcome outcome = inspect({"--json", "--hash"});
    ASSERT_EQ(outcome.code, ExitCode::kOk) << outcome.err;
    EXPECT_EQ(json::parse(outcome.out)["hash"], expected_hash()) << blocks.size();
  }
}

TEST_F(InspectTest, FindsFlippedAndMissingBytes) {
  make_store({kGroupElements}, describe({kGroupElements}).dump());
  const std::string data = directory_ + "/data.0";
  const auto offset = json::parse(inspect({"--json"}).out)["slot_bytes"].get<std::uint64_t>() / 2;
  // Flips a byte of each slot: the committed one is hit wherever it lies.
  std::fstream file(data, std::ios::in | std::ios::out | std::ios::binary);
  const std::uint64_t bytes = std::filesystem::file_size(data);
  for (std::uint64_t at = 8192 + offset; at < bytes; at += 2 * offset) {
    file.seekg(static_cast<std::streamoff>(at));
    const char byte = static_cast<char>(file.get());
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(byte ^ 0x10));
  }
  file.close();
  const Outcome verified = inspect({"--verify"});
  EXPECT_EQ(verified.code, ExitCode::kFailed);
  EXPECT_NE(verified.out.find("damaged places"), std::string::npos) << verified.out;
  EXPECT_NE(verified.err.find("is damaged"), std::string::npos) << verified.err;
  EXPECT_EQ(inspect({"--hash"}).code, ExitCode::kFailed);

  std::filesystem::resize_file(data, 100);
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
  for (const std::string& bad : {std::string("{}"), std::string("nonsense"), outside.dump(),
                                 overflow.dump(), group.dump(), blocks.dump(), many.dump()}) {
    std::filesystem::remove_all(directory_);
    make_store({kGroupElements}, bad);
    const Outcome outcome = inspect({"--hash"});
    EXPECT_EQ(outcome.code, ExitCode::kFailed) << bad;
    EXPECT_NE(outcome.err.find("the description in the store"), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
}

}  // namespace
}  // namespace penstock
