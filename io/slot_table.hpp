#pragma once

/// Which slot holds which version of which block: the pure bookkeeping of the store's three rules.
///
/// Invariants
///   1. A slot named by the durable manifest, by the manifest being committed or by a checkpoint
///      (a pinned slot) is never handed out by choose_target().
///   2. Only a *valid* successor overwrites a base version: choose_target() may return the block's
///      own slot because the caller asks for it only when the step's record is known (late update).
///   3. A slot returns to the pool only when the manifest that dropped it is durable: in
///      commit_finished(), or in change_pins() for a checkpoint that is gone for good.
///   4. Every slot is in exactly one of: free pool, current entry, chosen target, committing
///      snapshot, durable snapshot, checkpoints (the last five may name the same slot, and only of
///      one block).
///   5. A block has at most one chosen target; it stays chosen until its first section lands.
/// Early updates (before the record is known) need a third slot and are not served by this table:
/// landed() gives the slot left behind back at once.
/// The pool is first in, first out, so blocks that are written in order keep their order on the
/// drive. No I/O, no threads: the owner (the engine's monitor) serialises calls.

#include <cstdint>
#include <span>
#include <vector>

#include "io/section.hpp"

namespace penstock {

using SlotIndex = std::uint32_t;
inline constexpr SlotIndex kNoSlot = ~SlotIndex{0};

/// Test-only switches: each breaks one rule of the protocol so that a test can prove that the
/// power-loss harness notices, and a benchmark can tell what the rule costs. All false in every
/// other use.
struct ProtocolFaults {
  bool skip_data_flush = false;
  bool reuse_slot_early = false;
  bool overwrite_base = false;
  bool late_blob =
      false;  ///< honoured by the engine: the blob is captured when the manifest is written
  bool skip_directory_sync = false;
  bool reuse_pinned_slot = false;  ///< slots of a checkpoint go back to the pool
  bool drop_early = false;   ///< slots of a dropped checkpoint are used before it is gone for good
  bool sums_inside = false;  ///< a block's sums vouch for themselves: no root, no seed
  bool prefer_stale_manifest = false;
  bool lock_wrong_file = false;    ///< the lock is not on the file that carries the I/O
  bool overwrite_record = false;   ///< a global record is written over the one that still counts
  bool skip_finite_check = false;  ///< honoured by the engine: the commit comes before the check
  bool skip_sums = false;          ///< honoured by the engine: tiles are neither summed nor checked
};

/// The state of one block on the drive.
struct SlotEntry {
  SlotIndex slot = kNoSlot;   ///< where its newest written sections are
  std::uint64_t version = 0;  ///< t of the update that produced them; 0: initial values
  std::uint32_t written = 0;  ///< bit per section: that section of `version` is in `slot`
  std::uint64_t roots[kMaxSections] = {};  ///< checksum of each section's tile sums
};

class SlotTable {
 public:
  /// `section_count` sections per block; `scratch`: one slot per block, always in place.
  SlotTable(std::size_t block_count, std::size_t slot_count, std::size_t section_count,
            bool scratch, ProtocolFaults faults = {});

  [[nodiscard]] const SlotEntry& entry(std::size_t block) const { return entries_[block]; }
  [[nodiscard]] std::size_t block_count() const { return entries_.size(); }
  [[nodiscard]] std::size_t free_slots() const { return free_count_; }
  [[nodiscard]] bool scratch() const { return scratch_; }

  /// The slot that sections of `version` of the block are to be written to: the current one when
  /// nothing protects it, else one from the pool; kNoSlot when the pool is empty (wait for the
  /// commit). Idempotent for one version: asking again for the version already in the entry returns
  /// its slot, so RAM-homed sections of a version can follow later. Ask after the base has been
  /// read: when the current slot is returned, its content is gone from then on, and a
  /// commit_record() before the new version has landed records an entry with nothing written, which
  /// a store refuses. A newer version asked for before the older one landed takes over its target;
  /// no write of the older one may be in flight then.
  SlotIndex choose_target(std::size_t block, std::uint64_t version);

  /// Whether the block holds its two slots and both are protected: a newer version has to wait for
  /// the commit even if the pool has slots, for those are the second slots of other blocks, which
  /// the commit may need.
  [[nodiscard]] bool at_quota(std::size_t block) const {
    const SlotIndex slot = entries_[block].slot;
    return durable_[block] != kNoSlot && durable_[block] != slot && is_protected(block, slot);
  }

  /// Section `section` of `version` has landed in `slot`. The first section of a newer version
  /// makes that version the entry; an unprotected slot left behind returns to the pool. What was
  /// not chosen by choose_target(), or was overtaken since, is ignored.
  void landed(std::size_t block, std::uint64_t version, SlotIndex slot, std::size_t section,
              std::uint64_t root);

  /// Starts a commit: no block is recorded yet. One commit at a time.
  void commit_begin();
  [[nodiscard]] bool commit_in_progress() const { return committing_; }
  /// The block's entry (all its non-empty sections written) becomes part of the commit and is
  /// protected.
  void commit_record(std::size_t block);
  [[nodiscard]] bool commit_recorded(std::size_t block) const { return recorded_[block]; }
  [[nodiscard]] bool commit_complete() const { return unrecorded_ == 0; }
  /// The entries of the commit; valid from commit_complete() until the next commit_begin().
  [[nodiscard]] std::span<const SlotEntry> commit_entries() const { return snapshot_; }
  /// One of them, once it is recorded.
  [[nodiscard]] const SlotEntry& commit_entry(std::size_t block) const { return snapshot_[block]; }
  /// The manifest is durable: slots only the previous one named return to the pool.
  void commit_finished();

  /// Slots of new checkpoints leave the pool's circulation, those of dropped ones come back unless
  /// something else names them. `kept` are lists by block, of slots that a durable manifest or the
  /// one being committed names: before commit_finished() for the commit in progress. Dropped ones
  /// were kept before.
  void change_pins(std::span<const std::vector<SlotIndex>> kept,
                   std::span<const std::vector<SlotIndex>> dropped);

  /// For opening: the entries of the durable manifest and the slots of checkpoints, lists by block;
  /// every other slot is free.
  void load_durable(std::span<const SlotEntry> entries,
                    std::span<const std::vector<SlotIndex>> pins = {});

 private:
  struct Target {
    SlotIndex slot = kNoSlot;
    std::uint64_t version = 0;
  };

  SlotIndex take();
  void release(SlotIndex slot);
  [[nodiscard]] bool is_protected(std::size_t block, SlotIndex slot) const;
  [[nodiscard]] bool is_used(std::size_t block, SlotIndex slot) const;

  std::vector<SlotEntry> entries_, snapshot_;
  std::vector<Target> targets_;
  std::vector<SlotIndex> durable_;  // per block, kNoSlot before the first manifest
  std::vector<SlotIndex> free_;     // ring of slot_count places
  std::vector<std::uint8_t> pins_;  // per slot: checkpoints that name it
  std::size_t free_head_ = 0, free_count_ = 0;
  std::vector<bool> recorded_;
  std::size_t unrecorded_ = 0;
  std::size_t section_count_;
  bool committing_ = false;
  bool scratch_;
  ProtocolFaults faults_;
};

}  // namespace penstock
