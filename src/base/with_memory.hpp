#pragma once

/// Turns memory that cannot be had into a Status, where an exception has nobody to reach: in the
/// engine's background tasks. Threads: any.

#include <new>

#include "base/result.hpp"

namespace penstock {

/// What to do, where nothing but the machine and its limits decides how much there is.
inline constexpr const char* kMoreMemory =
    "free some, or raise \"ulimit -v\" and \"-d\" where they are set";

template <class Body>
Status with_memory(const Body& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return make_error(Errc::kNoMemory, "out of memory; leave the engine's process more");
  }
}

}  // namespace penstock
