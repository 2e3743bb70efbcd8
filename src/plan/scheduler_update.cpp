// What happens to a block after its gradient: the update, the writes, the commit that waits for it.

#include <algorithm>

#include "plan/scheduler.hpp"

namespace penstock {
namespace {

constexpr std::uint32_t kAllSections = (1U << kSectionCount) - 1;
constexpr std::uint32_t kRestSections = (1U << kLoSection) | (1U << kMSection) | (1U << kVSection);

}  // namespace

// --- commits ---------------------------------------------------------------------------------

bool Scheduler::hi_in_ram(std::uint32_t block) const {
  const GroupPlan& group = plan_.groups[plan_.blocks[block].group];
  return group.hi_pinned || group.lent;
}

bool Scheduler::complete_on_drive(std::uint32_t block) const {
  const SlotEntry& entry = table_.entry(block);
  const bool trainable = plan_.groups[plan_.blocks[block].group].trainable;
  const std::uint32_t needed = trainable ? kAllSections : 1U << kHiSection;
  return entry.version == blocks_[block].version && (entry.written & needed) == needed;
}

void Scheduler::commit_begin() {
  table_.commit_begin();
  commit_issued_ = false;
  retry_records_ = false;
  for (std::uint32_t i = 0; i < blocks_.size(); ++i) {
    blocks_[i].commit_version =
        blocks_[i].state == BlockState::kBase ? blocks_[i].version : updates_;
    try_record(i);
  }
  dirty_pump_ = true;
}

void Scheduler::tee_begin() {
  tee_all_ = sweep_;
  for (std::uint32_t i = 0; i < blocks_.size(); ++i) {
    Block& b = blocks_[i];
    const bool trainable = plan_.groups[plan_.blocks[i].group].trainable;
    b.tee_hi = Tee::kWanted;
    b.tee_rest = trainable ? Tee::kWanted : Tee::kDone;
    tee_left_ += trainable ? 2 : 1;
  }
  dirty_pump_ = true;
}

/// Copies sections of the commit's version that are in their frames.
void Scheduler::tee_sections(std::uint32_t block, bool hi, bool rest) {
  Block& b = blocks_[block];
  const GroupPlan& group = plan_.groups[plan_.blocks[block].group];
  if (rest && b.tee_rest == Tee::kWanted) {
    b.tee_rest = Tee::kWriting;
    emit(Command::Kind::kTeeState, block, b.state_frame, kNoSlot, IoClass::kCheckpoint);
  }
  if (hi && b.tee_hi == Tee::kWanted) {
    b.tee_hi = Tee::kWriting;
    emit(Command::Kind::kTeeHi, block, group.lent ? b.state_frame : group.hi_frame, kNoSlot,
         IoClass::kCheckpoint);
  }
}

/// Blocks that no write and no visit brings by are read from their slots, one at a time.
void Scheduler::tee_blocks() {
  for (std::uint32_t i = 0; i < blocks_.size() && !tee_block_busy_; ++i) {
    Block& b = blocks_[i];
    const bool wanted = b.tee_hi == Tee::kWanted || b.tee_rest == Tee::kWanted;
    const bool writing = b.tee_hi == Tee::kWriting || b.tee_rest == Tee::kWriting;
    if (!wanted || writing || !table_.commit_recorded(i)) continue;
    // Weights alone come by with the next visit of their group.
    if (b.tee_rest != Tee::kWanted && !tee_all_) continue;
    tee_block_busy_ = true;
    for (Tee* part : {&b.tee_hi, &b.tee_rest}) {
      if (*part == Tee::kWanted) *part = Tee::kReading;
    }
    emit(Command::Kind::kTeeBlock, i, kNone, kNoSlot, IoClass::kCheckpoint);
  }
}

void Scheduler::tee_done(const Command& command) {
  Block& b = blocks_[command.block];
  const auto copied = [&](Tee& part) {
    if (part != Tee::kDone) --tee_left_;
    part = Tee::kDone;
  };
  if (command.kind != Command::Kind::kTeeState) copied(b.tee_hi);
  if (command.kind != Command::Kind::kTeeHi) copied(b.tee_rest);
  if (command.kind == Command::Kind::kTeeBlock) {
    tee_block_busy_ = false;
    return;
  }
  release_frames(command.block);
  try_record(command.block);
}

void Scheduler::try_record(std::uint32_t block) {
  Block& b = blocks_[block];
  if (!commit_wants(block) || b.version != b.commit_version) return;
  if (b.state == BlockState::kWorking || being_read(b)) return;
  if (complete_on_drive(block)) {
    table_.commit_record(block);
    dirty_pump_ = true;
    return;
  }
  // Sections at home in RAM follow into the version's slot.
  const bool gather = plan_.groups[plan_.blocks[block].group].lent && b.hi_dirty && !b.gathered;
  if (gather) {
    if (!take_state_frame(block)) {
      retry_records_ = true;
      return;
    }
    b.gathering = true;
    emit(Command::Kind::kGatherHi, block, b.state_frame, kNoSlot, IoClass::kCheckpoint);
    return;
  }
  const SlotIndex slot = table_.choose_target(block, b.version);
  if (slot == kNoSlot) {
    retry_records_ = true;
    return;
  }
  write_sections(block, slot, b.hi_dirty, b.rest_dirty, IoClass::kCheckpoint);
}

void Scheduler::retry_records() {
  if (!retry_records_) return;
  retry_records_ = false;
  for (std::uint32_t i = 0; i < blocks_.size(); ++i) try_record(i);
}

// --- updates ---------------------------------------------------------------------------------

bool Scheduler::take_state_frame(std::uint32_t block) {
  Block& b = blocks_[block];
  if (b.state_frame != kNone) return true;
  if (plan_.blocks[block].state_pinned) {
    b.state_frame = plan_.blocks[block].state_frame;
    return true;
  }
  if (free_states_.empty()) return false;
  b.state_frame = free_states_.back();
  free_states_.pop_back();
  state_owner_[b.state_frame] = block;
  return true;
}

void Scheduler::free_state_frame(std::uint32_t block) {
  Block& b = blocks_[block];
  b.gathered = false;
  if (plan_.blocks[block].state_pinned || b.state_frame == kNone) return;
  free_states_.push_back(b.state_frame);
  state_owner_[b.state_frame] = kNone;
  b.state_frame = kNone;
  b.rest = Copy::kAbsent;
}

bool Scheduler::reserve_target(std::uint32_t block) {
  Block& b = blocks_[block];
  const bool writes = !hi_in_ram(block) || !plan_.blocks[block].state_pinned || commit_wants(block);
  if (!writes || b.target != kNoSlot) return true;
  if (table_.at_quota(block)) return false;
  b.target = table_.choose_target(block, updates_);
  return b.target != kNoSlot;
}

void Scheduler::advance_gradient(std::uint32_t block, IoClass io_class) {
  Block& b = blocks_[block];
  if (b.gradient != Gradient::kSpilled || b.read_back != Copy::kAbsent) return;
  b.read_back = Copy::kReading;
  emit(Command::Kind::kReadGradient, block, b.state_frame, kNoSlot, io_class);
}

bool Scheduler::inputs_present(const Block& b) const {
  const bool gradient = b.gradient == Gradient::kInFrame || b.read_back == Copy::kPresent;
  return gradient && b.rest == Copy::kPresent;
}

/// False when the block waits for a slot or a frame.
bool Scheduler::advance_update(std::uint32_t block, IoClass io_class) {
  Block& b = blocks_[block];
  const std::uint32_t group = plan_.blocks[block].group;
  if (b.state != BlockState::kPending || groups_[group].leases > 0) return true;
  if (being_read(b)) return true;
  if (commit_wants(block) && b.version == b.commit_version) return true;  // flushed first
  if (!reserve_target(block) || !take_state_frame(block)) return false;
  if (b.rest == Copy::kAbsent) {
    const SlotEntry& entry = table_.entry(block);
    check(entry.version == b.version && (entry.written & kRestSections) == kRestSections,
          "lo, m, v are read before their write has landed");
    b.rest = Copy::kReading;
    emit(Command::Kind::kReadState, block, b.state_frame, entry.slot, io_class);
  }
  advance_gradient(block, io_class);
  const bool lent = plan_.groups[group].lent;
  if (inputs_present(b) && (lent || b.hi == Copy::kPresent)) {
    b.state = BlockState::kWorking;
    emit(Command::Kind::kUpdate, block, b.state_frame, b.target, io_class);
  }
  return true;
}

void Scheduler::update_done(std::uint32_t block, std::span<const std::uint64_t> roots) {
  Block& b = blocks_[block];
  check(b.state == BlockState::kWorking, "an update finished that was not running");
  b.version = updates_;
  b.state = BlockState::kBase;
  std::copy(roots.begin(), roots.end(), b.roots);
  b.hi_dirty = b.rest_dirty = true;
  b.gathered = plan_.groups[plan_.blocks[block].group].lent;
  free_gradient(block);
  --unsettled_;
  --groups_[plan_.blocks[block].group].unsettled;
  const bool commits = commit_wants(block);
  const bool hi = commits || !hi_in_ram(block);
  const bool rest = commits || !plan_.blocks[block].state_pinned;
  const SlotIndex slot = b.target;
  b.target = kNoSlot;
  if (slot != kNoSlot) {
    write_sections(block, slot, hi, rest, IoClass::kWriteBack);
  } else {
    check(!rest || plan_.blocks[block].state_pinned, "an update has no slot to go to");
    try_record(block);
  }
}

void Scheduler::write_sections(std::uint32_t block, SlotIndex slot, bool hi, bool rest,
                               IoClass io_class) {
  Block& b = blocks_[block];
  const GroupPlan& group = plan_.groups[plan_.blocks[block].group];
  check(hi || rest, "a slot was reserved and nothing is written");
  if (rest) {
    b.rest_writing = true;
    emit(Command::Kind::kWriteState, block, b.state_frame, slot, io_class);
  }
  if (hi) {
    b.hi_writing = true;
    emit(Command::Kind::kWriteHi, block, group.lent ? b.state_frame : group.hi_frame, slot,
         io_class);
  }
  if (commit_wants(block) && b.version == b.commit_version) tee_sections(block, hi, rest);
}

void Scheduler::written(const Command& command) {
  Block& b = blocks_[command.block];
  const auto landed = [&](std::size_t section) {
    table_.landed(command.block, command.version, command.slot, section, b.roots[section]);
  };
  check(command.version == b.version, "a write of an old version completed");
  if (command.kind == Command::Kind::kWriteHi) {
    b.hi_writing = b.hi_dirty = false;
    landed(kHiSection);
  } else {
    b.rest_writing = b.rest_dirty = false;
    landed(kLoSection);
    landed(kMSection);
    landed(kVSection);
  }
  release_frames(command.block);
  try_record(command.block);
}

void Scheduler::release_frames(std::uint32_t block) {
  const Block& b = blocks_[block];
  const bool lent_busy =
      plan_.groups[plan_.blocks[block].group].lent && (b.hi_writing || b.tee_hi == Tee::kWriting);
  // Also when the next update is already pending: it takes a frame again with its target (6).
  if (!b.rest_writing && b.tee_rest != Tee::kWriting && !lent_busy) free_state_frame(block);
}

}  // namespace penstock
