#include "plan/plan.hpp"

#include <fmt/format.h>

#include "base/units.hpp"

namespace penstock {

std::vector<SectionSpec> fp32_sections() {
  const auto tile = [](std::uint32_t bytes) {
    return static_cast<std::uint32_t>(kTileElements) * bytes;
  };
  return {{"hi", "bf16", true, tile(kHiBytes)},
          {"lo", "i16", true, tile(kLoBytes)},
          {"m", "f32", true, tile(kMomentBytes)},
          {"v", "f32", true, tile(kMomentBytes)}};
}

std::uint64_t block_share(std::uint64_t group_elements, std::uint32_t block_elements) {
  const std::uint64_t count = (group_elements + block_elements - 1) / block_elements;
  return round_up((group_elements + count - 1) / count, kTileElements);
}

std::vector<std::uint64_t> section_lengths(std::uint64_t elements, bool trainable) {
  if (!trainable) return {elements * kHiBytes, 0, 0, 0};
  return {elements * kHiBytes, elements * kLoBytes, elements * kMomentBytes,
          elements * kMomentBytes};
}

std::string describe(const Plan& plan) {
  std::size_t pinned_groups = 0, pinned_states = 0, ram_gradients = 0;
  for (const GroupPlan& group : plan.groups) pinned_groups += group.hi_pinned || group.lent ? 1 : 0;
  for (const BlockPlan& block : plan.blocks) {
    pinned_states += block.state_pinned ? 1 : 0;
    ram_gradients += block.spill_index == kNone ? 1 : 0;
  }
  const Plan::Traffic& traffic = plan.traffic;
  return fmt::format(
      "{} groups in {} blocks of up to {} Ki elements; in RAM: weights of {} groups, lo+m+v of {} "
      "blocks, gradients of {} blocks; {} of the granted memory used (at least {} needed); commit "
      "every {}; per step: read {}, write {}",
      plan.groups.size(), plan.blocks.size(), plan.block_elements / 1024, pinned_groups,
      pinned_states, ram_gradients, format_bytes(plan.host_bytes), format_bytes(plan.minimum_bytes),
      plan.commit_every == 0 ? std::string("30 minutes")
                             : fmt::format("{} steps", plan.commit_every),
      format_bytes(traffic.hi_read + traffic.state_read + traffic.spill),
      format_bytes(traffic.hi_write + traffic.state_write + traffic.spill));
}

}  // namespace penstock
