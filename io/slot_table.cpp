#include "io/slot_table.hpp"

#include <algorithm>

namespace penstock {

SlotTable::SlotTable(std::size_t block_count, std::size_t slot_count, std::size_t section_count,
                     bool scratch, ProtocolFaults faults)
    : entries_(block_count),
      snapshot_(block_count),
      targets_(block_count),
      durable_(block_count, kNoSlot),
      free_(slot_count),
      pins_(slot_count, 0),
      recorded_(block_count, false),
      section_count_(section_count),
      scratch_(scratch),
      faults_(faults) {
  for (std::size_t i = 0; i < slot_count; ++i) release(static_cast<SlotIndex>(i));
}

SlotIndex SlotTable::take() {
  if (free_count_ == 0) return kNoSlot;
  const SlotIndex slot = free_[free_head_];
  free_head_ = (free_head_ + 1) % free_.size();
  --free_count_;
  return slot;
}

void SlotTable::release(SlotIndex slot) {
  free_[(free_head_ + free_count_) % free_.size()] = slot;
  ++free_count_;
}

bool SlotTable::is_protected(std::size_t block, SlotIndex slot) const {
  if (scratch_) return false;
  if (durable_[block] == slot || pins_[slot] > 0) return true;
  return committing_ && recorded_[block] && snapshot_[block].slot == slot;
}

bool SlotTable::is_used(std::size_t block, SlotIndex slot) const {
  return is_protected(block, slot) || entries_[block].slot == slot || targets_[block].slot == slot;
}

SlotIndex SlotTable::choose_target(std::size_t block, std::uint64_t version) {
  const SlotEntry& entry = entries_[block];
  Target& target = targets_[block];
  if (entry.slot != kNoSlot && version <= entry.version) {
    return version == entry.version ? entry.slot : kNoSlot;
  }
  if (target.slot == kNoSlot) {
    const bool in_place =
        entry.slot != kNoSlot && (faults_.overwrite_base || !is_protected(block, entry.slot));
    target.slot = in_place ? entry.slot : take();
  }
  target.version = version;
  return target.slot;
}

void SlotTable::landed(std::size_t block, std::uint64_t version, SlotIndex slot,
                       std::size_t section, std::uint64_t root) {
  if (slot == kNoSlot || section >= section_count_) return;
  SlotEntry& entry = entries_[block];
  Target& target = targets_[block];
  if (target.slot == slot && target.version == version) {
    const SlotIndex left = entry.slot;
    entry = SlotEntry{};
    entry.slot = slot;
    entry.version = version;
    target = Target{};
    if (left != kNoSlot && left != slot && !is_protected(block, left)) release(left);
  }
  if (entry.slot != slot || entry.version != version) return;  // overtaken
  entry.written |= std::uint32_t{1} << section;
  entry.roots[section] = root;
}

void SlotTable::commit_begin() {
  if (committing_) return;
  committing_ = true;
  std::fill(recorded_.begin(), recorded_.end(), false);
  unrecorded_ = entries_.size();
}

void SlotTable::commit_record(std::size_t block) {
  if (!committing_ || recorded_[block]) return;
  SlotEntry& snapshot = snapshot_[block];
  snapshot = entries_[block];
  // A newer version is on its way into this slot, so nothing in it can be relied on.
  if (targets_[block].slot == snapshot.slot) snapshot.written = 0;
  recorded_[block] = true;
  --unrecorded_;
  if (faults_.reuse_slot_early && durable_[block] != kNoSlot && durable_[block] != snapshot.slot) {
    // To the front: the bug shows when the slot is taken before the commit is through.
    free_head_ = (free_head_ + free_.size() - 1) % free_.size();
    free_[free_head_] = durable_[block];
    ++free_count_;
    durable_[block] = kNoSlot;
  }
}

void SlotTable::commit_finished() {
  if (!committing_ || unrecorded_ != 0) return;
  for (std::size_t block = 0; block < entries_.size(); ++block) {
    const SlotIndex dropped = durable_[block];
    durable_[block] = snapshot_[block].slot;
    if (dropped != kNoSlot && dropped != durable_[block] && pins_[dropped] == 0) release(dropped);
  }
  committing_ = false;
}

void SlotTable::change_pins(std::span<const std::vector<SlotIndex>> kept,
                            std::span<const std::vector<SlotIndex>> dropped) {
  if (faults_.reuse_pinned_slot) return;
  for (const std::vector<SlotIndex>& pin : kept) {
    for (const SlotIndex slot : pin) ++pins_[slot];
  }
  for (const std::vector<SlotIndex>& pin : dropped) {
    for (std::size_t block = 0; block < pin.size(); ++block) {
      const SlotIndex slot = pin[block];
      if (--pins_[slot] == 0 && !is_used(block, slot)) release(slot);
    }
  }
}

void SlotTable::load_durable(std::span<const SlotEntry> entries,
                             std::span<const std::vector<SlotIndex>> pins) {
  std::vector<bool> used(free_.size(), false);
  std::fill(pins_.begin(), pins_.end(), std::uint8_t{0});
  change_pins(pins, {});
  for (std::size_t slot = 0; slot < used.size(); ++slot) used[slot] = pins_[slot] > 0;
  for (std::size_t block = 0; block < entries_.size(); ++block) {
    entries_[block] = entries[block];
    snapshot_[block] = entries[block];
    targets_[block] = Target{};
    durable_[block] = entries[block].slot;
    if (entries[block].slot < used.size()) used[entries[block].slot] = true;
  }
  free_head_ = 0;
  free_count_ = 0;
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) release(static_cast<SlotIndex>(i));
  }
  std::fill(recorded_.begin(), recorded_.end(), false);
  unrecorded_ = 0;
  committing_ = false;
}

}  // namespace penstock
