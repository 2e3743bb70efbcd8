#pragma once

/// Whether the process may map what a run needs, by limits of its own: ulimit -v and ulimit -d.
///
/// Asked before any thread is made: libraries that get no stack for a thread of theirs end the
/// program or wait for ever, and nobody can catch that.
/// Counted, as measured with one model on 1, 2 and 4 threads:
///   - what is mapped at the beginning (51 MiB, and a thread for signals);
///   - a stack for each thread: two for each of --threads (updates, matrix products), and for each
///     drive four that transfer where io_uring is refused, and one that syncs;
///   - what of the budget is used, and 32 MiB for what libraries allocate on their own (10 MiB were
///   seen).
/// A heap of its own for a thread would take 128 MiB of addresses, and what stacks need with them,
/// so where -v limits them all threads share one (share_heap()). Threads: one. Errors:
/// kUnsupported.

#include <cstdint>
#include <optional>

#include "base/result.hpp"

namespace penstock {

struct AddressLimits {
  std::optional<std::uint64_t> mapped_limit_bytes, data_limit_bytes;  ///< nothing: no limit
  std::uint64_t mapped_bytes = 0, data_bytes = 0;                     ///< in use
  std::uint64_t stack_bytes = 0;                                      ///< of a thread

  /// Those of this process now.
  static AddressLimits read();
  /// Where addresses are limited: malloc keeps to one heap for all threads that are made from now
  /// on.
  void share_heap() const;
  /// Whether a run with such a budget fits from here.
  [[nodiscard]] Status check(std::uint32_t threads, std::size_t drives,
                             std::uint64_t budget_bytes) const;
};

}  // namespace penstock
