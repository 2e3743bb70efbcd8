#pragma once

/// Requests that the tests of planner and simulator vary.

#include <cstdint>
#include <numeric>

#include "plan/plan.hpp"

namespace penstock::testing {

inline constexpr std::uint64_t kPlenty = std::uint64_t{1} << 50;
inline constexpr auto kTile = static_cast<std::uint32_t>(kTileElements);

/// `count` equal groups, visited forward and backward, with all the memory they want.
inline PlanRequest layers(std::uint32_t count, std::uint64_t elements,
                          Level level = Level::kWeights) {
  PlanRequest request;
  request.level = level;
  request.groups.assign(count, GroupShape{elements, true, false});
  request.forward.resize(count);
  std::iota(request.forward.begin(), request.forward.end(), 0U);
  if (level == Level::kWeights) {
    request.backward.assign(request.forward.rbegin(), request.forward.rend());
  }
  request.host_bytes = kPlenty;
  return request;
}

}  // namespace penstock::testing
