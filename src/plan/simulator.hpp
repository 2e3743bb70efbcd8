#pragma once

/// Executes the scheduler's commands on rates instead of real parts: what a plan takes, in virtual
/// seconds and bytes, before a weight exists.
///
/// Model: one drive that moves one transfer at a time, the most urgent class first, in order within
/// a class (so a mix of reads and writes takes the sum of their times: half duplex); one processor
/// for updates, one at a time, beside the trainer, which computes on its own; weights are checked
/// at the speed of the drive, so that takes no time of its own. Payload without sums, as
/// Plan::Traffic counts.
/// The store starts complete and committed at version 0, with two slots per trainable block.
/// Units: seconds and bytes. Deterministic: equal arguments give equal reports, bit for bit.
/// Threads: none. Memory: allocated per call, proportional to the plan.

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "plan/plan.hpp"

namespace penstock {

/// Speeds of the parts; all finite. Rates above zero, times at least zero.
struct SimRates {
  double read_bytes_per_second = 0.0;   ///< of the drive when it only reads
  double write_bytes_per_second = 0.0;  ///< when it only writes
  double forward_visit_seconds = 0.0;   ///< the trainer's compute for one group
  double backward_visit_seconds = 0.0;  ///< level 1 too: for one group, before its gradients
  double update_seconds = 0.0;          ///< of a block of plan.block_elements; smaller ones: less
  double commit_seconds = 0.0;          ///< flush and manifest
};

/// What the trainer does in one step.
struct SimStep {
  bool applied = true;        ///< false: the step is skipped, its gradients are dropped
  bool evaluate = false;      ///< a forward pass of its own after the step (level 2)
  bool flush = false;         ///< waits afterwards until all is done and committed
  std::vector<bool> skipped;  ///< groups that get no gradient; may be shorter than the groups
};

/// Seconds the trainer waited, by what it waited for.
struct SimWaits {
  double weights = 0.0;   ///< acquire: weights on their way
  double updates = 0.0;   ///< acquire, or wait at level 1: an update of the group not yet done
  double gradient = 0.0;  ///< a gradient frame still on its way to the drive
  double settle = 0.0;    ///< end of step: updates of groups that nobody visited
  double commit = 0.0;    ///< end of step: the commit before
  double flush = 0.0;
  [[nodiscard]] double total() const {
    return weights + updates + gradient + settle + commit + flush;
  }
};

/// Bytes that finished moving, by kind.
struct SimBytes {
  std::uint64_t hi_read = 0, hi_write = 0;
  std::uint64_t state_read = 0, state_write = 0;
  std::uint64_t spill_read = 0, spill_write = 0;
  std::uint64_t spill_reopened = 0;  ///< incomplete gradients that were spilled early
  std::uint64_t ram_homed = 0;       ///< written only for a commit
  [[nodiscard]] std::uint64_t read() const {
    return hi_read + state_read + spill_read + spill_reopened;
  }
  [[nodiscard]] std::uint64_t written() const {
    return hi_write + state_write + spill_write + ram_homed;
  }
};

/// One step, from its begin to the begin of the next.
struct SimStepReport {
  double seconds = 0.0;
  double compute_seconds = 0.0;  ///< of the trainer
  double drive_seconds = 0.0;    ///< of transfers that finished in the step
  double update_seconds = 0.0;   ///< of updates that finished in the step
  SimWaits waits;
  SimBytes bytes;
  std::uint32_t updates = 0;         ///< blocks
  std::uint32_t commits = 0;         ///< that became durable
  std::uint64_t peak_in_flight = 0;  ///< commands issued and not done
};

/// Runs `script` through a scheduler. One report per step.
/// Errors: kArgument (a rate that is not positive, a time that is negative; names it); kInternal
/// where the scheduler breaks an invariant or nothing can move while the trainer waits.
Result<std::vector<SimStepReport>> simulate(const Plan& plan, const SimRates& rates,
                                            std::span<const SimStep> script);

}  // namespace penstock
