#pragma once

// lint: long because one world and what may become of it are read together

// A small training-like workload on a simulated machine, with writes in flight while commits and
// checkpoints are made, and what the power, or the process, leaves of it at any moment.

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "io/store_fixture.hpp"
#include "io/store_pins.hpp"

namespace penstock::test {

inline constexpr std::uint64_t kSteps = 6;
inline constexpr std::size_t kSectionCount = 4;

struct Verdict {
  std::uint64_t images = 0;     // opened
  std::uint64_t committed = 0;  // that held a commit
  std::uint64_t with_pins = 0;  // that held checkpoints
  std::uint64_t detected = 0;   // blocks that were refused, where the drive cheats
  std::uint64_t busy = 0;       // openings refused while a dead process's writes were in flight
  std::uint64_t bad = 0;
  std::string first;  // the first bad one, in words
};

struct WorldSetup {
  enum class End { kPowerLoss, kKill } end = End::kPowerLoss;
  std::uint64_t seed = 0;
  std::uint64_t interval = 1;  // K
  std::uint64_t images_per_operation = 4;
  bool cheating_drive = false;  // loses and misdirects writes without a word
  ProtocolFaults faults;
};

/// One run of the workload and the crashes during it. The number of drives and the room for
/// checkpoints are drawn from the seed.
class World final : private CompletionSink {
 public:
  World(const WorldSetup& setup, std::uint64_t max_images, Verdict& verdict)
      : setup_(setup), max_images_(max_images), verdict_(verdict), timeline_(setup.seed) {
    const std::vector<std::vector<std::uint32_t>> shares{{1}, {1, 1}, {1, 2, 1}};
    geometry_.drives = shares[mix64(setup.seed, 5, 0) % shares.size()];
    geometry_.pins = static_cast<std::uint32_t>(mix64(setup.seed, 5, 1) % 4);
    std::vector<std::string> directories;
    for (std::size_t i = 0; i < geometry_.drives.size(); ++i) {
      directories.push_back("store" + std::to_string(i));
    }
    directories_ = StoreDirectories(directories);
  }

  void run() {
    storage_->set_observer([this](std::uint64_t operation) { take_images(operation); });
    options_ = quick_options();
    options_.uuid_seed = setup_.seed + 1;
    options_.faults = setup_.faults;
    auto store = create_store(*storage_, directories_, geometry_, options_);
    ASSERT_TRUE(store) << store.error().message;
    begin(std::move(store).value());
    for (std::size_t block = 0; block < versions_.size(); ++block) write(block, 0);
    land_all();
    begin_commit(0);
    finish_commit();
    // Again, as every run but the first does: its lock is one that opening takes.
    queue_.reset();
    store_.reset();
    auto again = open_store(*storage_, directories_, options_, true);
    ASSERT_TRUE(again) << again.error().message;
    begin(std::move(again).value());
    if (setup_.cheating_drive) cheat();
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
  struct Kept {
    std::uint64_t step = 0;
    bool certain = false;  // false: being made, or being dropped
  };

  bool done() const { return verdict_.images >= max_images_; }
  std::uint64_t draw() { return mix64(setup_.seed, 1, drawn_++); }
  std::uint64_t draw_image() { return mix64(setup_.seed, 2, drawn_images_++); }

  void begin(std::unique_ptr<Store> store) {
    store_ = std::move(store);
    table_.emplace(store_->make_table());
    queue_ = storage_->make_queue(*this, {}).value();
    versions_.resize(store_->geometry().blocks.size(), 0);
  }

  void cheat() {
    SimFaults faults;
    faults.lost_write = 65536 / 25;
    faults.misdirected_write = 65536 / 25;
    storage_->set_faults(faults);
  }

  void io_complete(const IoCompletion& completion) noexcept override {
    const Write& write = writes_.at(completion.cookie);
    EXPECT_EQ(completion.code, Errc::kOk);
    table_->landed(write.block, write.version, write.slot, write.section, write.sealed.root);
    writes_.erase(completion.cookie);
  }

  void run_step(std::uint64_t step) {
    for (std::size_t block = 0; block < versions_.size(); ++block) {
      const bool frozen = geometry_.blocks[block].frozen;
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
    SlotIndex slot = table_->at_quota(block) ? kNoSlot : table_->choose_target(block, version);
    if (slot == kNoSlot) {  // nothing to write to until the commit is through
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

  /// As the engine does: the commit, checkpoints of it, then the bookkeeping.
  void finish_commit() {
    if (!table_->commit_in_progress()) return;
    const Status done = store_->commit(make_record(*attempting_), table_->commit_entries());
    ASSERT_TRUE(done) << done.error().message;
    acknowledged_ = attempting_;
    if (geometry_.pins > 0 && draw() % 2 == 0) change_checkpoints();
    table_->commit_finished();
  }

  // --- checkpoints

  void change_checkpoints() {
    if (draw() % 3 != 0) {
      rotate(1 + static_cast<std::uint32_t>(draw() % geometry_.pins));
    } else if (kept_.size() < geometry_.pins) {
      const std::string name = "own-" + std::to_string(*acknowledged_);
      kept_[name] = {*acknowledged_, false};
      take(store_->pin(name, false));
      kept_[name].certain = true;
    } else {
      const std::string name =
          std::next(kept_.begin(), static_cast<std::ptrdiff_t>(draw() % kept_.size()))->first;
      kept_[name].certain = false;
      take(store_->drop(name));
      kept_.erase(name);
    }
  }

  void rotate(std::uint32_t keep) {
    if (!check_rotation(*store_, store_->committed().step)) return;  // full of others
    std::vector<std::string> rotating;
    for (const Pin& pin : store_->pins()) {
      if (is_rotating(pin.name)) rotating.push_back(pin.name);
    }
    std::size_t total = store_->pins().size() + 1, count = rotating.size() + 1;
    const std::string name = "step-" + std::to_string(*acknowledged_);
    std::vector<std::string> victims;
    for (std::size_t i = 0; count > keep || total > geometry_.pins; ++i, --count, --total) {
      victims.push_back(rotating[i]);
      // Once the new one is there, the next opening may drop what is too many.
      kept_[rotating[i]].certain = false;
    }
    kept_[name] = {*acknowledged_, false};
    take(begin_rotation(*store_));
    kept_[name].certain = true;
    ASSERT_EQ(store_->pins().back().name, name);
    take(finish_rotation(*store_, keep));
    for (const std::string& victim : victims) kept_.erase(victim);
    ASSERT_EQ(store_->pins().size(), kept_.size());
  }

  void take(const Result<PinChange>& change) {
    ASSERT_TRUE(change) << change.error().message;
    table_->change_pins(change.value().kept, change.value().dropped);
  }

  // --- images

  void take_images(std::uint64_t operation) {
    for (std::uint64_t i = 0; i < setup_.images_per_operation && !done(); ++i) {
      const std::uint64_t seed = mix64(setup_.seed, operation, i);
      Timeline timeline(seed);
      ++verdict_.images;
      std::string problem;
      if (setup_.end == WorldSetup::End::kKill) {
        auto image = storage_->after_kill(timeline);
        problem = judge_killed(*image, timeline);
      } else {
        auto image = storage_->after_power_loss(timeline, seed);
        problem = judge(*image);
      }
      if (problem.empty()) continue;
      if (verdict_.bad++ != 0) continue;
      verdict_.first = "seed " + std::to_string(setup_.seed) + " operation " +
                       std::to_string(operation) + " image " + std::to_string(i) + ": " + problem;
    }
  }

  StoreOptions image_options() const {
    StoreOptions options = quick_options();
    options.faults = setup_.faults;
    return options;
  }

  /// Empty when what the power loss left is as promised.
  std::string judge(SimStorage& image) {
    std::optional<std::uint64_t> step;
    std::string problem = judge_opened(image, step);
    if (!problem.empty() || !step || setup_.cheating_drive || draw_image() % 16 != 0) {
      return problem;
    }
    if (draw_image() % 2 == 0) problem = go_back(image, step);
    return problem.empty() ? go_on(image, *step, nullptr) : problem;
  }

  /// Restores one of the checkpoints that are there, if any.
  std::string go_back(SimStorage& image, std::optional<std::uint64_t>& step) {
    auto pins = list_pins(image, directories_);
    if (!pins) return "listing checkpoints: " + pins.error().message;
    if (pins.value().empty()) return {};
    const PinSummary& pin = pins.value()[draw_image() % pins.value().size()];
    if (Status done = restore_pin(image, directories_, pin.name, image_options()); !done) {
      return "restoring " + pin.name + ": " + done.error().message;
    }
    step = pin.step;
    auto store = open_store(image, directories_, image_options(), true);
    if (!store) return "after restoring: " + store.error().message;
    if (store.value()->committed().step != pin.step) return "restored another step";
    return check_state(*store.value(), committed_versions_[pin.step], pin.step);
  }

  /// What was left must also serve as a beginning: one more step, acknowledged, and the lights go
  /// out again. `orphans`: the timeline on which a dead process's writes still land.
  std::string go_on(SimStorage& image, std::uint64_t step, Timeline* orphans) {
    std::vector<std::uint64_t> versions = committed_versions_[step];
    auto store = open_store(image, directories_, image_options(), true);
    if (!store) return "the second opening: " + store.error().message;
    SlotTable table = store.value()->make_table();
    for (std::size_t block = 0; block < versions.size(); ++block) {
      if (geometry_.blocks[block].frozen || draw_image() % 4 == 0) continue;
      versions[block] = kSteps + 100;
      write_version(image, *store.value(), table, block, versions[block]);
    }
    while (orphans != nullptr && orphans->run_one()) {
    }
    if (Status done = commit_all(*store.value(), table, kSteps + 100); !done) {
      return "the next commit: " + done.error().message;
    }
    const std::vector<Pin> pins = store.value()->pins();
    Timeline timeline(step);
    auto second = image.after_power_loss(timeline, draw_image());
    auto reopened = open_store(*second, directories_, image_options(), true);
    if (!reopened) return "after the next commit: " + reopened.error().message;
    std::string problem = check_state(*reopened.value(), versions, kSteps + 100);
    if (!problem.empty()) return "after the next commit: " + problem;
    for (const Pin& pin : pins) {
      problem = check_pin(*second, pin.name, pin.step);
      if (!problem.empty()) return "after the next commit: " + problem;
    }
    return {};
  }

  std::string judge_opened(SimStorage& image, std::optional<std::uint64_t>& found) {
    auto opened = open_store(image, directories_, image_options(), true);
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
    std::string problem = check_state(store, versions->second, step);
    return problem.empty() ? judge_pins(image, store) : problem;
  }

  /// Exactly the checkpoints that were made and not dropped, with their bytes.
  std::string judge_pins(SimStorage& image, const Store& store) {
    std::set<std::string> found;
    for (const Pin& pin : store.pins()) {
      const auto kept = kept_.find(pin.name);
      if (kept == kept_.end()) return "checkpoint " + pin.name + " was dropped or never made";
      if (kept->second.step != pin.step) return "checkpoint " + pin.name + " has another step";
      found.insert(pin.name);
    }
    bool any = false;
    for (const auto& [name, kept] : kept_) {
      any = any || kept.certain;
      if (kept.certain && !found.contains(name)) return "checkpoint " + name + " is lost";
    }
    if (any && found.empty()) return "no checkpoint is left";
    if (found.empty()) return {};
    ++verdict_.with_pins;
    if (draw_image() % 4 != 0) return {};
    const Pin& pin = store.pins()[draw_image() % store.pins().size()];
    return check_pin(image, pin.name, pin.step);
  }

  std::string check_pin(SimStorage& image, const std::string& name, std::uint64_t step) {
    StoreOptions options = image_options();
    options.pin = name;
    auto store = open_store(image, directories_, options, false);
    if (!store) return "checkpoint " + name + ": " + store.error().message;
    std::string problem = check_state(*store.value(), committed_versions_[step], step);
    return problem.empty() ? problem : "checkpoint " + name + ": " + problem;
  }

  std::string check_state(Store& store, const std::vector<std::uint64_t>& versions,
                          std::uint64_t step) {
    const std::string at = "step " + std::to_string(step) + ": ";
    if (store.committed().blob != make_record(step).blob) return at + "another step's blob";
    const SlotTable table = store.make_table();
    for (std::size_t block = 0; block < table.block_count(); ++block) {
      std::string problem = check_block(store, table, block, versions[block]);
      if (problem.empty()) continue;
      const bool refused = problem.find("fails its checksum") != std::string::npos;
      if (!setup_.cheating_drive || !refused) return at + problem;
      ++verdict_.detected;
    }
    return {};
  }

  std::string judge_unopened(Storage& image, const Error& error) {
    if (acknowledged_) return error.message;
    if (error.code != Errc::kState) return "before the first commit: " + error.message;
    if (draw_image() % 8 != 0) return {};
    auto again = create_store(image, directories_, geometry_, quick_options());
    return again ? "" : "creation cannot be done again: " + again.error().message;
  }

  /// The process is gone, the machine runs on: another process must wait for the writes in flight,
  /// or find them done, and then have everything.
  std::string judge_killed(SimStorage& image, Timeline& timeline) {
    auto opened = open_store(image, directories_, image_options(), true);
    if (!opened && image.orphans() > 0) {
      if (opened.error().code != Errc::kState) return "busy: " + opened.error().message;
      ++verdict_.busy;
      while (timeline.run_one()) {
      }
    }
    if (opened) opened.value().reset();
    std::optional<std::uint64_t> step;
    std::string problem = judge_opened(image, step);
    if (!problem.empty() || !step) return problem;
    return go_on(image, *step, &timeline);
  }

  const WorldSetup setup_;
  const std::uint64_t max_images_;
  Verdict& verdict_;
  Timeline timeline_;
  StoreGeometry geometry_ = small_geometry();
  StoreDirectories directories_{"store"};
  StoreOptions options_;
  std::unique_ptr<SimStorage> storage_ = make_sim_storage(timeline_);
  std::unique_ptr<Store> store_;
  std::optional<SlotTable> table_;
  std::map<std::uint64_t, Write> writes_;
  std::unique_ptr<StorageQueue> queue_;  // after writes_: it completes them when it ends
  std::uint64_t next_cookie_ = 0, drawn_ = 0, drawn_images_ = 0;
  std::vector<std::uint64_t> versions_;
  std::map<std::uint64_t, std::vector<std::uint64_t>> committed_versions_;
  std::map<std::string, Kept> kept_;
  std::optional<std::uint64_t> acknowledged_, attempting_;
};

}  // namespace penstock::test
