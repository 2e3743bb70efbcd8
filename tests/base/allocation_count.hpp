#pragma once

/// Counts what the calling thread takes from operator new, for tests of code that must not.

#include <cstdint>

namespace penstock::testing {

/// Calls of operator new by this thread since it began.
[[nodiscard]] std::uint64_t allocations_of_this_thread() noexcept;

}  // namespace penstock::testing
