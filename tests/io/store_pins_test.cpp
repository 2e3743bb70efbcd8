// Checkpoints inside a store: what they keep, what they cost, what an interruption leaves.

#include "io/store_pins.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "io/store_fixture.hpp"
#include "io/store_format.hpp"

namespace penstock::test {
namespace {

StoreGeometry geometry_with_room(std::uint32_t pins) {
  StoreGeometry geometry = small_geometry();
  geometry.pins = pins;
  return geometry;
}

class StorePinsTest : public StoreTest {
 protected:
  /// A store with steps 0..last committed; all mutable blocks change in every step.
  struct Running {
    std::unique_ptr<Store> store;
    std::unique_ptr<SlotTable> table;
  };
  Running start(std::uint32_t pins, std::uint64_t last) {
    Running running{create(geometry_with_room(pins)), nullptr};
    running.table = std::make_unique<SlotTable>(running.store->make_table());
    for (std::uint64_t step = 0; step <= last; ++step) step_to(running, step);
    return running;
  }
  Running resume() {
    Running running{open(), nullptr};
    if (running.store) running.table = std::make_unique<SlotTable>(running.store->make_table());
    return running;
  }
  void step_to(Running& running, std::uint64_t step) {
    write_all(*running.store, *running.table, step);
    const Status done = commit_all(*running.store, *running.table, step);
    ASSERT_TRUE(done) << done.error().message;
  }
  static Result<PinChange> rotate_pins(Store& store, std::uint32_t keep) {
    auto made = begin_rotation(store);
    if (!made) return made;
    auto dropped = finish_rotation(store, keep);
    if (!dropped) return dropped;
    return PinChange{made.value().kept, dropped.value().dropped};
  }
  void apply(Running& running, const Result<PinChange>& change) {
    ASSERT_TRUE(change) << change.error().message;
    running.table->change_pins(change.value().kept, change.value().dropped);
  }
  /// Empty when the checkpoint has the bytes of `step`.
  std::string check_pin(const std::string& name, std::uint64_t step) {
    StoreOptions options = quick_options();
    options.pin = name;
    auto store = open_store(*storage_, kDirectory, options, false);
    if (!store) return store.error().message;
    if (store.value()->committed().blob != make_record(step).blob) return "another blob";
    const SlotTable table = store.value()->make_table();
    for (std::size_t block = 0; block < table.block_count(); ++block) {
      const bool frozen = store.value()->geometry().blocks[block].frozen;
      std::string problem = check_block(*store.value(), table, block, frozen ? 0 : step);
      if (!problem.empty()) return problem;
    }
    return {};
  }
  std::vector<std::string> names() {
    std::vector<std::string> found;
    const auto pins = list_pins(*storage_, kDirectory);
    for (const PinSummary& pin : pins.value()) found.push_back(pin.name);
    return found;
  }
};

using Names = std::vector<std::string>;

TEST_F(StorePinsTest, ACheckpointKeepsItsBytesWhateverIsCommittedLater) {
  Running run = start(2, 1);
  const std::uint64_t written = run.table->free_slots();
  apply(run, run.store->pin("first", false));
  EXPECT_EQ(run.table->free_slots(), written) << "the slots were in use already";
  for (std::uint64_t step = 2; step < 6; ++step) step_to(run, step);
  apply(run, run.store->pin("second", false));
  for (std::uint64_t step = 6; step < 9; ++step) step_to(run, step);
  EXPECT_EQ(check_pin("first", 1), "");
  EXPECT_EQ(check_pin("second", 5), "");
  run = {};
  run = resume();
  EXPECT_EQ(run.store->pins().size(), 2U);
  EXPECT_EQ(run.table->free_slots(), 5U) << "21 slots: two checkpoints of 5, the commit of 5, one "
                                            "frozen, and 5 to write to";
  for (std::uint64_t step = 9; step < 12; ++step) step_to(run, step);
  EXPECT_EQ(check_pin("first", 1), "");
  EXPECT_EQ(check_pin("second", 5), "");
  expect_state(*open(false), 11);
}

TEST_F(StorePinsTest, ADroppedCheckpointGivesItsSlotsBack) {
  Running run = start(1, 1);
  apply(run, run.store->pin("x", false));
  step_to(run, 2);
  step_to(run, 3);
  EXPECT_EQ(run.table->free_slots(), 5U);
  apply(run, run.store->drop("x"));
  EXPECT_EQ(run.table->free_slots(), 10U);
  EXPECT_FALSE(exists("pin.x.a") || exists("pin.x.b"));
  for (std::uint64_t step = 4; step < 8; ++step) step_to(run, step);
  EXPECT_EQ(run.table->free_slots(), 10U);
  EXPECT_TRUE(names().empty());
}

TEST_F(StorePinsTest, BlocksThatDidNotChangeShareASlot) {
  Running run = start(2, 1);
  apply(run, run.store->pin("a", false));
  write_version(*storage_, *run.store, *run.table, 0, 2);
  ASSERT_TRUE(commit_all(*run.store, *run.table, 2));
  apply(run, run.store->pin("b", false));
  step_to(run, 3);
  const auto pins = summarize_pins(*run.store);
  ASSERT_EQ(pins.size(), 2U);
  EXPECT_EQ(pins[0].own_bytes, run.store->slot_bytes()) << "block 0 only";
  EXPECT_EQ(pins[1].own_bytes, run.store->slot_bytes());
  EXPECT_EQ(run.table->free_slots(), 21U - 6 - 6 - 0) << "two of block 0 and one of the others";
  apply(run, run.store->drop("a"));
  for (std::uint64_t step = 4; step < 7; ++step) step_to(run, step);
  StoreOptions options = quick_options();
  options.pin = "b";
  auto store = open_store(*storage_, kDirectory, options, false);
  ASSERT_TRUE(store);
  EXPECT_EQ(check_block(*store.value(), store.value()->make_table(), 0, 2), "");
  EXPECT_EQ(check_block(*store.value(), store.value()->make_table(), 1, 1), "");
}

TEST_F(StorePinsTest, RefusesWhatCannotBeAndChangesNothing) {
  Running run = start(1, 0);
  for (const char* name : {"", ".x", "a/b", "a b", "\n"}) {
    EXPECT_EQ(run.store->pin(name, false).error().code, Errc::kArgument) << name;
  }
  EXPECT_EQ(run.store->pin(std::string(65, 'x'), false).error().code, Errc::kArgument);
  EXPECT_EQ(run.store->drop("none").error().code, Errc::kState);
  apply(run, run.store->pin("x", false));
  EXPECT_EQ(run.store->pin("x", false).error().code, Errc::kState);
  const auto full = run.store->pin("y", false);
  EXPECT_EQ(full.error().code, Errc::kNoSpace);
  EXPECT_NE(full.error().message.find("room for 1"), std::string::npos) << full.error().message;
  EXPECT_NE(full.error().message.find("x"), std::string::npos);
  EXPECT_NE(full.error().message.find(kDirectory), std::string::npos);
  step_to(run, 1);  // none of that was final
  apply(run, run.store->pin("y", true));
  EXPECT_EQ(run.store->pin("z", true).error().code, Errc::kNoSpace) << "one more at most";
  apply(run, run.store->drop("x"));
  EXPECT_EQ(names(), Names{"y"});
  run = {};
  auto reader = open(false);
  EXPECT_EQ(reader->pin("z", false).error().code, Errc::kState);
  EXPECT_EQ(reader->drop("y").error().code, Errc::kState);
  reader.reset();
  StoreOptions options = quick_options();
  options.pin = "y";
  EXPECT_EQ(open_store(*storage_, kDirectory, options, true).error().code, Errc::kArgument);
  options.pin = "z";
  EXPECT_EQ(open_store(*storage_, kDirectory, options, false).error().code, Errc::kState);
}

TEST_F(StorePinsTest, AStoreWithoutRoomSaysHowToGetIt) {
  Running run = start(0, 0);
  const auto refused = run.store->pin("x", false);
  EXPECT_EQ(refused.error().code, Errc::kNoSpace);
  EXPECT_NE(refused.error().message.find("--keep"), std::string::npos) << refused.error().message;
  EXPECT_EQ(check_rotation(*run.store, run.store->committed().step).error().code, Errc::kNoSpace);
}

TEST_F(StorePinsTest, RotationKeepsTheNewest) {
  Running run = start(3, 0);
  for (std::uint64_t step = 1; step < 8; ++step) {
    step_to(run, step);
    apply(run, rotate_pins(*run.store, 3));
    const std::size_t count = run.store->pins().size();
    EXPECT_EQ(count, std::min<std::size_t>(step, 3));
    EXPECT_EQ(run.store->pins().back().step, step);
  }
  EXPECT_EQ(names(), (Names{"step-5", "step-6", "step-7"}));
  for (std::uint64_t step = 5; step < 8; ++step) {
    EXPECT_EQ(check_pin("step-" + std::to_string(step), step), "");
  }
  apply(run, rotate_pins(*run.store, 1));  // the same step again, and fewer of them
  EXPECT_EQ(names(), Names{"step-7-2"});
  for (std::uint64_t step = 8; step < 12; ++step) step_to(run, step);
  EXPECT_EQ(check_pin("step-7-2", 7), "");
}

TEST_F(StorePinsTest, RotationLeavesNamedCheckpointsAlone) {
  Running run = start(2, 0);
  apply(run, run.store->pin("best", false));
  for (std::uint64_t step = 1; step < 5; ++step) {
    step_to(run, step);
    apply(run, rotate_pins(*run.store, 2));
  }
  EXPECT_EQ(names(), (Names{"best", "step-4"})) << "room for one beside it";
  apply(run, run.store->drop("step-4"));
  apply(run, run.store->pin("better", false));
  EXPECT_EQ(rotate_pins(*run.store, 2).error().code, Errc::kNoSpace);
  EXPECT_EQ(names(), (Names{"best", "better"}));
}

TEST_F(StorePinsTest, RestoringGoesBackAndOtherCheckpointsStay) {
  {
    Running run = start(2, 1);
    apply(run, run.store->pin("one", false));
    for (std::uint64_t step = 2; step < 5; ++step) step_to(run, step);
    apply(run, run.store->pin("four", false));
    step_to(run, 5);
    EXPECT_EQ(restore_pin(*storage_, kDirectory, "one", quick_options()).error().code, Errc::kState)
        << "in use";
  }
  const Status restored = restore_pin(*storage_, kDirectory, "one", quick_options());
  ASSERT_TRUE(restored) << restored.error().message;
  expect_state(*open(), 1);
  EXPECT_EQ(names(), (Names{"one", "four"}));
  {
    Running run = resume();
    EXPECT_TRUE(list_pins(*storage_, kDirectory).value()[0].is_latest);
    for (std::uint64_t step = 2; step < 8; ++step) step_to(run, step);
  }
  EXPECT_EQ(check_pin("one", 1), "");
  EXPECT_EQ(check_pin("four", 4), "");
  ASSERT_TRUE(restore_pin(*storage_, kDirectory, "four", quick_options()));
  expect_state(*open(), 4);
  EXPECT_EQ(restore_pin(*storage_, kDirectory, "none", quick_options()).error().code, Errc::kState);
}

TEST_F(StorePinsTest, ACheckpointRescuesAStoreWhoseCommitIsLost) {
  {
    Running run = start(1, 1);
    apply(run, run.store->pin("good", false));
    for (std::uint64_t step = 2; step < 5; ++step) step_to(run, step);
  }
  for (const char* name : {"manifest.3.a", "manifest.3.b", "manifest.4.a", "manifest.4.b"}) {
    ASSERT_TRUE(storage_->flip_bit(kDirectory + "/" + name, 1000));
  }
  EXPECT_EQ(open_error().code, Errc::kCorrupt);
  EXPECT_NE(open_error().message.find("--name NAME): good"), std::string::npos)
      << open_error().message;
  ASSERT_TRUE(restore_pin(*storage_, kDirectory, "good", quick_options()));
  Running run = resume();
  ASSERT_TRUE(run.store);
  expect_state(*run.store, 1);
  step_to(run, 2);
  expect_state(*open(false), 2);
}

TEST_F(StorePinsTest, ToolsPinAndDropWhatNobodyHasOpen) {
  start(1, 2);
  ASSERT_TRUE(make_pin(*storage_, kDirectory, "x", quick_options()));
  EXPECT_EQ(make_pin(*storage_, kDirectory, "y", quick_options()).error().code, Errc::kNoSpace);
  EXPECT_EQ(check_pin("x", 2), "");
  const auto pins = list_pins(*storage_, kDirectory).value();
  ASSERT_EQ(pins.size(), 1U);
  EXPECT_EQ(pins[0].step, 2U);
  EXPECT_EQ(pins[0].own_bytes, 0U) << "the commit has the same slots";
  EXPECT_TRUE(pins[0].is_latest);
  EXPECT_FALSE(pins[0].rotating);
  ASSERT_TRUE(drop_pin(*storage_, kDirectory, "x", quick_options()));
  EXPECT_TRUE(names().empty());
  EXPECT_EQ(drop_pin(*storage_, kDirectory, "x", quick_options()).error().code, Errc::kState);
}

TEST_F(StorePinsTest, AnExchangeCutShortIsFinishedByTheNextOpening) {
  {
    Running run = start(1, 1);
    apply(run, rotate_pins(*run.store, 1));
    step_to(run, 2);
    apply(run, begin_rotation(*run.store));
  }
  EXPECT_EQ(names(), (Names{"step-1", "step-2"})) << "a reader changes nothing";
  Running run = resume();
  ASSERT_TRUE(run.store);
  EXPECT_EQ(names(), Names{"step-2"});
  for (std::uint64_t step = 3; step < 7; ++step) step_to(run, step);
  EXPECT_EQ(check_pin("step-2", 2), "");
}

TEST_F(StorePinsTest, MoreNamedCheckpointsThanRoomAreTheUsersToSort) {
  {
    Running run = start(1, 1);
    apply(run, run.store->pin("x", false));
  }
  const auto bytes = bytes_of("pin.x.a");
  ASSERT_TRUE(replace_file(*storage_, kDirectory + "/pin.y.a", bytes));
  EXPECT_EQ(open_error().code, Errc::kNoSpace);
  EXPECT_NE(open_error().message.find("checkpoint drop"), std::string::npos)
      << open_error().message;
  ASSERT_TRUE(drop_pin(*storage_, kDirectory, "x", quick_options()));
  EXPECT_TRUE(open());
  EXPECT_EQ(check_pin("y", 1), "") << "one copy is enough";
}

TEST_F(StorePinsTest, EitherCopyIsEnoughAndALostCheckpointIsReported) {
  {
    Running run = start(1, 1);
    apply(run, run.store->pin("x", false));
    step_to(run, 2);
  }
  ASSERT_TRUE(storage_->flip_bit(kDirectory + "/pin.x.a", 999));
  {
    auto store = open();
    EXPECT_EQ(store->pins().size(), 1U);
    EXPECT_NE(store->open_note().find("pin.x.a"), std::string::npos) << store->open_note();
  }
  EXPECT_EQ(check_pin("x", 1), "");
  ASSERT_TRUE(storage_->flip_bit(kDirectory + "/pin.x.b", 999));
  auto store = open();
  ASSERT_TRUE(store);
  EXPECT_TRUE(store->pins().empty());
  EXPECT_NE(store->open_note().find("\"x\" is lost"), std::string::npos) << store->open_note();
  EXPECT_TRUE(exists("pin.x.a")) << "left for whoever wants to look at it";
}

TEST_F(StorePinsTest, ACheckpointThatCannotBeReadStopsTheOpening) {
  {
    Running run = start(1, 1);
    apply(run, run.store->pin("x", false));
  }
  Manifest manifest = decode_manifest(bytes_of("pin.x.a"), "x").value();
  manifest.incompatible_bits = 1;
  for (const char* copy : {"a", "b"}) {
    ASSERT_TRUE(
        replace_file(*storage_, kDirectory + "/pin.x." + copy, encode_manifest(manifest).value()));
  }
  EXPECT_EQ(open_error().code, Errc::kUnsupported) << "its slots would be written to";
  EXPECT_NE(open_error().message.find("\"x\""), std::string::npos);
}

TEST(PinNameTest, RotationsOwnOnlyTheirNames) {
  for (const char* name : {"step-0", "step-12", "step-12-2", "step-18446744073709551615"}) {
    EXPECT_TRUE(is_rotating(name)) << name;
  }
  for (const char* name : {"step-", "step-x", "step-1-", "step-1-x", "step-1x", "steps-1", "Step-1",
                           "step-1-2-3", "best", "step-18446744073709551616"}) {
    EXPECT_FALSE(is_rotating(name)) << name;
  }
}

}  // namespace
}  // namespace penstock::test
