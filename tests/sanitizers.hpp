#pragma once

/// Which sanitizers this test is built with: some things they do not support or make useless.

#include <cstdint>

namespace penstock::testing {

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif
#if __has_feature(thread_sanitizer)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
#else
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
#endif

/// Memory is counted otherwise, and the sanitizer's own bookkeeping grows.
inline constexpr bool kSanitized = kAddressSanitizer || kThreadSanitizer;

/// Rounds of a test that repeats itself: the release does all of them; what a sanitizer can find,
/// it finds in the `divisor`-th part.
[[nodiscard]] constexpr std::uint64_t fewer_if_sanitized(std::uint64_t rounds,
                                                         std::uint64_t divisor) {
  return kSanitized ? rounds / divisor : rounds;
}

}  // namespace penstock::testing
