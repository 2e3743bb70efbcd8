#pragma once

/// Shares out work whose pieces need scratch of their own.
///
/// A lane is one such scratch. Which lane and thread a piece gets is chance: results must not
/// depend on it.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>

#include "base/executor.hpp"
#include "base/result.hpp"

namespace penstock {

/// body(lane, index) -> Status for every index below `count`; lane < lanes, and no two bodies that
/// run at a time have the same. Returns one of the errors; after one, further pieces may be left.
template <class Body>
Status for_lanes(Executor& executor, int lanes, std::int64_t count, const Body& body) {
  struct Shared {
    const Body& body;
    std::int64_t count;
    std::atomic<std::int64_t> next{0};
    std::mutex mutex{};
    Status status = ok();
  } shared{body, count};
  const auto drain = [&shared](std::size_t lane) {
    for (std::int64_t i = shared.next++; i < shared.count; i = shared.next++) {
      if (Status done = shared.body(static_cast<int>(lane), i); !done) {
        const std::lock_guard lock(shared.mutex);
        shared.status = std::move(done);
        shared.next = shared.count;
        return;
      }
    }
  };
  const auto used = std::min<std::int64_t>(std::max(lanes, 1), count);
  // One captured reference, which std::function holds without allocating.
  executor.parallel_for(static_cast<std::size_t>(used),
                        [&drain](std::size_t lane) { drain(lane); });
  return std::move(shared.status);
}

}  // namespace penstock
