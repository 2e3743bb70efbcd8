#pragma once

/// Memory behind a lease. A plain view: the arena that gave it owns the bytes.

#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock {

struct Frame {
  std::byte* data = nullptr;  ///< 4 KiB aligned
  std::uint64_t bytes = 0;    ///< a multiple of 4 KiB

  [[nodiscard]] std::span<std::byte> span() const noexcept {
    return {data, static_cast<std::size_t>(bytes)};
  }
};

}  // namespace penstock
