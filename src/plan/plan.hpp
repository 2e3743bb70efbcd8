#pragma once

/// The plan: placement and sizes, fixed before the first step; and the planner that makes it.
///
/// The planner sees shapes, the order of visits and byte budgets, nothing else, and does no I/O.
/// Units: bytes and elements, as the names say. All frames are multiples of 4 KiB.
/// Errors: kNoMemory names the tier, what is short and the smallest budget that works.

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "io/section.hpp"

namespace penstock {

inline constexpr std::uint32_t kNone = ~std::uint32_t{0};

/// Who holds the weights: level 1, the trainer; level 2, the engine streams them.
enum class Level : std::uint8_t { kStates = 1, kWeights = 2 };

/// What the planner must know about one group.
struct GroupShape {
  std::uint64_t elements = 0;  ///< padded layout of its tensors
  bool trainable = true;       ///< frozen: `hi` only, one slot, no updates
  bool lent = false;           ///< level 1: `hi` is the trainer's own bf16 memory
};

struct PlanRequest {
  Level level = Level::kWeights;
  std::vector<GroupShape> groups;
  std::vector<std::uint32_t> forward;   ///< groups in order of use; a tied group may come twice
  std::vector<std::uint32_t> backward;  ///< likewise; empty at level 1
  std::uint64_t host_bytes = 0;         ///< the budget: everything the engine allocates
  std::uint64_t workspace_bytes = 0;    ///< of it, reserved for the trainer
  std::uint64_t accumulator_bytes = 0;  ///< of it, fp32 sums of tensors with several contributions
  std::uint64_t table_bytes = 0;        ///< of it, engine tables outside the arena
  std::uint32_t block_elements = 0;     ///< 0: chosen; else a multiple of kTileElements
  std::uint32_t commit_every = 0;       ///< 0: chosen, from the bytes at home in RAM
  std::uint32_t drives = 1;             ///< each wants working frames of its own
};

struct HiFrame {
  std::uint64_t bytes = 0;  ///< data of the largest group mapped to it, and its sums pages
};

struct GroupPlan {
  std::uint32_t first_block = 0;
  std::uint32_t block_count = 0;
  std::uint64_t elements = 0;
  std::uint32_t hi_frame = kNone;  ///< kNone where the weights are lent
  bool hi_pinned = false;          ///< alone in its frame: home is host, else nvme
  bool trainable = true;
  bool lent = false;
};

struct BlockPlan {
  std::uint32_t group = 0;
  std::uint64_t first_element = 0;  ///< in its group
  std::uint32_t elements = 0;
  bool state_pinned = false;             ///< lo, m, v at home in host
  std::uint32_t state_frame = kNone;     ///< its own frame when pinned
  std::uint32_t gradient_frame = kNone;  ///< its own frame when gradients stay in RAM
  std::uint32_t spill_index = kNone;  ///< else its spill extent: its number among trainable blocks
};

struct Plan {
  Level level = Level::kWeights;
  std::uint32_t block_elements = 0;  ///< the size groups were cut by; no block is larger
  std::vector<GroupPlan> groups;
  std::vector<BlockPlan> blocks;
  std::vector<HiFrame> hi_frames;
  std::uint32_t stream_state_frames = 0;    ///< shared frames for streamed lo, m, v (+ gradient)
  std::uint32_t pinned_state_frames = 0;    ///< numbered after the shared ones
  std::uint64_t state_frame_bytes = 0;      ///< hi staging (lent) + lo, m, v + gradient read back
  std::uint32_t stage_gradient_frames = 0;  ///< shared frames on their way to the drive
  std::uint32_t pinned_gradient_frames = 0;
  std::uint64_t gradient_frame_bytes = 0;
  std::uint32_t spill_count = 0;   ///< blocks whose gradients are spilled
  std::uint32_t commit_every = 1;  ///< K; 0: by time only (everything at home in RAM)
  std::vector<std::uint32_t> forward, backward;

  std::uint64_t host_bytes = 0;     ///< what this plan uses of the budget
  std::uint64_t minimum_bytes = 0;  ///< the smallest budget that works for these shapes
  std::uint64_t workspace_bytes = 0;
  std::uint64_t accumulator_bytes = 0;

  /// Bytes per step from the second step on, as docs/architecture.md counts them (payload, no
  /// sums).
  struct Traffic {
    std::uint64_t hi_read = 0, hi_write = 0;        ///< u h, h; less what stays at the turns
    std::uint64_t hi_turn_reuse = 0;                ///< reads saved where the pass turns round
    std::uint64_t state_read = 0, state_write = 0;  ///< r, r
    std::uint64_t spill = 0;                        ///< s, each way
    std::uint64_t ram_homed = 0;                    ///< c
  } traffic;
};

/// Bytes per element of each section of the fp32 ladder.
inline constexpr std::uint32_t kHiBytes = 2, kLoBytes = 2, kMomentBytes = 4;
inline constexpr std::uint32_t kStateBytes = kLoBytes + 2 * kMomentBytes;

/// The sections of the fp32 ladder, in slot order: hi, lo, m, v.
[[nodiscard]] std::vector<SectionSpec> fp32_sections();
inline constexpr std::size_t kHiSection = 0, kLoSection = 1, kMSection = 2, kVSection = 3;
inline constexpr std::size_t kSectionCount = 4;

/// Exact section lengths of a block of `elements` (frozen: hi only).
[[nodiscard]] std::vector<std::uint64_t> section_lengths(std::uint64_t elements, bool trainable);

/// The most elements that a block of a group has: groups are cut into blocks of equal size (the
/// last may be shorter) of at most `block_elements`.
[[nodiscard]] std::uint64_t block_share(std::uint64_t group_elements, std::uint32_t block_elements);

/// Places by value density: working frames first, then `hi`, then gradients, then lo, m, v.
Result<Plan> make_plan(const PlanRequest& request);

/// One paragraph for people: what is where, K, bytes per step.
[[nodiscard]] std::string describe(const Plan& plan);

}  // namespace penstock
