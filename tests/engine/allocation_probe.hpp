#pragma once

/// Counts what all threads of the program take from operator new while a probe lives.

#include <cstdint>

namespace penstock::testing {

/// False where a sanitizer keeps operator new for itself.
[[nodiscard]] bool allocation_probe_works() noexcept;

class AllocationProbe {
 public:
  AllocationProbe() noexcept;
  ~AllocationProbe();
  AllocationProbe(const AllocationProbe&) = delete;
  AllocationProbe& operator=(const AllocationProbe&) = delete;
  [[nodiscard]] std::uint64_t count() const noexcept;
  /// Size of the first that was counted; a breakpoint in allocation_counted() shows its caller.
  [[nodiscard]] static std::uint64_t first_bytes() noexcept;
};

}  // namespace penstock::testing
