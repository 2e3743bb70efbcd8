#pragma once

/// A store with known contents in a real directory, and the program run on it.
///
/// One group, two tensors with a gap between them, four sections; what a byte is depends on step,
/// section and place only, so that other cuts into blocks hold the same state.

#include <functional>
#include <memory>
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
#include "temporary_directory.hpp"

namespace penstock::test {

using nlohmann::json;

inline constexpr std::uint64_t kGroupElements = 40'000;
inline constexpr std::size_t kWidths[] = {2, 2, 4, 4};  // hi, lo, m, v
inline constexpr std::uint64_t kFirstStep = 3;

/// Byte `index` of a section of the only group.
inline std::byte content(std::uint64_t step, std::size_t section, std::uint64_t index) {
  return static_cast<std::byte>(mix64(step, section, index));
}

struct CaseTensor {
  const char* name;
  std::uint64_t offset;
  std::vector<std::uint64_t> shape;
  [[nodiscard]] std::uint64_t elements() const {
    return std::accumulate(shape.begin(), shape.end(), std::uint64_t{1}, std::multiplies<>());
  }
};
/// Registered in another order than that of the names.
inline const std::vector<CaseTensor> kTensors = {{"z.small", 0, {5, 3}},
                                                 {"a.large", 4096, {300, 100}}};

inline json describe(const std::vector<std::uint64_t>& blocks) {
  json tensors = json::array();
  for (const CaseTensor& tensor : kTensors) {
    tensors.push_back({{"name", tensor.name},
                       {"group", 0},
                       {"offset", tensor.offset},
                       {"shape", tensor.shape},
                       {"trainable", true}});
  }
  return {
      {"groups",
       {{{"name", "layer"}, {"elements", kGroupElements}, {"first_block", 0}, {"blocks", blocks}}}},
      {"tensors", tensors},
      {"trainer", {{"model", "nano"}}}};
}

/// What a run of the program gave.
struct Outcome {
  ExitCode code;
  std::string out, err;
};

inline Outcome run_cli(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "penstock");
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const ExitCode code = run_program(static_cast<int>(arguments.size()), arguments.data());
  return {code, ::testing::internal::GetCapturedStdout(), ::testing::internal::GetCapturedStderr()};
}

class StoreCase : public ::testing::Test {
 protected:
  [[nodiscard]] StoreDirectories directories() const {
    return second_.empty() ? StoreDirectories(directory_)
                           : StoreDirectories(std::vector<std::string>{directory_, second_});
  }

  /// A store with step kFirstStep committed, closed again.
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
    geometry.pins = room_;
    geometry.drives.assign(directories().size(), 1);
    auto created = create_store(*storage_, directories(), geometry, {});
    ASSERT_TRUE(created) << created.error().message;
    store_ = std::move(created).value();
    table_ = std::make_unique<SlotTable>(store_->make_table());
    blocks_ = blocks;
    commit(kFirstStep);
    store_.reset();
  }
  void make_store(const std::vector<std::uint64_t>& blocks) {
    make_store(blocks, describe(blocks).dump());
  }

  /// Goes on as a training would: opens the store for writing unless it is, writes every block and
  /// commits.
  void commit_next(std::uint64_t step) {
    if (store_ == nullptr) {
      auto opened = open_store(*storage_, directories(), {}, /*writable=*/true);
      ASSERT_TRUE(opened) << opened.error().message;
      store_ = std::move(opened).value();
      table_ = std::make_unique<SlotTable>(store_->make_table());
    }
    commit(step);
  }

  static std::string expected_hash(std::uint64_t step) {
    StreamHash128 hash;
    for (const CaseTensor& tensor : {kTensors[1], kTensors[0]}) {  // by name
      for (std::size_t section = 0; section < 4; ++section) {
        for (std::uint64_t i = 0; i < tensor.elements() * kWidths[section]; ++i) {
          const std::byte byte = content(step, section, tensor.offset * kWidths[section] + i);
          hash.update(&byte, 1);
        }
      }
    }
    const std::byte blob[] = {std::byte{1}, std::byte{2}, std::byte{3}};
    hash.update(blob, sizeof blob);
    return to_hex(hash.digest());
  }

  /// Where a section of a block begins in the data file, as the last commit or a checkpoint has it.
  std::uint64_t section_offset(std::size_t block, std::size_t section,
                               const std::string& checkpoint = {}) {
    StoreOptions options;
    options.pin = checkpoint;
    auto opened = open_store(*storage_, directory_, options, /*writable=*/false);
    const SlotTable table = opened.value()->make_table();
    return opened.value()->slot(table.entry(block).slot).offset_bytes +
           opened.value()->extents(block)[section].data_offset;
  }

  void flip(std::uint64_t offset) {
    const std::string path = directory_ + "/data.0";
    std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "r+b"),
                                                         &std::fclose);
    ASSERT_NE(file, nullptr);
    std::fseek(file.get(), static_cast<long>(offset), SEEK_SET);
    const int byte = std::fgetc(file.get());
    std::fseek(file.get(), static_cast<long>(offset), SEEK_SET);
    std::fputc(byte ^ 0x10, file.get());
  }

  penstock::testing::TemporaryDirectory temporary_;
  std::string directory_ = temporary_.store();
  std::string second_;      // directory of a second drive
  std::uint32_t room_ = 0;  // for checkpoints
  std::unique_ptr<Storage> storage_ = make_posix_storage();
  std::unique_ptr<Store> store_;  // while it is open for writing
  std::unique_ptr<SlotTable> table_;
  std::vector<std::uint64_t> blocks_;

 private:
  void commit(std::uint64_t step) {
    std::uint64_t first = 0;
    for (std::size_t block = 0; block < blocks_.size(); ++block) {
      write_block(step, block, first);
      first += blocks_[block];
    }
    table_->commit_begin();
    for (std::size_t block = 0; block < blocks_.size(); ++block) table_->commit_record(block);
    CommitRecord record;
    record.step = step;
    record.updates = step - 1;
    record.blob = {std::byte{1}, std::byte{2}, std::byte{3}};
    const Status committed = store_->commit(record, table_->commit_entries());
    ASSERT_TRUE(committed) << committed.error().message;
    table_->commit_finished();
  }

  void write_block(std::uint64_t step, std::size_t block, std::uint64_t first_element) {
    const SlotIndex slot = table_->choose_target(block, step);
    ASSERT_NE(slot, kNoSlot);
    for (std::size_t section = 0; section < 4; ++section) {
      const SectionExtent& extent = store_->extents(block)[section];
      PageBuffer bytes(extent.total_bytes());
      for (std::uint64_t i = 0; i < extent.data_bytes; ++i) {
        bytes.span()[i] = content(step, section, first_element * kWidths[section] + i);
      }
      const std::uint64_t root =
          seal_section(*store_, block, step, section, bytes.first(extent.total_bytes()));
      const DriveExtent place = store_->slot(slot);
      ASSERT_TRUE(storage_->write_at(place.file, place.offset_bytes + extent.data_offset,
                                     bytes.first(extent.total_bytes())));
      table_->landed(block, step, slot, section, root);
    }
  }
};

}  // namespace penstock::test
