// Events, weights and the pump. Updates and commits are in scheduler_update.cpp.

#include "plan/scheduler.hpp"

#include <algorithm>

namespace penstock {
namespace {

/// Groups that may wait for a hi frame before the look-ahead gives up: more would only be asked
/// again at the next event.
constexpr int kBlockedLimit = 2;

}  // namespace

Scheduler::Scheduler(const Plan& plan, SlotTable& table, std::span<const std::uint64_t> versions)
    : plan_(plan),
      table_(table),
      blocks_(plan.blocks.size()),
      groups_(plan.groups.size()),
      occupant_(plan.hi_frames.size(), kNone),
      claimed_(plan.hi_frames.size(), 0),
      state_owner_(plan.stream_state_frames, kNone),
      visits_(plan.forward),
      forward_count_(plan.forward.size()),
      queue_(plan.blocks.size() * 10 + 16) {
  visits_.insert(visits_.end(), plan.backward.begin(), plan.backward.end());
  visit_count_ = visits_.size();
  for (std::size_t i = 0; i < visit_count_; ++i) {
    const auto pass =
        visits_.begin() + static_cast<std::ptrdiff_t>(i < forward_count_ ? 0 : forward_count_);
    const auto here = visits_.begin() + static_cast<std::ptrdiff_t>(i);
    reuse_.push_back(std::find(pass, here, *here) != here);
  }
  cursor_ = visit_count_ == 0 ? 0 : visit_count_ - 1;
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    blocks_[b].version = versions[b];
    updates_ = std::max(updates_, versions[b]);
  }
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    groups_[g].absent = plan.groups[g].lent ? 0 : plan.groups[g].block_count;
  }
  // Taken from the back: low frame numbers first.
  for (std::uint32_t i = plan.stream_state_frames; i > 0; --i) free_states_.push_back(i - 1);
  for (std::uint32_t i = plan.stage_gradient_frames; i > 0; --i) free_stages_.push_back(i - 1);
}

// --- trainer ---------------------------------------------------------------------------------

void Scheduler::want(std::uint32_t group) {
  ++groups_[group].wanted;
  const std::size_t count = visit_count_;
  for (std::size_t ahead = 1; ahead <= count; ++ahead) {
    const std::size_t position = (cursor_ + ahead) % count;
    if (visits_[position] == group) {
      cursor_ = position;
      break;
    }
  }
  dirty_pump_ = true;
}

void Scheduler::unwant(std::uint32_t group) {
  --groups_[group].wanted;
  dirty_pump_ = true;
}

bool Scheduler::up_to_date(std::uint32_t group) const {
  return groups_[group].absent == 0 && groups_[group].unsettled == 0;
}

bool Scheduler::ready(std::uint32_t group) const {
  return up_to_date(group);
}

void Scheduler::lease(std::uint32_t group) {
  check(up_to_date(group), "lease on a group that is not ready");
  --groups_[group].wanted;
  ++groups_[group].leases;
  dirty_pump_ = true;
}

void Scheduler::release(std::uint32_t group) {
  check(groups_[group].leases > 0, "release without a lease");
  --groups_[group].leases;
  dirty_pump_ = true;
}

std::uint32_t Scheduler::blocking_group(std::uint32_t group) const {
  if (groups_[group].leases > 0 && groups_[group].unsettled > 0) return group;
  const std::uint32_t frame = plan_.groups[group].hi_frame;
  if (frame == kNone) return kNone;
  const std::uint32_t holder = occupant_[frame];
  return holder != kNone && holder != group && groups_[holder].leases > 0 ? holder : kNone;
}

void Scheduler::set_forward_only(bool on) {
  visit_count_ = on ? forward_count_ : visits_.size();
  cursor_ = visit_count_ == 0 ? 0 : visit_count_ - 1;
  dirty_pump_ = true;
}

// --- gradients -------------------------------------------------------------------------------

bool Scheduler::accepts_gradient(std::uint32_t block) const {
  return blocks_[block].state == BlockState::kBase;
}

bool Scheduler::take_stage(std::uint32_t block) {
  if (free_stages_.empty()) {
    for (std::uint32_t i = 0; i < blocks_.size() && spilling_ == 0; ++i) {
      const bool staged = plan_.blocks[i].spill_index != kNone;
      if (i != block && staged && blocks_[i].gradient == Gradient::kFilling) gradient_filled(i);
    }
    return false;
  }
  blocks_[block].gradient_frame = free_stages_.back();
  free_stages_.pop_back();
  return true;
}

std::uint32_t Scheduler::gradient_frame(std::uint32_t block) {
  Block& b = blocks_[block];
  if (b.gradient == Gradient::kFilling) return b.gradient_frame;
  const bool spills = plan_.blocks[block].spill_index != kNone;
  if (b.gradient == Gradient::kSpilled) {  // of this step: spilled before it was complete
    if (take_stage(block)) {
      b.gradient = Gradient::kReopening;
      emit(Command::Kind::kReopenGradient, block, b.gradient_frame, kNoSlot, IoClass::kDemand);
    }
    return kNone;
  }
  if (b.gradient != Gradient::kNone) return kNone;
  if (!spills) {
    b.gradient_frame = plan_.blocks[block].gradient_frame;
  } else if (!take_stage(block)) {
    return kNone;
  }
  b.gradient = Gradient::kFilling;
  return b.gradient_frame;
}

void Scheduler::gradient_filled(std::uint32_t block) {
  Block& b = blocks_[block];
  check(b.gradient == Gradient::kFilling, "gradient filled twice");
  if (plan_.blocks[block].spill_index == kNone) {
    b.gradient = Gradient::kInFrame;
    return;
  }
  b.gradient = Gradient::kSpilling;
  ++spilling_;
  emit(Command::Kind::kSpillGradient, block, b.gradient_frame, kNoSlot, IoClass::kWriteBack);
}

void Scheduler::free_gradient(std::uint32_t block) {
  Block& b = blocks_[block];
  b.gradient = Gradient::kNone;
  b.gradient_frame = kNone;
  b.read_back = Copy::kAbsent;
  b.drop_gradient = false;
}

void Scheduler::step_ended(bool apply, std::uint64_t updates) {
  check(settled(), "a step ended before the updates of the last one");
  if (apply) updates_ = updates;
  for (std::uint32_t i = 0; i < blocks_.size(); ++i) {
    Block& b = blocks_[i];
    if (b.gradient == Gradient::kFilling) gradient_filled(i);
    if (b.gradient == Gradient::kNone || b.drop_gradient) continue;
    if (apply) {
      b.state = BlockState::kPending;
      ++unsettled_;
      ++groups_[plan_.blocks[i].group].unsettled;
    } else if (b.gradient == Gradient::kSpilling) {
      b.drop_gradient = true;
    } else {
      free_gradient(i);
    }
  }
  dirty_pump_ = true;
}

// --- weights ---------------------------------------------------------------------------------

bool Scheduler::evictable(std::uint32_t group) const {
  const Group& g = groups_[group];
  if (g.leases > 0 || g.wanted > 0) return false;
  const GroupPlan& plan = plan_.groups[group];
  for (std::uint32_t i = plan.first_block; i < plan.first_block + plan.block_count; ++i) {
    const Block& b = blocks_[i];
    const bool moving = b.hi == Copy::kReading || b.hi == Copy::kVerifying || b.hi_writing ||
                        b.tee_hi == Tee::kWriting || b.hi_dirty || b.state == BlockState::kWorking;
    const bool in_pipeline =
        b.state == BlockState::kPending && b.state_frame != kNone && !plan_.blocks[i].state_pinned;
    if (moving || in_pipeline) return false;
  }
  return true;
}

bool Scheduler::take_hi_frame(std::uint32_t group) {
  const std::uint32_t frame = plan_.groups[group].hi_frame;
  const bool claimed = claimed_[frame] == pump_number_;
  if (occupant_[frame] == group) {
    claimed_[frame] = pump_number_;
    return true;
  }
  if (claimed) return false;  // somebody needed sooner has it, or will
  claimed_[frame] = pump_number_;
  const std::uint32_t holder = occupant_[frame];
  if (holder != kNone) {
    if (!evictable(holder)) return false;
    const GroupPlan& plan = plan_.groups[holder];
    for (std::uint32_t i = plan.first_block; i < plan.first_block + plan.block_count; ++i) {
      blocks_[i].hi = Copy::kAbsent;
    }
    groups_[holder].absent = plan.block_count;
  }
  occupant_[frame] = group;
  return true;
}

void Scheduler::load_hi(std::uint32_t group, IoClass io_class, bool reuse) {
  if (groups_[group].absent == 0) return;
  const GroupPlan& plan = plan_.groups[group];
  for (std::uint32_t i = plan.first_block; i < plan.first_block + plan.block_count; ++i) {
    if (blocks_[i].hi != Copy::kAbsent) continue;
    const SlotEntry& entry = table_.entry(i);
    check(entry.version == blocks_[i].version && (entry.written & (1U << kHiSection)) != 0,
          "hi is read before its write has landed");
    blocks_[i].hi = Copy::kReading;
    emit(Command::Kind::kReadHi, i, plan.hi_frame, entry.slot, io_class).reuse = reuse;
  }
}

/// False when the group waits for a frame or a slot.
bool Scheduler::advance_group(std::uint32_t group, IoClass io_class, bool reuse) {
  const GroupPlan& plan = plan_.groups[group];
  if (!plan.lent) {
    if (!take_hi_frame(group)) return false;
    load_hi(group, io_class, reuse);
  }
  if (groups_[group].unsettled == 0) return true;
  bool all = true;
  for (std::uint32_t i = plan.first_block; i < plan.first_block + plan.block_count; ++i) {
    all = advance_update(i, io_class) && all;
  }
  return all;
}

// --- the pump --------------------------------------------------------------------------------

void Scheduler::pump() {
  ++pump_number_;
  retry_records();
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].wanted > 0 && !up_to_date(g)) {
      const bool at_cursor = visit_count_ > 0 && visits_[cursor_] == g;
      advance_group(g, IoClass::kDemand, at_cursor && reuse_[cursor_]);
    }
  }
  for (const std::uint32_t block : state_owner_) {
    if (block != kNone) advance_update(block, IoClass::kPrefetch);
  }
  int blocked = 0;
  if (sweep_ && unsettled_ > 0) {
    const auto sweep = [&](std::uint32_t g) {
      if (groups_[g].unsettled > 0 && blocked < kBlockedLimit) {
        blocked += advance_group(g, IoClass::kPrefetch) ? 0 : 1;
      }
    };
    for (const std::uint32_t g : plan_.forward) sweep(g);
    for (std::uint32_t g = 0; g < groups_.size(); ++g) sweep(g);
  }
  if (plan_.level == Level::kWeights) {
    for (std::size_t ahead = 1; ahead < visit_count_ && blocked < kBlockedLimit; ++ahead) {
      const std::size_t position = (cursor_ + ahead) % visit_count_;
      const bool reuse = reuse_[position];
      blocked += advance_group(visits_[position], IoClass::kPrefetch, reuse) ? 0 : 1;
    }
  }
  if (tee_left_ > 0) tee_blocks();
  if (table_.commit_in_progress() && table_.commit_complete() && tee_left_ == 0 &&
      !commit_issued_) {
    commit_issued_ = true;
    emit(Command::Kind::kCommit, kNone, kNone, kNoSlot, IoClass::kCheckpoint);
  }
}

Command& Scheduler::emit(Command::Kind kind, std::uint32_t block, std::uint32_t frame,
                         SlotIndex slot, IoClass io_class) {
  check(count_ < queue_.size(), "the command queue is full");
  Command& command = queue_[(head_ + count_) % queue_.size()];
  const std::uint64_t version = block == kNone ? updates_ : blocks_[block].version;
  command = {kind,  io_class, block,
             frame, slot,     kind == Command::Kind::kUpdate ? updates_ : version};
  ++count_;
  ++in_flight_;
  return command;
}

bool Scheduler::next(Command& command) {
  if (count_ == 0 && dirty_pump_) {
    dirty_pump_ = false;
    pump();
  }
  if (count_ == 0) return false;
  command = queue_[head_];
  head_ = (head_ + 1) % queue_.size();
  --count_;
  return true;
}

void Scheduler::done(const Command& command, std::span<const std::uint64_t> roots) {
  --in_flight_;
  dirty_pump_ = true;
  if (command.kind == Command::Kind::kCommit) {
    table_.commit_finished();
    return;
  }
  Block& b = blocks_[command.block];
  switch (command.kind) {
    case Command::Kind::kReadHi:
      b.hi = Copy::kVerifying;
      emit(Command::Kind::kVerifyHi, command.block, command.frame, command.slot, command.io_class);
      break;
    case Command::Kind::kVerifyHi:
      b.hi = Copy::kPresent;
      --groups_[plan_.blocks[command.block].group].absent;
      if (b.tee_hi == Tee::kWanted && b.tee_rest == Tee::kDone && b.version == b.commit_version &&
          table_.commit_recorded(command.block)) {
        tee_sections(command.block, true, false);
      }
      break;
    case Command::Kind::kReadState:
      b.rest = Copy::kPresent;
      break;
    case Command::Kind::kReadGradient:
      b.read_back = Copy::kPresent;
      break;
    case Command::Kind::kUpdate:
      update_done(command.block, roots);
      break;
    case Command::Kind::kGatherHi:
      b.gathering = false;
      b.gathered = true;
      b.roots[kHiSection] = roots[kHiSection];
      try_record(command.block);
      break;
    case Command::Kind::kWriteHi:
    case Command::Kind::kWriteState:
      written(command);
      break;
    case Command::Kind::kReopenGradient:
      b.gradient = Gradient::kFilling;
      break;
    case Command::Kind::kSpillGradient:
      --spilling_;
      free_stages_.push_back(b.gradient_frame);
      b.gradient_frame = kNone;
      b.gradient = Gradient::kSpilled;
      if (b.drop_gradient) free_gradient(command.block);
      break;
    case Command::Kind::kTeeHi:
    case Command::Kind::kTeeState:
    case Command::Kind::kTeeBlock:
      tee_done(command);
      break;
    case Command::Kind::kCommit:
      break;
  }
}

}  // namespace penstock
