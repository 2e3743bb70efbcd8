#pragma once

/// Real time for measuring and for deadlines. Decisions that must replay take their time as an
/// argument instead (a Timeline's, in simulations).

#include <chrono>
#include <cstdint>

namespace penstock {

/// Nanoseconds on a clock that never goes back; its origin means nothing.
[[nodiscard]] inline std::uint64_t now_ns() noexcept {
  const auto since_origin = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(since_origin).count());
}

}  // namespace penstock
