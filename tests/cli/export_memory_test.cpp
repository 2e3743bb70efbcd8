// Method: a tensor of 48 MiB in blocks of 2 MiB is exported, and the largest resident memory of the
// process meanwhile is read from the kernel.

#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/store_export.hpp"
#include "io/page_buffer.hpp"
#include "io/section_sums.hpp"
#include "sanitizers.hpp"
#include "temporary_directory.hpp"

namespace penstock::test {
namespace {

using nlohmann::json;

constexpr std::uint64_t kBlocks = 24, kBlockElements = std::uint64_t{1} << 20;
constexpr std::uint64_t kTensorBytes = kBlocks * kBlockElements * 2;

/// The value of a line such as "VmHWM:  123 kB" of /proc/self/status, in bytes.
std::uint64_t status_bytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key + ":")) return std::stoull(line.substr(key.size() + 1)) * 1024;
  }
  return 0;
}

/// Whether the kernel forgot the largest memory so far.
bool forget_peak() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  return file.good();
}

void make_frozen_store(Storage& storage, const std::string& directory) {
  StoreGeometry geometry;
  geometry.sections = {{"hi", "bf16", true, 2 * kTileElements}};
  json blocks = json::array();
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    geometry.blocks.push_back({100 + i, {kBlockElements * 2}, /*frozen=*/true});
    blocks.push_back(kBlockElements);
  }
  const std::uint64_t elements = kBlocks * kBlockElements;
  const json group = {
      {"name", "g"}, {"elements", elements}, {"first_block", 0}, {"blocks", blocks}};
  const json tensor = {{"name", "w"}, {"group", 0}, {"offset", 0}, {"shape", {elements}}};
  geometry.description = json{{"groups", {group}}, {"tensors", {tensor}}}.dump();
  auto created = create_store(storage, directory, geometry, {});
  ASSERT_TRUE(created) << created.error().message;
  Store& store = *created.value();
  SlotTable table = store.make_table();
  for (std::size_t block = 0; block < kBlocks; ++block) {
    const SlotIndex slot = table.choose_target(block, 0);
    const SectionExtent& extent = store.extents(block)[0];
    PageBuffer bytes(extent.total_bytes());
    bytes.span()[block] = std::byte{1};
    const std::uint64_t root = seal_section(store, block, 0, 0, bytes.first(extent.total_bytes()));
    const DriveExtent place = store.slot(slot);
    ASSERT_TRUE(storage.write_at(place.file, place.offset_bytes + extent.data_offset,
                                 bytes.first(extent.total_bytes())));
    table.landed(block, 0, slot, 0, root);
  }
  table.commit_begin();
  for (std::size_t block = 0; block < kBlocks; ++block) table.commit_record(block);
  const Status committed = store.commit({}, table.commit_entries());
  ASSERT_TRUE(committed) << committed.error().message;
}

TEST(ExportMemoryTest, IsThatOfABlockNotOfATensor) {
  if (penstock::testing::kSanitized) {
    GTEST_SKIP() << "a sanitizer's own memory would be measured; the release preset measures ours";
  }
  const penstock::testing::TemporaryDirectory directory;
  const auto storage = make_posix_storage();
  make_frozen_store(*storage, directory.store());
  if (HasFatalFailure()) return;
  const auto reader = StoreReader::open(*storage, directory.store());
  ASSERT_TRUE(reader) << reader.error().message;
  ExportOptions options;
  options.place = directory.path() + "/model";
  const std::atomic<bool> never{false};
  if (!forget_peak()) GTEST_SKIP() << "/proc/self/clear_refs cannot be written";
  const std::uint64_t before = status_bytes("VmHWM");
  const auto exported = export_store(*reader.value(), options, never);
  const std::uint64_t after = status_bytes("VmHWM");
  ASSERT_TRUE(exported) << exported.error().message;
  EXPECT_EQ(exported.value().tensor_bytes, kTensorBytes);
  ASSERT_GT(before, 0U);
  EXPECT_LE(after - before, std::uint64_t{12} << 20) << "of a tensor of 48 MiB";
}

}  // namespace
}  // namespace penstock::test
