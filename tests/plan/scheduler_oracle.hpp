#pragma once

// lint: long because it is one class: every rule looks at the same slots and frames

/// What the scheduler's commands may do, told independently of how it decides: the contents of
/// every slot, spill extent and frame, and who touches them now.
///
/// issue() and finish() move the contents; check() compares facts. The first broken rule is kept.
/// A command's bytes move as a whole when it finishes; from issue to finish what it writes holds
/// nothing that may be relied on, and everything it touches is in use.

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "io/slot_table.hpp"
#include "plan/plan.hpp"
#include "plan/scheduler.hpp"

namespace penstock::testing {

inline constexpr std::uint64_t kNothing = ~std::uint64_t{0};

/// The root that section `section` of `version` of the block has, in this world.
inline std::uint64_t root_of(std::uint32_t block, std::uint64_t version, std::size_t section) {
  return (std::uint64_t{block} + 1) * 1000003 + version * 101 + section;
}

class Oracle {
 public:
  Oracle(const Plan& plan, const SlotTable& table, const std::vector<std::uint64_t>& versions)
      : plan_(plan),
        table_(table),
        blocks_(plan.blocks.size()),
        hi_frame_group_(plan.hi_frames.size(), kNone),
        leases_(plan.groups.size(), 0),
        states_(plan.stream_state_frames + plan.pinned_state_frames),
        gradients_(plan.stage_gradient_frames + plan.pinned_gradient_frames),
        spills_(plan.blocks.size()) {
    for (std::uint32_t b = 0; b < blocks_.size(); ++b) {
      Block& block = blocks_[b];
      block.version = block.lent_hi = versions[b];
      block.home = block.durable = table.entry(b).slot;
      slot(block.home).hi = slot(block.home).rest = {b, versions[b]};
      newest_ = std::max(newest_, versions[b]);
    }
  }

  [[nodiscard]] bool failed() const { return !why_.empty(); }
  [[nodiscard]] const std::string& why() const { return why_; }
  void fail(std::string why) {
    if (why_.empty()) why_ = std::move(why);
  }

  // --- facts
  [[nodiscard]] bool pending(std::uint32_t block) const { return blocks_[block].pending; }
  [[nodiscard]] bool settled() const {
    return std::none_of(blocks_.begin(), blocks_.end(), [](const Block& b) { return b.pending; });
  }
  [[nodiscard]] std::uint64_t updates_done() const { return updates_done_; }
  [[nodiscard]] std::uint64_t version(std::uint32_t block) const { return blocks_[block].version; }

  // --- the trainer
  void leased(std::uint32_t group) {
    ++leases_[group];
    for_blocks(group, [&](std::uint32_t b) {
      const Block& block = blocks_[b];
      if (block.pending) fail(fmt::format("lease on group {}: block {} is pending", group, b));
      if (hi_of(b) != block.version || !block.verified) {
        fail(fmt::format("lease on group {}: block {} does not show version {}", group, b,
                         block.version));
      }
    });
  }
  void released(std::uint32_t group) { --leases_[group]; }

  /// Somebody reads lo of the block, as an export does: in its frame, or at home in its slot.
  void lo_read_begins(std::uint32_t b, bool in_frame) {
    blocks_[b].lo_read = in_frame ? LoRead::kFrame : LoRead::kSlot;
    check_lo_read(b);
  }
  void lo_read_ends(std::uint32_t b) {
    check_lo_read(b);
    blocks_[b].lo_read = LoRead::kNone;
  }

  void step_began(std::uint64_t step) { step_ = step; }
  /// Range `range` of the block is written into the frame that the scheduler named.
  void gradient_given(std::uint32_t b, std::uint32_t frame, std::uint32_t range) {
    Block& block = blocks_[b];
    if (block.pending) fail(fmt::format("block {} takes a gradient while it is pending", b));
    if (block.gradient.step != step_) block.gradient = {b, step_, 0};
    Gradient& content = gradients_[frame];
    use({{Part::kGradientFrame, frame, true}}, b, "the trainer fills a gradient frame");
    if (content.block != b || content.step != step_) content = {b, step_, 0};
    content.ranges |= 1U << range;
    block.gradient.ranges |= 1U << range;
    check();
  }
  void step_ended(bool apply, std::uint64_t updates) {
    if (apply) newest_ = updates;
    for (Block& block : blocks_) {
      if (block.gradient.step != step_) continue;
      block.pending = apply;
      if (!apply) block.gradient = {};
    }
    ++step_;  // nothing more may come for this one
  }
  void commit_began() {
    for (Block& block : blocks_) {
      block.wanted = block.pending ? newest_ : block.version;
      block.committing = kNoSlot;
    }
  }

  void tee_began() {
    teeing_ = true;
    for (Block& block : blocks_) block.copy = {};
  }

  // --- commands
  void issue(const Command& c) {
    const std::string name = describe(c);
    if (c.kind == Command::Kind::kCommit) {
      issue_commit();
    } else {
      use(parts(c), c.block, name);
      issue_block(c, name);
    }
    flights_.push_back(c);
    check();
  }

  [[nodiscard]] const std::vector<Command>& flights() const { return flights_; }

  void finish(std::size_t index) {
    const Command c = flights_[index];
    flights_.erase(flights_.begin() + static_cast<std::ptrdiff_t>(index));
    if (c.kind == Command::Kind::kCommit) {
      for (Block& block : blocks_) {
        block.durable = block.committing;
        block.committing = kNoSlot;
      }
      teeing_ = false;
      return;
    }
    finish_block(c);
  }

  /// Nothing newest is lost, no block has a third slot. Also looks at what the table recorded.
  void check() {
    for (std::uint32_t b = 0; b < blocks_.size() && !failed(); ++b) check_block(b);
  }

 private:
  struct Section {
    std::uint32_t block = kNone;
    std::uint64_t version = kNothing;
    bool operator==(const Section&) const = default;
  };
  struct Slot {
    Section hi, rest;
  };
  struct Gradient {
    std::uint32_t block = kNone;
    std::uint64_t step = kNothing;
    std::uint32_t ranges = 0;
    bool operator==(const Gradient&) const = default;
  };
  struct State {
    Section hi, rest;  // hi: gathered, of lent weights
    Gradient gradient;
  };
  enum class LoRead { kNone, kFrame, kSlot };
  struct Block {
    std::uint64_t version = 0;
    std::uint64_t hi = kNothing;  // in the hi frame
    std::uint64_t lent_hi = 0;    // in the trainer's memory
    bool verified = false, pending = false, working = false;
    Gradient gradient;  // all that was given for the step or the record
    SlotIndex home = kNoSlot, durable = kNoSlot, committing = kNoSlot, target = kNoSlot;
    std::uint64_t wanted = 0;           // by the commit
    Slot copy;                          // in the other store
    std::uint32_t state_frame = kNone;  // the last one it had
    LoRead lo_read = LoRead::kNone;
  };
  struct Part {
    enum Kind {
      kHi,
      kStateHi,
      kStateRest,
      kStateGradient,
      kGradientFrame,
      kSlotHi,
      kSlotRest,
      kSpill,
      kCopyHi,  // of the block, in the other store
      kCopyRest
    } kind;
    std::uint32_t index;
    bool exclusive;
  };

  [[nodiscard]] const GroupPlan& group(std::uint32_t b) const {
    return plan_.groups[plan_.blocks[b].group];
  }
  template <class Visit>
  void for_blocks(std::uint32_t g, const Visit& visit) const {
    const GroupPlan& plan = plan_.groups[g];
    for (std::uint32_t b = plan.first_block; b < plan.first_block + plan.block_count; ++b) visit(b);
  }
  Slot& slot(SlotIndex index) {
    if (index >= slots_.size()) slots_.resize(index + 1);
    return slots_[index];
  }
  [[nodiscard]] std::uint64_t hi_of(std::uint32_t b) const {
    return group(b).lent ? blocks_[b].lent_hi : blocks_[b].hi;
  }

  void check_lo_read(std::uint32_t b) {
    const Block& block = blocks_[b];
    if (block.lo_read == LoRead::kNone) return;
    const Section& read =
        block.lo_read == LoRead::kFrame ? states_[block.state_frame].rest : slot(block.home).rest;
    if (read != Section{b, block.version})
      fail(fmt::format("lo of block {} is read, not there", b));
  }

  static std::string describe(const Command& c) {
    static constexpr const char* kNames[] = {
        "read hi",   "verify hi", "read state",  "read gradient",  "update",
        "gather hi", "write hi",  "write state", "spill gradient", "reopen gradient",
        "commit",    "tee hi",    "tee state",   "tee block"};
    return fmt::format("{} of block {} version {} slot {} frame {}",
                       kNames[static_cast<std::size_t>(c.kind)], static_cast<int>(c.block),
                       c.version, static_cast<int>(c.slot), static_cast<int>(c.frame));
  }

  /// Everything a command touches until it finishes.
  [[nodiscard]] std::vector<Part> parts(const Command& c) const {
    const bool lent = group(c.block).lent;
    switch (c.kind) {
      case Command::Kind::kReadHi:
        return {{Part::kHi, c.block, true}, {Part::kSlotHi, c.slot, false}};
      case Command::Kind::kVerifyHi:
        return {{Part::kHi, c.block, false}};
      case Command::Kind::kReadState:
        return {{Part::kStateRest, c.frame, true}, {Part::kSlotRest, c.slot, false}};
      case Command::Kind::kReadGradient:
        return {{Part::kStateGradient, c.frame, true}, {Part::kSpill, c.block, false}};
      case Command::Kind::kUpdate: {
        std::vector<Part> touched = {{Part::kHi, c.block, true},
                                     {Part::kStateHi, c.frame, true},
                                     {Part::kStateRest, c.frame, true},
                                     {Part::kStateGradient, c.frame, true}};
        const std::uint32_t gradient = plan_.blocks[c.block].gradient_frame;
        if (gradient != kNone) touched.push_back({Part::kGradientFrame, gradient, false});
        return touched;
      }
      case Command::Kind::kGatherHi:
        return {{Part::kHi, c.block, false}, {Part::kStateHi, c.frame, true}};
      case Command::Kind::kWriteHi:
        if (lent) return {{Part::kStateHi, c.frame, false}, {Part::kSlotHi, c.slot, true}};
        return {{Part::kHi, c.block, false}, {Part::kSlotHi, c.slot, true}};
      case Command::Kind::kWriteState:
        return {{Part::kStateRest, c.frame, false}, {Part::kSlotRest, c.slot, true}};
      case Command::Kind::kSpillGradient:
        return {{Part::kGradientFrame, c.frame, false}, {Part::kSpill, c.block, true}};
      case Command::Kind::kReopenGradient:
        return {{Part::kGradientFrame, c.frame, true}, {Part::kSpill, c.block, false}};
      case Command::Kind::kTeeHi:
        if (lent) return {{Part::kStateHi, c.frame, false}, {Part::kCopyHi, c.block, true}};
        return {{Part::kHi, c.block, false}, {Part::kCopyHi, c.block, true}};
      case Command::Kind::kTeeState:
        return {{Part::kStateRest, c.frame, false}, {Part::kCopyRest, c.block, true}};
      case Command::Kind::kTeeBlock: {
        const SlotIndex from = blocks_[c.block].committing;
        return {{Part::kSlotHi, from, false},
                {Part::kSlotRest, from, false},
                {Part::kCopyHi, c.block, true},
                {Part::kCopyRest, c.block, true}};
      }
      case Command::Kind::kCommit:
        break;
    }
    return {};
  }

  /// No part is touched by two at once unless both only read it; no frame serves two owners.
  void use(const std::vector<Part>& mine, std::uint32_t block, const std::string& name) {
    for (const Command& other : flights_) {
      if (other.block == kNone) continue;
      for (const Part& theirs : parts(other)) {
        for (const Part& part : mine) {
          if (part.kind == theirs.kind && part.index == theirs.index &&
              (part.exclusive || theirs.exclusive)) {
            fail(name + " collides with " + describe(other));
          }
          const bool state = part.kind >= Part::kStateHi && part.kind <= Part::kStateGradient;
          const bool their_state =
              theirs.kind >= Part::kStateHi && theirs.kind <= Part::kStateGradient;
          if (state && their_state && part.index == theirs.index && other.block != block) {
            fail(name + " shares a state frame with " + describe(other));
          }
        }
      }
    }
    for (const Part& part : mine) {
      if (part.kind == Part::kHi && part.exclusive && leases_[plan_.blocks[part.index].group] > 0) {
        fail(name + ": the group is leased");
      }
    }
  }

  void issue_block(const Command& c, const std::string& name) {
    Block& block = blocks_[c.block];
    const std::uint64_t version = c.kind == Command::Kind::kUpdate ? newest_ : block.version;
    if (c.version != version) fail(fmt::format("{}: the version is {}", name, version));
    const bool spill =
        c.kind == Command::Kind::kSpillGradient || c.kind == Command::Kind::kReopenGradient;
    const bool from_slot = c.kind == Command::Kind::kTeeBlock;
    if (block.working && !spill && !from_slot) fail(name + ": the block is being updated");
    switch (c.kind) {
      case Command::Kind::kReadHi:
        occupy(c, name);
        if (slot(c.slot).hi != Section{c.block, version}) fail(name + ": it is not there");
        block.hi = kNothing;
        block.verified = false;
        break;
      case Command::Kind::kReadState:
        own_state(c, name);
        if (slot(c.slot).rest != Section{c.block, version}) fail(name + ": it is not there");
        states_[c.frame].rest = {};
        break;
      case Command::Kind::kReadGradient:
        own_state(c, name);
        if (spills_[c.block] != block.gradient) fail(name + ": it is not there");
        states_[c.frame].gradient = {};
        break;
      case Command::Kind::kUpdate:
        issue_update(c, name);
        break;
      case Command::Kind::kGatherHi:
        own_state(c, name);
        states_[c.frame].hi = {};
        break;
      case Command::Kind::kWriteHi:
      case Command::Kind::kWriteState:
        issue_write(c, name);
        break;
      case Command::Kind::kSpillGradient:
        if (gradients_[c.frame].block != c.block) fail(name + ": it is not in the frame");
        spills_[c.block] = {};
        break;
      case Command::Kind::kReopenGradient:
        if (spills_[c.block] != block.gradient) fail(name + ": it is not there");
        gradients_[c.frame] = {};
        break;
      case Command::Kind::kTeeHi:
      case Command::Kind::kTeeState:
      case Command::Kind::kTeeBlock:
        issue_tee(c, name);
        break;
      default:
        break;
    }
  }

  /// A copy gets what the commit names, once.
  void issue_tee(const Command& c, const std::string& name) {
    Block& block = blocks_[c.block];
    const Section wanted{c.block, block.wanted};
    if (!teeing_) fail(name + ": nothing is copied");
    if (c.kind == Command::Kind::kTeeBlock) {
      if (block.committing == kNoSlot || slot(block.committing).hi != wanted ||
          (group(c.block).trainable && slot(block.committing).rest != wanted)) {
        fail(name + ": it is not whole in a slot of the commit");
      }
      return;
    }
    const bool hi = c.kind == Command::Kind::kTeeHi;
    if (hi && (group(c.block).lent ? states_[c.frame].hi != wanted : block.hi != block.wanted)) {
      fail(name + ": it is not in the frame");
    }
    if (!hi && states_[c.frame].rest != wanted) fail(name + ": it is not in the frame");
    if ((hi ? block.copy.hi : block.copy.rest) == wanted) fail(name + ": it was copied before");
  }

  void occupy(const Command& c, const std::string& name) {
    const std::uint32_t mine = plan_.blocks[c.block].group;
    if (c.frame != plan_.groups[mine].hi_frame) fail(name + ": the frame is another group's");
    std::uint32_t& holder = hi_frame_group_[c.frame];
    if (holder == mine) return;
    if (holder != kNone) {
      if (leases_[holder] > 0) fail(name + ": the frame is leased");
      for (const Command& other : flights_) {
        if (other.block == kNone || plan_.blocks[other.block].group != holder) continue;
        for (const Part& part : parts(other)) {
          if (part.kind == Part::kHi) fail(name + " displaces what " + describe(other) + " uses");
        }
      }
      for_blocks(holder, [&](std::uint32_t b) { blocks_[b].hi = kNothing; });
    }
    holder = mine;
  }

  /// The frame becomes the block's; what another block had there is gone.
  void own_state(const Command& c, const std::string& name) {
    const BlockPlan& plan = plan_.blocks[c.block];
    if (plan.state_pinned ? c.frame != plan.state_frame : c.frame >= plan_.stream_state_frames) {
      fail(name + ": not a frame of the block");
    }
    blocks_[c.block].state_frame = c.frame;
    State& state = states_[c.frame];
    if (state.hi.block != c.block) state.hi = {};
    if (state.rest.block != c.block) state.rest = {};
    if (state.gradient.block != c.block) state.gradient = {};
  }

  void issue_update(const Command& c, const std::string& name) {
    Block& block = blocks_[c.block];
    const State& state = states_[c.frame];
    const std::uint32_t pinned = plan_.blocks[c.block].gradient_frame;
    if (!block.pending) fail(name + ": the block is not pending");
    if (hi_of(c.block) != block.version) fail(name + ": hi of the base is not in its frame");
    if (!group(c.block).lent && !block.verified) fail(name + ": hi is not verified");
    if (state.rest != Section{c.block, block.version}) fail(name + ": lo, m, v are not there");
    const Gradient& gradient = pinned == kNone ? state.gradient : gradients_[pinned];
    if (gradient != block.gradient) fail(name + ": the gradient is not there");
    block.working = true;
    block.target = c.slot;
  }

  void issue_write(const Command& c, const std::string& name) {
    const bool hi = c.kind == Command::Kind::kWriteHi;
    Block& block = blocks_[c.block];
    if (hi && (group(c.block).lent ? states_[c.frame].hi != Section{c.block, c.version}
                                   : block.hi != c.version)) {
      fail(name + ": it is not in the frame");
    }
    if (!hi && states_[c.frame].rest != Section{c.block, c.version}) {
      fail(name + ": it is not in the frame");
    }
    for (std::uint32_t b = 0; b < blocks_.size(); ++b) {
      const Block& other = blocks_[b];
      if (other.durable == c.slot || other.committing == c.slot) {
        // A recorded block is complete, so nothing of it is left to write.
        fail(fmt::format("{}: the slot is named by a commit (block {})", name, b));
      }
      if (b != c.block && (other.home == c.slot || other.target == c.slot)) {
        fail(fmt::format("{}: the slot holds block {}", name, b));
      }
    }
    (hi ? slot(c.slot).hi : slot(c.slot).rest) = {};
    block.target = c.slot;
  }

  void issue_commit() {
    const auto entries = table_.commit_entries();
    for (std::uint32_t b = 0; b < blocks_.size(); ++b) {
      const Block& block = blocks_[b];
      const SlotEntry& entry = entries[b];
      const Section whole{b, block.wanted};
      const bool trainable = group(b).trainable;
      const std::uint32_t needed = trainable ? (1U << kSectionCount) - 1 : 1U << kHiSection;
      if (entry.version != block.wanted || entry.slot != block.committing ||
          (entry.written & needed) != needed || slot(entry.slot).hi != whole ||
          (trainable && slot(entry.slot).rest != whole)) {
        fail(fmt::format("commit: block {} is not complete at version {}", b, block.wanted));
      }
      if (teeing_ && (block.copy.hi != whole || (trainable && block.copy.rest != whole))) {
        fail(fmt::format("commit: block {} was not copied at version {}", b, block.wanted));
      }
      for (std::size_t s = 0; s < (trainable ? kSectionCount : 1); ++s) {
        if (entry.roots[s] != root_of(b, block.wanted, s)) {
          fail(fmt::format("commit: block {} has a wrong root of section {}", b, s));
        }
      }
    }
  }

  void finish_block(const Command& c) {
    Block& block = blocks_[c.block];
    const Section now{c.block, c.version};
    switch (c.kind) {
      case Command::Kind::kReadHi:
        block.hi = c.version;
        break;
      case Command::Kind::kVerifyHi:
        block.verified = true;
        break;
      case Command::Kind::kReadState:
        states_[c.frame].rest = now;
        break;
      case Command::Kind::kReadGradient:
        states_[c.frame].gradient = spills_[c.block];
        break;
      case Command::Kind::kUpdate:
        block.working = block.pending = false;
        block.version = c.version;
        (group(c.block).lent ? block.lent_hi : block.hi) = c.version;
        states_[c.frame].rest = now;
        if (group(c.block).lent) states_[c.frame].hi = now;
        block.gradient = {};
        ++updates_done_;
        break;
      case Command::Kind::kGatherHi:
        states_[c.frame].hi = {c.block, block.lent_hi};
        break;
      case Command::Kind::kWriteHi:
        slot(c.slot).hi = now;
        land(block, c.slot);
        break;
      case Command::Kind::kWriteState:
        slot(c.slot).rest = now;
        land(block, c.slot);
        break;
      case Command::Kind::kSpillGradient:
        spills_[c.block] = gradients_[c.frame];
        gradients_[c.frame] = {};
        break;
      case Command::Kind::kReopenGradient:
        gradients_[c.frame] = spills_[c.block];
        break;
      case Command::Kind::kTeeHi:
        block.copy.hi = now;
        break;
      case Command::Kind::kTeeState:
        block.copy.rest = now;
        break;
      case Command::Kind::kTeeBlock:
        block.copy.hi = block.copy.rest = {c.block, block.wanted};
        break;
      case Command::Kind::kCommit:
        break;
    }
  }

  static void land(Block& block, SlotIndex slot) {
    block.home = slot;
    block.target = kNoSlot;
  }

  void check_block(std::uint32_t b) {
    Block& block = blocks_[b];
    if (table_.commit_in_progress() && table_.commit_recorded(b)) {
      if (block.committing == kNoSlot) block.committing = table_.entry(b).slot;
    }
    std::set<SlotIndex> held = {block.home, block.durable};
    if (block.committing != kNoSlot) held.insert(block.committing);
    if (block.target != kNoSlot) held.insert(block.target);
    if (held.size() > 2) fail(fmt::format("block {} holds three slots", b));

    const Section newest{b, block.version};
    const Slot& home = slot(block.home);
    const auto in_state = [&](auto member, const auto& value) {
      return std::any_of(states_.begin(), states_.end(),
                         [&](const State& s) { return s.*member == value; });
    };
    if (hi_of(b) != block.version && home.hi != newest) {
      fail(fmt::format("hi of block {} version {} is lost", b, block.version));
    }
    if (!group(b).trainable) return;
    if (home.rest != newest && !in_state(&State::rest, newest)) {
      fail(fmt::format("lo, m, v of block {} version {} are lost", b, block.version));
    }
    if (block.gradient.ranges == 0) return;
    const bool somewhere =
        std::find(gradients_.begin(), gradients_.end(), block.gradient) != gradients_.end() ||
        spills_[b] == block.gradient || in_state(&State::gradient, block.gradient);
    if (!somewhere) fail(fmt::format("the gradient of block {} is lost", b));
  }

  const Plan& plan_;
  const SlotTable& table_;
  std::vector<Block> blocks_;
  std::vector<std::uint32_t> hi_frame_group_;
  std::vector<std::uint32_t> leases_;
  std::vector<State> states_;
  std::vector<Gradient> gradients_, spills_;
  std::vector<Slot> slots_;
  std::vector<Command> flights_;
  std::uint64_t newest_ = 0, step_ = 0, updates_done_ = 0;
  bool teeing_ = false;
  std::string why_;
};

}  // namespace penstock::testing
