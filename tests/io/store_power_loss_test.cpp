// Method: a small training-like workload runs on a simulated drive, with writes in flight while a
// commit is made. After every operation of the drive several power losses are taken; what is left
// is opened and read in full. It must be a step that was committed, at least the newest
// acknowledged one, with its blob and every byte of every section. Then the same harness runs with
// each rule of the protocol broken on purpose, and must notice.
//
// PENSTOCK_POWER_LOSS_IMAGES sets how many images are opened (default 20,000).

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>

#include "io/store_fixture.hpp"

namespace penstock::test {
namespace {

constexpr std::uint64_t kSteps = 6;
constexpr std::size_t kSectionCount = 4;

struct Verdict {
  std::uint64_t images = 0;     // opened
  std::uint64_t committed = 0;  // that held a commit
  std::uint64_t bad = 0;
  std::string first;  // the first bad one, in words
};

struct Setup {
  std::uint64_t seed = 0;
  std::uint64_t interval = 1;  // K
  std::uint64_t images_per_operation = 4;
  ProtocolFaults faults;
};

/// One run of the workload and the power losses during it.
class World final : private CompletionSink {
 public:
  World(const Setup& setup, std::uint64_t max_images, Verdict& verdict)
      : setup_(setup), max_images_(max_images), verdict_(verdict), timeline_(setup.seed) {}

  void run() {
    storage_->set_observer([this](std::uint64_t operation) { take_images(operation); });
    StoreOptions options = quick_options();
    options.uuid_seed = setup_.seed + 1;
    options.faults = setup_.faults;
    auto store = create_store(*storage_, kDirectory, small_geometry(), options);
    ASSERT_TRUE(store) << store.error().message;
    store_ = std::move(store).value();
    table_.emplace(store_->make_table());
    queue_ = storage_->make_queue(*this, {}).value();
    versions_.assign(store_->geometry().blocks.size(), 0);
    for (std::size_t block = 0; block < versions_.size(); ++block) write(block, 0);
    land_all();
    begin_commit(0);
    finish_commit();
    for (std::uint64_t step = 1; step <= kSteps && !done(); ++step) run_step(step);
    finish_commit();
    EXPECT_TRUE(done() || acknowledged_ == kSteps);
    land_all();
    queue_.reset();
  }

 private:
  struct Write {
    std::size_t block, section;
    std::uint64_t version;
    SlotIndex slot;
    SealedSection sealed;
  };

  bool done() const { return verdict_.images >= max_images_; }
  std::uint64_t draw() { return mix64(setup_.seed, 1, drawn_++); }

  void io_complete(const IoCompletion& completion) noexcept override {
    const Write& write = writes_.at(completion.cookie);
    EXPECT_EQ(completion.code, Errc::kOk);
    table_->landed(write.block, write.version, write.slot, write.section, write.sealed.root);
    writes_.erase(completion.cookie);
  }

  void run_step(std::uint64_t step) {
    for (std::size_t block = 0; block < versions_.size(); ++block) {
      const bool frozen = store_->geometry().blocks[block].frozen;
      if (frozen || draw() % 4 == 0) continue;  // no gradient: left alone
      write(block, step);
      for (std::uint64_t i = draw() % 4; i > 0; --i) timeline_.run_one();
      if (draw() % 4 == 0) finish_commit();  // the commit of an earlier step, amid these writes
    }
    land_all();
    finish_commit();
    if (step % setup_.interval == 0 || step == kSteps) begin_commit(step);
  }

  void write(std::size_t block, std::uint64_t version) {
    SlotIndex slot = table_->choose_target(block, version);
    if (slot == kNoSlot) {  // the pool is empty until the commit is through
      finish_commit();
      slot = table_->choose_target(block, version);
    }
    ASSERT_NE(slot, kNoSlot);
    versions_[block] = version;
    const DriveExtent place = store_->slot(slot);
    for (std::size_t s = 0; s < kSectionCount; ++s) {
      const SectionExtent& extent = store_->extents(block)[s];
      if (extent.data_bytes == 0) continue;
      const std::uint64_t cookie = next_cookie_++;
      Write& write =
          writes_.emplace(cookie, Write{block, s, version, slot, seal(*store_, block, version, s)})
              .first->second;
      IoRequest request;
      request.op = IoOp::kWrite;
      request.io_class = IoClass::kWriteBack;
      request.file = place.file;
      request.offset_bytes = place.offset_bytes + extent.data_offset;
      request.memory = write.sealed.bytes.span().data();
      request.bytes = extent.total_bytes();
      request.cookie = cookie;
      ASSERT_TRUE(queue_->submit({&request, 1}));
    }
  }

  void land_all() {
    while (!writes_.empty()) ASSERT_TRUE(timeline_.run_one());
  }

  void begin_commit(std::uint64_t step) {
    table_->commit_begin();
    for (std::size_t block = 0; block < versions_.size(); ++block) table_->commit_record(block);
    ASSERT_TRUE(table_->commit_complete());
    attempting_ = step;
    committed_versions_[step] = versions_;
  }

  void finish_commit() {
    if (!table_->commit_in_progress()) return;
    const Status done = store_->commit(make_record(*attempting_), table_->commit_entries());
    ASSERT_TRUE(done) << done.error().message;
    table_->commit_finished();
    acknowledged_ = attempting_;
  }

  void take_images(std::uint64_t operation) {
    for (std::uint64_t i = 0; i < setup_.images_per_operation && !done(); ++i) {
      const std::uint64_t seed = mix64(setup_.seed, operation, i);
      Timeline timeline(seed);
      auto image = storage_->after_power_loss(timeline, seed);
      ++verdict_.images;
      const std::string problem = judge(*image);
      if (problem.empty()) continue;
      if (verdict_.bad++ != 0) continue;
      verdict_.first = "seed " + std::to_string(setup_.seed) + " operation " +
                       std::to_string(operation) + " image " + std::to_string(i) + ": " + problem;
    }
  }

  /// Empty when what the power loss left is as promised.
  std::string judge(SimStorage& image) {
    std::optional<std::uint64_t> step;
    std::string problem = judge_opened(image, step);
    if (!problem.empty() || !step || draw_image() % 16 != 0) return problem;
    return go_on(image, *step);
  }

  /// What was left must also serve as a beginning: one more step, acknowledged, and the lights go
  /// out again.
  std::string go_on(SimStorage& image, std::uint64_t step) {
    std::vector<std::uint64_t> versions = committed_versions_[step];
    auto store = open_store(image, kDirectory, quick_options(), true);
    if (!store) return "the second opening: " + store.error().message;
    SlotTable table = store.value()->make_table();
    for (std::size_t block = 0; block < versions.size(); ++block) {
      if (store.value()->geometry().blocks[block].frozen || draw_image() % 4 == 0) continue;
      versions[block] = kSteps + 100;
      write_version(image, *store.value(), table, block, versions[block]);
    }
    if (Status done = commit_all(*store.value(), table, kSteps + 100); !done) {
      return "the next commit: " + done.error().message;
    }
    Timeline timeline(step);
    auto second = image.after_power_loss(timeline, draw_image());
    auto reopened = open_store(*second, kDirectory, quick_options(), true);
    if (!reopened) return "after the next commit: " + reopened.error().message;
    table = reopened.value()->make_table();
    for (std::size_t block = 0; block < versions.size(); ++block) {
      std::string problem = check_block(*reopened.value(), table, block, versions[block]);
      if (!problem.empty()) return "after the next commit: " + problem;
    }
    return {};
  }

  std::string judge_opened(SimStorage& image, std::optional<std::uint64_t>& found) {
    auto opened = open_store(image, kDirectory, quick_options(), true);
    if (!opened) return judge_unopened(image, opened.error());
    ++verdict_.committed;
    Store& store = *opened.value();
    const std::uint64_t step = store.committed().step;
    found = step;
    const auto versions = committed_versions_.find(step);
    if (versions == committed_versions_.end()) return "step was never committed";
    if (acknowledged_ && step < *acknowledged_) {
      return "step " + std::to_string(step) + ", but " + std::to_string(*acknowledged_) +
             " was acknowledged";
    }
    if (store.committed().blob != make_record(step).blob) return "another step's blob";
    const SlotTable table = store.make_table();
    for (std::size_t block = 0; block < table.block_count(); ++block) {
      std::string problem = check_block(store, table, block, versions->second[block]);
      if (!problem.empty()) return "step " + std::to_string(step) + ": " + problem;
    }
    return {};
  }

  std::string judge_unopened(Storage& image, const Error& error) {
    if (acknowledged_) return error.message;
    if (error.code != Errc::kState) return "before the first commit: " + error.message;
    if (draw_image() % 8 != 0) return {};
    auto again = create_store(image, kDirectory, small_geometry(), quick_options());
    return again ? "" : "creation cannot be done again: " + again.error().message;
  }
  std::uint64_t draw_image() { return mix64(setup_.seed, 2, drawn_images_++); }

  const Setup setup_;
  const std::uint64_t max_images_;
  Verdict& verdict_;
  Timeline timeline_;
  std::unique_ptr<SimStorage> storage_ = make_sim_storage(timeline_);
  std::unique_ptr<Store> store_;
  std::optional<SlotTable> table_;
  std::map<std::uint64_t, Write> writes_;
  std::unique_ptr<StorageQueue> queue_;  // after writes_: it completes them when it ends
  std::uint64_t next_cookie_ = 0, drawn_ = 0, drawn_images_ = 0;
  std::vector<std::uint64_t> versions_;
  std::map<std::uint64_t, std::vector<std::uint64_t>> committed_versions_;
  std::optional<std::uint64_t> acknowledged_, attempting_;
};

std::uint64_t wanted_images() {
  const char* text = std::getenv("PENSTOCK_POWER_LOSS_IMAGES");
  const std::uint64_t wanted = text != nullptr ? std::strtoull(text, nullptr, 10) : 0;
  return wanted != 0 ? wanted : 20000;
}

/// Runs worlds until so many images were opened, or, with `stop_at_bad`, one was bad.
Verdict run_worlds(std::uint64_t interval, ProtocolFaults faults, std::uint64_t images,
                   bool stop_at_bad) {
  Verdict verdict;
  for (std::uint64_t seed = 1; verdict.images < images; ++seed) {
    Setup setup;
    setup.seed = seed * 2 + interval;
    setup.interval = interval;
    setup.faults = faults;
    World(setup, images, verdict).run();
    if (::testing::Test::HasFatalFailure() || (stop_at_bad && verdict.bad != 0)) break;
  }
  return verdict;
}

class StorePowerLossTest : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(StorePowerLossTest, LeavesTheNewestAcknowledgedStepOrALaterOneExactly) {
  const std::uint64_t images = std::max<std::uint64_t>(wanted_images() / 2, 1);
  const Verdict verdict = run_worlds(GetParam(), {}, images, false);
  EXPECT_EQ(verdict.bad, 0U) << verdict.first;
  EXPECT_EQ(verdict.images, images);
  EXPECT_GT(verdict.committed, verdict.images / 2) << "most images must be of a store in use";
  RecordProperty("images", static_cast<int>(verdict.images));
}

INSTANTIATE_TEST_SUITE_P(CommitInterval, StorePowerLossTest, ::testing::Values(1, 2),
                         ::testing::PrintToStringParamName());

constexpr std::uint64_t kImagesToFindAFault = 4000;

struct FaultCase {
  const char* name;
  bool ProtocolFaults::*fault;
};

class StoreProtocolFaultTest : public ::testing::TestWithParam<FaultCase> {};

TEST_P(StoreProtocolFaultTest, IsFound) {
  ProtocolFaults faults;
  faults.*GetParam().fault = true;
  for (const std::uint64_t interval : {std::uint64_t{1}, std::uint64_t{2}}) {
    const Verdict verdict = run_worlds(interval, faults, kImagesToFindAFault, true);
    EXPECT_GT(verdict.bad, 0U) << "K = " << interval << ", " << verdict.images << " images";
    RecordProperty("found", verdict.first);
  }
}

INSTANTIATE_TEST_SUITE_P(
    EachRule, StoreProtocolFaultTest,
    ::testing::Values(FaultCase{"skip_data_flush", &ProtocolFaults::skip_data_flush},
                      FaultCase{"reuse_slot_early", &ProtocolFaults::reuse_slot_early},
                      FaultCase{"overwrite_base", &ProtocolFaults::overwrite_base},
                      FaultCase{"skip_directory_sync", &ProtocolFaults::skip_directory_sync}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace penstock::test
