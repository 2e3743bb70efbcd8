#pragma once

/// Lets one allocation of the program fail, on whatever thread it is made.

#include <cstddef>
#include <cstdint>

namespace penstock::capi_testing {

/// False where a sanitizer keeps operator new for itself.
[[nodiscard]] bool failing_new_works() noexcept;

/// Of the calls of operator new from now on that ask for `at_least` bytes, the n-th throws
/// std::bad_alloc; 0: none does.
void fail_allocation(std::uint64_t n, std::size_t at_least) noexcept;
/// Whether the call that is to fail is still to come.
[[nodiscard]] bool allocations_may_fail() noexcept;

}  // namespace penstock::capi_testing
