#pragma once

/// The scheduler: decides the order of every read, write, update, copy and commit of an engine.
///
/// A pure state machine: no threads, clocks, memory or I/O. Events are its member functions;
/// commands come out of next(). The engine executes them on real parts, a simulator on rates.
///
/// Invariants
///   1. A block is `base` (its data is the newest valid version), `pending` (base version and
///      gradient there, update not begun) or `working` (update running). Only step_ended() makes
///      blocks pending, and only when none is pending or working.
///   2. A read of (slot, version) is issued only when that version's write has completed.
///   3. An update runs only when hi, lo, m, v of the base version and the gradient are in frames;
///      it is exclusive: no lease on the group, no other command on the block.
///   4. A hi frame changes its group only when no lease, no command and no unwritten hi is in it.
///   5. Checkpoints apart, no block holds more than two slots (three rules of the store; see
///      SlotTable), so a commit never waits for a slot that an update of a newer version took.
///   6. A state frame is given to an update only together with its target slot, so updates that
///      wait for a commit never starve those the commit waits for.
///   7. An update that has a shared state frame goes on whatever the trainer turns to: others may
///      wait for that frame.
///   8. A tee copies exactly what the commit in progress names: from the frames that its writes
///      come from, or weights that are read anyway, or else from its slots, which the commit
///      protects. A frame is given up only when its copy has been written; the commit goes out when
///      all have.
/// Threads: none; the owner serialises calls. Memory: none allocated after construction.

#include <cstdint>
#include <span>
#include <vector>

#include "io/slot_table.hpp"
#include "io/storage_queue.hpp"
#include "plan/plan.hpp"

namespace penstock {

enum class BlockState : std::uint8_t { kBase, kPending, kWorking };

struct Command {
  enum class Kind : std::uint8_t {
    kReadHi,          ///< hi and its sums, slot -> group frame
    kVerifyHi,        ///< check them (task)
    kReadState,       ///< lo, m, v with sums, slot -> state frame
    kReadGradient,    ///< spilled gradient -> state frame
    kUpdate,          ///< the optimizer, in the frames (task)
    kGatherHi,        ///< lent weights -> state frame, with sums (task)
    kWriteHi,         ///< hi and its sums -> slot
    kWriteState,      ///< lo, m, v with sums -> slot
    kSpillGradient,   ///< gradient frame -> spill extent
    kReopenGradient,  ///< spill extent -> gradient frame, to be filled further
    kCommit,          ///< flush and manifest (blocking task); no block
    kTeeHi,           ///< hi and its sums -> the copy of the store
    kTeeState,        ///< lo, m, v with sums -> the copy of the store
    kTeeBlock,        ///< all sections, slot -> the copy of the store (blocking task)
  };
  Kind kind = Kind::kCommit;
  IoClass io_class = IoClass::kDemand;
  std::uint32_t block = kNone;
  std::uint32_t frame = kNone;  ///< hi frame, state frame or gradient frame, by kind
  SlotIndex slot = kNoSlot;
  std::uint64_t version = 0;
  bool reuse = false;  ///< of kReadHi: for a further use of a tied group in the same direction
};

class Scheduler {
 public:
  /// `versions`: t of each block's data in the store. The table outlives the scheduler.
  Scheduler(const Plan& plan, SlotTable& table, std::span<const std::uint64_t> versions);

  // --- events from the trainer
  void want(std::uint32_t group);  ///< somebody waits for it; follow with pump via next()
  [[nodiscard]] bool ready(std::uint32_t group) const;         ///< weights there, nothing pending
  void lease(std::uint32_t group);                             ///< only when ready; ends one want()
  void unwant(std::uint32_t group);                            ///< the waiter gave up
  void hold(std::uint32_t group) { ++groups_[group].leases; }  ///< a lease without a want()
  void release(std::uint32_t group);
  [[nodiscard]] std::uint32_t leases(std::uint32_t group) const { return groups_[group].leases; }
  /// The group that holds the frame `group` needs, when a lease on it blocks progress; else kNone.
  [[nodiscard]] std::uint32_t blocking_group(std::uint32_t group) const;

  /// Whether a gradient of the block for the next step may be taken: its data is the newest
  /// version.
  [[nodiscard]] bool accepts_gradient(std::uint32_t block) const;
  /// A frame to fill with the block's gradient, the same until filled; kNone: wait. When all frames
  /// are held by blocks whose other tensors may never get a gradient, one of these is spilled as it
  /// is, and read back if more comes.
  [[nodiscard]] std::uint32_t gradient_frame(std::uint32_t block);
  /// Where the block's gradient is now (after gradient_frame()).
  [[nodiscard]] std::uint32_t held_gradient_frame(std::uint32_t block) const {
    return blocks_[block].gradient_frame;
  }
  /// All of the block's gradient that will come this step is in its frame.
  void gradient_filled(std::uint32_t block);

  /// The record is known. `apply`: blocks with a gradient become pending for version t = `updates`;
  /// else their gradients are dropped. Requires settled().
  void step_ended(bool apply, std::uint64_t updates);
  /// No update of an earlier record is outstanding.
  [[nodiscard]] bool settled() const { return unsettled_ == 0; }
  /// Pending blocks of all groups are worked off without being asked for (level 1, flush).
  void set_sweep(bool on) {
    sweep_ = on;
    tee_all_ = tee_all_ || on;  // the end of a step, or of the run: all visits have been made
    dirty_pump_ = true;
  }
  /// Only the forward order is expected from now on (evaluation), or both passes again.
  void set_forward_only(bool on);

  /// Commits the state of the last ended step as blocks reach it. One at a time.
  void commit_begin();
  [[nodiscard]] bool commit_in_progress() const { return table_.commit_in_progress(); }
  /// Whether its kCommit has gone out: all that it names has been written.
  [[nodiscard]] bool commit_issued() const { return commit_in_progress() && commit_issued_; }
  /// Also copies what the commit in progress names to another store; before kCommit goes out.
  void tee_begin();

  // --- events from the parts
  /// A command finished. Roots: of kUpdate and kGatherHi, the sections' new roots.
  void done(const Command& command, std::span<const std::uint64_t> roots = {});

  // --- commands
  /// The next command to execute now; false when there is none until another event.
  bool next(Command& command);

  // --- facts
  [[nodiscard]] std::uint64_t version(std::uint32_t block) const { return blocks_[block].version; }
  [[nodiscard]] BlockState state(std::uint32_t block) const { return blocks_[block].state; }
  [[nodiscard]] bool hi_present(std::uint32_t block) const {
    return blocks_[block].hi == Copy::kPresent;
  }
  /// No write, copy or gathering of the block is under way: what is at home on the drive is there,
  /// and while its group is held no frame of it changes or goes to another block.
  [[nodiscard]] bool at_rest(std::uint32_t block) const { return !being_read(blocks_[block]); }
  [[nodiscard]] bool rest_in_frame(std::uint32_t block) const {
    return blocks_[block].rest == Copy::kPresent;
  }
  [[nodiscard]] std::uint64_t commands_in_flight() const { return in_flight_; }
  /// Broken invariants found so far (0 in a correct program); the engine turns it into an error.
  [[nodiscard]] const char* broken() const { return broken_; }

 private:
  enum class Copy : std::uint8_t { kAbsent, kReading, kVerifying, kPresent };
  enum class Gradient : std::uint8_t {
    kNone,
    kFilling,
    kInFrame,
    kSpilling,
    kSpilled,
    kReopening,
  };

  /// One part of a block that the tee in progress copies: from its frame (kWriting), or by a
  /// kTeeBlock from its slot (kReading), which leaves the frame alone.
  enum class Tee : std::uint8_t { kDone, kWanted, kWriting, kReading };

  struct Block {
    std::uint64_t version = 0;
    BlockState state = BlockState::kBase;
    Copy hi = Copy::kAbsent;
    Copy rest = Copy::kAbsent;       // lo, m, v in state_frame
    Copy read_back = Copy::kAbsent;  // spilled gradient in state_frame
    Gradient gradient = Gradient::kNone;
    bool drop_gradient = false;  // the step was skipped while the spill was in flight
    bool hi_dirty = false, rest_dirty = false;  // newer than what the drive holds
    bool hi_writing = false, rest_writing = false;
    bool gathering = false, gathered = false;  // lent hi is in the state frame
    std::uint32_t state_frame = kNone;
    std::uint32_t gradient_frame = kNone;
    SlotIndex target = kNoSlot;        // reserved for the update in progress
    std::uint64_t commit_version = 0;  // what the commit in progress wants of this block
    Tee tee_hi = Tee::kDone, tee_rest = Tee::kDone;
    std::uint64_t roots[kSectionCount] = {};
  };
  struct Group {
    std::uint32_t leases = 0;
    std::uint32_t wanted = 0;     // waiters
    std::uint32_t absent = 0;     // blocks whose hi is not present
    std::uint32_t unsettled = 0;  // blocks pending or working
  };

  Command& emit(Command::Kind kind, std::uint32_t block, std::uint32_t frame, SlotIndex slot,
                IoClass io_class);
  void pump();
  bool advance_group(std::uint32_t group, IoClass io_class, bool reuse = false);
  bool take_hi_frame(std::uint32_t group);
  void load_hi(std::uint32_t group, IoClass io_class, bool reuse);
  bool advance_update(std::uint32_t block, IoClass io_class);
  bool reserve_target(std::uint32_t block);
  bool take_state_frame(std::uint32_t block);
  void free_state_frame(std::uint32_t block);
  void free_gradient(std::uint32_t block);
  [[nodiscard]] bool take_stage(std::uint32_t block);
  void update_done(std::uint32_t block, std::span<const std::uint64_t> roots);
  void write_sections(std::uint32_t block, SlotIndex slot, bool hi, bool rest, IoClass io_class);
  void written(const Command& command);
  void tee_sections(std::uint32_t block, bool hi, bool rest);
  void tee_blocks();
  void tee_done(const Command& command);
  void release_frames(std::uint32_t block);
  [[nodiscard]] static bool being_read(const Block& b) {
    return b.hi_writing || b.rest_writing || b.gathering || b.tee_hi == Tee::kWriting ||
           b.tee_rest == Tee::kWriting;
  }
  void try_record(std::uint32_t block);
  void retry_records();
  [[nodiscard]] bool hi_in_ram(std::uint32_t block) const;
  [[nodiscard]] bool complete_on_drive(std::uint32_t block) const;
  [[nodiscard]] bool up_to_date(std::uint32_t group) const;
  [[nodiscard]] bool evictable(std::uint32_t group) const;
  [[nodiscard]] bool inputs_present(const Block& block) const;
  void advance_gradient(std::uint32_t block, IoClass io_class);
  [[nodiscard]] bool commit_wants(std::uint32_t block) const {
    return table_.commit_in_progress() && !table_.commit_recorded(block);
  }
  void check(bool holds, const char* what) {
    if (!holds && broken_ == nullptr) broken_ = what;
  }

  const Plan& plan_;
  SlotTable& table_;
  std::vector<Block> blocks_;
  std::vector<Group> groups_;
  std::vector<std::uint32_t> occupant_;  // per hi frame: group or kNone
  std::vector<std::uint32_t> claimed_;   // per hi frame: pump number of the last claim
  std::vector<std::uint32_t> free_states_, free_stages_;
  std::vector<std::uint32_t> state_owner_;  // per shared state frame: block or kNone
  std::vector<std::uint32_t> visits_;       // forward, then backward
  std::vector<bool> reuse_;                 // per visit: not the first of its direction
  std::size_t forward_count_ = 0, cursor_ = 0, visit_count_ = 0;
  std::uint32_t pump_number_ = 0;
  std::uint64_t updates_ = 0;  // version of the current record
  std::size_t unsettled_ = 0;
  std::size_t spilling_ = 0;    // stage frames on their way to the drive
  bool retry_records_ = false;  // a record waits for a slot or a frame
  bool sweep_ = false;
  bool commit_issued_ = false;
  std::size_t tee_left_ = 0;     // parts of blocks not copied yet
  bool tee_block_busy_ = false;  // one kTeeBlock at a time
  bool tee_all_ = false;         // nothing more will come by: copy what is left
  bool dirty_pump_ = true;       // an event happened since the last pump
  std::vector<Command> queue_;   // ring
  std::size_t head_ = 0, count_ = 0;
  std::uint64_t in_flight_ = 0;
  const char* broken_ = nullptr;
};

}  // namespace penstock
