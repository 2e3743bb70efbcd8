// Method: random sequences of updates, landings, commits and reopenings against a model that knows
// nothing of pools: it keeps what each slot of a drive would hold, and the manifests that would be
// durable or on their way. The three rules then are: what a manifest names is there, whole, always.

#include "io/slot_table.hpp"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/random.hpp"

namespace penstock {
namespace {

constexpr std::size_t kSections = 3;
constexpr std::uint32_t kAll = (1U << kSections) - 1;

std::uint64_t root_for(std::size_t block, std::uint64_t version, std::size_t section) {
  return mix64(block, version, section);
}

/// What a slot holds: bits of sections of one version of one block. Choosing a slot empties it.
struct Content {
  std::size_t block = ~std::size_t{0};
  std::uint64_t version = 0;
  std::uint32_t written = 0;
};

struct Chosen {
  SlotIndex slot = kNoSlot;
  std::uint64_t version = 0;
};

class Model {
 public:
  Model(std::uint64_t seed, std::size_t blocks, std::size_t slots, bool scratch,
        ProtocolFaults faults)
      : seed_(seed),
        blocks_(blocks),
        slots_(slots),
        scratch_(scratch),
        faults_(faults),
        table_(blocks, slots, kSections, scratch, faults),
        drive_(slots),
        chosen_(blocks) {}

  /// One random call; the first broken rule, in words.
  std::optional<std::string> step() {
    const std::size_t block = draw() % blocks_;
    switch (draw() % 16) {
      case 0:
        if (!scratch_) begin();
        break;
      case 1:
      case 2:
      case 3:
        if (!scratch_) record(block);
        break;
      case 4:
        if (!scratch_) finish();
        break;
      case 5:
        if (!scratch_ && draw() % 8 == 0) reopen();
        break;
      default:
        write(block);
        break;
    }
    if (broken_) return broken_;
    return check();
  }

  std::size_t commits() const { return commits_; }
  std::size_t in_place() const { return in_place_; }
  std::size_t refused() const { return refused_; }

 private:
  std::uint64_t draw() { return mix64(seed_, 0, drawn_++); }

  void fail(const std::string& what) {
    if (!broken_) broken_ = what;
  }

  /// Slots that a durable manifest or one on its way names, from scratch.
  std::set<SlotIndex> named() const {
    std::set<SlotIndex> slots;
    for (const SlotEntry& entry : durable_) slots.insert(entry.slot);
    for (const auto& [block, entry] : recorded_) slots.insert(entry.slot);
    return slots;
  }

  void write(std::size_t block) {
    const SlotEntry& entry = table_.entry(block);
    Chosen& chosen = chosen_[block];
    if (chosen.slot != kNoSlot) return land(block, chosen.version, chosen.slot);
    const bool started = entry.slot != kNoSlot;
    if (started && entry.written != kAll && draw() % 4 != 0) {
      // The rest of a version that has begun, as sections at home in RAM do at a commit.
      if (table_.choose_target(block, entry.version) != entry.slot) fail("same version, new slot");
      return land(block, entry.version, entry.slot);
    }
    choose(block, started ? entry.version + 1 : 0);
  }

  void choose(std::size_t block, std::uint64_t version) {
    const SlotIndex own = table_.entry(block).slot;
    const std::size_t free_before = table_.free_slots();
    const SlotIndex slot = table_.choose_target(block, version);
    if (slot == kNoSlot) {
      ++refused_;
      if (free_before != 0) fail("refused with free slots");
      if (own != kNoSlot && !named().count(own))
        fail("refused although its own slot is free to use");
      return;
    }
    if (slot >= slots_) return fail("slot does not exist");
    if (table_.choose_target(block, version) != slot) fail("asked twice, two slots");
    if (slot == own) ++in_place_;
    if (named().count(slot)) fail("a manifest's slot was handed out");
    for (std::size_t other = 0; other < blocks_; ++other) {
      if (other == block) continue;
      if (table_.entry(other).slot == slot || chosen_[other].slot == slot) {
        fail("another block's slot was handed out");
      }
    }
    chosen_[block] = {slot, version};
    drive_[slot] = {block, version, 0};  // the old content is gone from now on
  }

  void land(std::size_t block, std::uint64_t version, SlotIndex slot) {
    std::size_t section = draw() % kSections;
    while (drive_[slot].written >> section & 1) section = (section + 1) % kSections;
    table_.landed(block, version, slot, section, root_for(block, version, section));
    drive_[slot].written |= 1U << section;
    chosen_[block] = {};
  }

  void begin() {
    if (table_.commit_in_progress()) return;
    table_.commit_begin();
    recorded_.clear();
  }

  void record(std::size_t block) {
    const SlotEntry& entry = table_.entry(block);
    const bool whole = entry.written == kAll && chosen_[block].slot == kNoSlot;
    if (!table_.commit_in_progress() || !whole || recorded_.count(block)) return;
    recorded_[block] = entry;
    table_.commit_record(block);
    if (!table_.commit_recorded(block)) fail("recorded, and the table says no");
  }

  void finish() {
    const bool complete = table_.commit_in_progress() && recorded_.size() == blocks_;
    if (table_.commit_in_progress() && table_.commit_complete() != complete)
      fail("complete differs");
    if (!complete) return;
    durable_.assign(table_.commit_entries().begin(), table_.commit_entries().end());
    table_.commit_finished();
    recorded_.clear();
    ++commits_;
  }

  /// A crash: all that is not durable is forgotten.
  void reopen() {
    if (durable_.empty()) return;
    table_ = SlotTable(blocks_, slots_, kSections, scratch_, faults_);
    table_.load_durable(durable_);
    recorded_.clear();
    chosen_.assign(blocks_, {});
  }

  void check_content(std::size_t block, const SlotEntry& entry, const std::string& who) {
    const Content& content = drive_[entry.slot];
    if (content.block != block || content.version != entry.version ||
        (content.written & entry.written) != entry.written) {
      fail(who + " names bytes that are not there: block " + std::to_string(block) + " version " +
           std::to_string(entry.version));
    }
    for (std::size_t s = 0; s < kSections; ++s) {
      if ((entry.written >> s & 1) && entry.roots[s] != root_for(block, entry.version, s)) {
        fail(who + " has a wrong root");
      }
    }
  }

  std::optional<std::string> check() {
    std::set<SlotIndex> used = named();
    for (std::size_t block = 0; block < blocks_; ++block) {
      if (!durable_.empty()) check_content(block, durable_[block], "the durable manifest");
      if (const auto it = recorded_.find(block); it != recorded_.end()) {
        check_content(block, it->second, "the commit");
      }
      const SlotEntry& entry = table_.entry(block);
      if (entry.slot != kNoSlot) used.insert(entry.slot);
      if (chosen_[block].slot != kNoSlot) used.insert(chosen_[block].slot);
      const bool being_overwritten = chosen_[block].slot == entry.slot;
      if (entry.slot != kNoSlot && !being_overwritten) check_content(block, entry, "the table");
    }
    if (used.size() + table_.free_slots() != slots_) fail("slots were lost or counted twice");
    return broken_;
  }

  std::uint64_t seed_, drawn_ = 0;
  std::size_t blocks_, slots_;
  bool scratch_;
  ProtocolFaults faults_;
  SlotTable table_;
  std::vector<Content> drive_;
  std::vector<Chosen> chosen_;
  std::vector<SlotEntry> durable_;
  std::map<std::size_t, SlotEntry> recorded_;
  std::size_t commits_ = 0, in_place_ = 0, refused_ = 0;
  std::optional<std::string> broken_;
};

struct Outcome {
  std::optional<std::string> broken;
  std::size_t commits = 0, in_place = 0, refused = 0;
};

Outcome run(std::uint64_t seed, std::size_t blocks, std::size_t slots, bool scratch,
            ProtocolFaults faults, int steps) {
  Model model(seed, blocks, slots, scratch, faults);
  Outcome outcome;
  for (int i = 0; i < steps && !outcome.broken; ++i) outcome.broken = model.step();
  outcome.commits = model.commits();
  outcome.in_place = model.in_place();
  outcome.refused = model.refused();
  return outcome;
}

TEST(SlotTableTest, KeepsTheThreeRulesInRandomSequences) {
  Outcome sum;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const std::size_t blocks = 1 + seed % 5;
    const std::size_t spare = seed % 3;  // two slots per block, and up to two more
    const Outcome outcome = run(seed, blocks, 2 * blocks + spare, false, {}, 3000);
    ASSERT_FALSE(outcome.broken) << *outcome.broken << ", seed " << seed;
    sum.commits += outcome.commits;
    sum.in_place += outcome.in_place;
    sum.refused += outcome.refused;
  }
  // The sequences must have been where it hurts.
  EXPECT_GT(sum.commits, 500U);
  EXPECT_GT(sum.in_place, 500U);
  EXPECT_GT(sum.refused, 500U);
}

TEST(SlotTableTest, ScratchAlwaysWritesInPlaceWithOneSlotPerBlock) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const Outcome outcome = run(seed, 4, 4, true, {}, 2000);
    ASSERT_FALSE(outcome.broken) << *outcome.broken << ", seed " << seed;
    EXPECT_EQ(outcome.refused, 0U);
    EXPECT_GT(outcome.in_place, 100U);
  }
}

std::size_t seeds_that_notice(ProtocolFaults faults) {
  std::size_t found = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    found += run(seed, 3, 7, false, faults, 3000).broken.has_value() ? 1 : 0;
  }
  return found;
}

TEST(SlotTableTest, TheOracleNoticesSlotsThatAreReusedEarly) {
  ProtocolFaults faults;
  faults.reuse_slot_early = true;
  EXPECT_EQ(seeds_that_notice(faults), 20U);
}

TEST(SlotTableTest, TheOracleNoticesAnOverwrittenBase) {
  ProtocolFaults faults;
  faults.overwrite_base = true;
  EXPECT_EQ(seeds_that_notice(faults), 20U);
}

void write_all(SlotTable& table, std::size_t block, std::uint64_t version) {
  const SlotIndex slot = table.choose_target(block, version);
  ASSERT_NE(slot, kNoSlot);
  for (std::size_t s = 0; s < kSections; ++s) table.landed(block, version, slot, s, s + 1);
}

TEST(SlotTableTest, RecordsNothingWrittenWhileABlockIsOverwrittenInPlace) {
  SlotTable table(1, 2, kSections, false);
  write_all(table, 0, 0);
  ASSERT_EQ(table.choose_target(0, 1), table.entry(0).slot);
  table.commit_begin();
  table.commit_record(0);
  EXPECT_EQ(table.commit_entries()[0].written, 0U);
}

TEST(SlotTableTest, IgnoresLandingsThatWereOvertakenOrNeverChosen) {
  SlotTable table(1, 2, kSections, false);
  write_all(table, 0, 0);
  const SlotIndex slot = table.entry(0).slot;
  table.landed(0, 5, slot, 0, 99);               // version 5 was never chosen
  table.landed(0, 0, slot == 0 ? 1 : 0, 0, 99);  // not in that slot
  table.landed(0, 0, slot, kSections, 99);       // no such section
  EXPECT_EQ(table.entry(0).version, 0U);
  EXPECT_EQ(table.entry(0).roots[0], 1U);
  EXPECT_EQ(table.entry(0).written, kAll);
  EXPECT_EQ(table.choose_target(0, 1), slot);
  EXPECT_EQ(table.choose_target(0, 2), slot) << "a newer version takes over the target";
  table.landed(0, 1, slot, 0, 99);
  EXPECT_EQ(table.entry(0).version, 0U) << "version 1 was overtaken";
  table.landed(0, 2, slot, 0, 7);
  EXPECT_EQ(table.entry(0).version, 2U);
  EXPECT_EQ(table.entry(0).written, 1U);
}

TEST(SlotTableTest, HandsOutSlotsInTheOrderInWhichTheyCameBack) {
  SlotTable table(3, 6, kSections, false);
  for (std::uint64_t version = 0; version < 2; ++version) {
    for (std::size_t block = 0; block < 3; ++block) write_all(table, block, version);
    table.commit_begin();
    for (std::size_t block = 0; block < 3; ++block) table.commit_record(block);
    ASSERT_TRUE(table.commit_complete());
    table.commit_finished();
  }
  for (std::size_t block = 0; block < 3; ++block) {
    EXPECT_EQ(table.choose_target(block, 2), static_cast<SlotIndex>(block));
  }
}

}  // namespace
}  // namespace penstock
