#pragma once

// A small store on a simulated drive, with contents that are a function of (block, version,
// section).

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "io/page_buffer.hpp"
#include "io/section_sums.hpp"
#include "io/sim_storage.hpp"
#include "io/storage_pages.hpp"
#include "io/store.hpp"
#include "io/store_impl.hpp"

namespace penstock::test {

using penstock::testing::Pages;
using penstock::testing::replace_file;

inline const std::string kDirectory = "store";

/// Four sections in small tiles; lengths of every kind; the last block is frozen.
inline StoreGeometry small_geometry() {
  StoreGeometry geometry;
  geometry.sections = {{"hi", "bf16", true, 256},
                       {"lo", "i16", true, 256},
                       {"m", "f32", true, 512},
                       {"v", "f32", true, 300}};
  geometry.blocks = {{11, {1024, 1024, 2048, 2048}, false}, {12, {1024, 1024, 2048, 2048}, false},
                     {13, {1, 0, 4097, 4096}, false},       {14, {999, 3, 0, 8192}, false},
                     {15, {4095, 257, 1, 0}, false},        {16, {3000, 0, 0, 0}, true}};
  geometry.spill_bytes = {5000, 1};
  geometry.description = "{\"model\":\"test\"}";
  geometry.layout_hash = 77;
  return geometry;
}

inline StoreOptions quick_options() {
  StoreOptions options;
  options.lock_wait_ns = 0;
  options.uuid_seed = 5;
  return options;
}

inline void fill(std::size_t block, std::uint64_t version, std::size_t section,
                 std::span<std::byte> data) {
  for (std::size_t i = 0; i < data.size(); i += 8) {
    const std::uint64_t word = mix64(block * 16 + section, version, i);
    std::memcpy(data.data() + i, &word, std::min<std::size_t>(8, data.size() - i));
  }
}

/// A section as it lies on the drive, and its root.
struct SealedSection {
  Pages bytes;
  std::uint64_t root = 0;
};

inline SealedSection seal(const Store& store, std::size_t block, std::uint64_t version,
                          std::size_t section) {
  const SectionExtent& extent = store.extents(block)[section];
  SealedSection sealed{Pages(extent.total_bytes())};
  fill(block, version, section, sealed.bytes.span().first(extent.data_bytes));
  sealed.root = seal_section(store, block, version, section, sealed.bytes.span());
  return sealed;
}

/// Writes all sections of a version with blocking writes.
inline void write_version(Storage& storage, const Store& store, SlotTable& table, std::size_t block,
                          std::uint64_t version) {
  const SlotIndex slot = table.choose_target(block, version);
  ASSERT_NE(slot, kNoSlot) << "block " << block << " version " << version;
  for (std::size_t s = 0; s < store.geometry().sections.size(); ++s) {
    const SectionExtent& extent = store.extents(block)[s];
    SealedSection sealed = seal(store, block, version, s);
    const DriveExtent place = store.slot(slot);
    const Status written =
        storage.write_at(place.file, place.offset_bytes + extent.data_offset, sealed.bytes.span());
    ASSERT_TRUE(written) << written.error().message;
    table.landed(block, version, slot, s, sealed.root);
  }
}

inline CommitRecord make_record(std::uint64_t step) {
  CommitRecord record;
  record.step = step;
  record.updates = step;
  record.blob.resize(1 + step % 5 * 100);
  fill(999, step, 0, record.blob);
  return record;
}

inline Status commit_all(Store& store, SlotTable& table, std::uint64_t step) {
  table.commit_begin();
  for (std::size_t block = 0; block < table.block_count(); ++block) table.commit_record(block);
  Status done = store.commit(make_record(step), table.commit_entries());
  if (done) table.commit_finished();
  return done;
}

/// Empty when the block's committed content is that of `version`, else what is wrong.
inline std::string check_block(Store& store, const SlotTable& table, std::size_t block,
                               std::uint64_t version) {
  const SlotEntry& entry = table.entry(block);
  if (entry.version != version) {
    return "block " + std::to_string(block) + " has version " + std::to_string(entry.version) +
           ", expected " + std::to_string(version);
  }
  for (std::size_t s = 0; s < store.geometry().sections.size(); ++s) {
    const SectionExtent& extent = store.extents(block)[s];
    const Pages buffer(extent.total_bytes());
    if (Status read = store.read_section(block, s, entry, buffer.span()); !read) {
      return read.error().message;
    }
    std::vector<std::byte> expected(extent.data_bytes);
    fill(block, version, s, expected);
    if (!expected.empty() &&
        std::memcmp(expected.data(), buffer.span().data(), expected.size()) != 0) {
      return "block " + std::to_string(block) + " section " + std::to_string(s) +
             " has other bytes than were written";
    }
  }
  return {};
}

/// A simulated drive with a store in it.
class StoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<Store> create(const StoreGeometry& geometry = small_geometry(),
                                const StoreOptions& options = quick_options()) {
    auto store = create_store(*storage_, kDirectory, geometry, options);
    EXPECT_TRUE(store) << store.error().message;
    return store ? std::move(store).value() : nullptr;
  }
  std::unique_ptr<Store> open(bool writable = true) {
    auto store = open_store(*storage_, kDirectory, quick_options(), writable);
    EXPECT_TRUE(store) << store.error().message;
    return store ? std::move(store).value() : nullptr;
  }
  Error open_error(bool writable = true) {
    auto store = open_store(*storage_, kDirectory, quick_options(), writable);
    if (store) return make_error(Errc::kOk, "it opened");
    return store.error();
  }
  void write_all(const Store& store, SlotTable& table, std::uint64_t version) {
    for (std::size_t block = 0; block < store.geometry().blocks.size(); ++block) {
      if (version != 0 && store.geometry().blocks[block].frozen) continue;
      write_version(*storage_, store, table, block, version);
    }
  }
  /// A store with steps 0..last committed, closed again.
  void make_committed(std::uint64_t last) {
    auto store = create();
    SlotTable table = store->make_table();
    for (std::uint64_t step = 0; step <= last; ++step) {
      write_all(*store, table, step);
      const Status done = commit_all(*store, table, step);
      ASSERT_TRUE(done) << done.error().message;
    }
  }
  void expect_state(Store& store, std::uint64_t step) {
    EXPECT_EQ(store.committed().step, step);
    EXPECT_EQ(store.committed().blob, make_record(step).blob);
    const SlotTable table = store.make_table();
    for (std::size_t block = 0; block < table.block_count(); ++block) {
      const bool frozen = store.geometry().blocks[block].frozen;
      EXPECT_EQ(check_block(store, table, block, frozen ? 0 : step), "");
    }
  }
  bool exists(const std::string& name) { return storage_->exists(kDirectory + "/" + name).value(); }
  /// Writes raw bytes into a file of the directory.
  void overwrite(const std::string& name, std::uint64_t offset, std::span<const std::byte> bytes) {
    auto file = storage_->open(kDirectory + "/" + name, {});
    ASSERT_TRUE(file);
    ASSERT_TRUE(storage_->write_at(file.value(), offset, bytes));
    ASSERT_TRUE(storage_->close(file.value()));
  }
  /// Of a manifest's file, the manifest.
  std::vector<std::byte> bytes_of(const std::string& name) {
    auto bytes = storage_->read_file(kDirectory + "/" + name, std::uint64_t{1} << 30).value();
    if (parse_manifest_name(name)) bytes.resize(manifest_in(bytes).size());
    return bytes;
  }

  Timeline timeline_{1};
  std::unique_ptr<SimStorage> storage_ = make_sim_storage(timeline_);
};

}  // namespace penstock::test
