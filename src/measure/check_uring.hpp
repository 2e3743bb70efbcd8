#pragma once

/// Whether the kernel grants io_uring, and how much memory may be registered with it.
///
/// Threads: try_uring() makes and ends a ring on the calling thread; the checks are pure.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/result.hpp"
#include "measure/check.hpp"

namespace penstock {

struct UringFacts {
  Result<std::string> ring = std::string();      ///< what was granted, in words; or why nothing was
  int files_errno = 0;                           ///< of registering a file
  int buffers_errno = 0;                         ///< of registering all memory that was offered
  std::uint64_t offered_bytes = 0;               ///< memory that was offered; 0: there was none
  std::uint64_t registered_bytes = 0;            ///< the most that was taken
  std::optional<std::uint64_t> memlock_bytes{};  ///< limit of locked memory; none: unlimited
};

/// `memory` is page aligned; its halves, quarters, ... are tried until one is taken.
[[nodiscard]] UringFacts try_uring(std::span<std::byte> memory);

[[nodiscard]] Check check_uring(const UringFacts& facts);
[[nodiscard]] Check check_registered_memory(const UringFacts& facts);

}  // namespace penstock
