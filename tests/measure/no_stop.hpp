#pragma once

/// The stop flag of runs that nobody stops.

#include <atomic>

namespace penstock::testing {

inline const std::atomic<bool> kNoStop{false};

}  // namespace penstock::testing
