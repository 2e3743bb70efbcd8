#pragma once

/// What the ranks of one training run say to each other.
///
/// All ranks call the same operations in the same order; each call is one meeting of all ranks.
/// Results are the same bits on every rank and in every run: sums are taken in rank order.
///
/// Threads: one call at a time per communicator.
/// Time:    `deadline_ns` is a moment on the clock of now_ns(); a call returns by then.
/// Errors:  kTimeout when a rank has not come by the deadline of one that waits, kCancelled when a
/// rank
///          has left, kState when ranks call different operations or sizes. Any of them breaks the
///          group for good: every rank gets it, now and from all later calls, and the data are
///          unchanged.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.hpp"

namespace penstock {

class Communicator {
 public:
  /// Leaves the group; calls of the others that still need this rank fail.
  virtual ~Communicator() = default;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;

  /// values[i] becomes ((rank 0's + rank 1's) + rank 2's) + ... on every rank.
  virtual Status all_reduce_sum_fp64(std::span<double> values, std::uint64_t deadline_ns) = 0;

  /// words[i] becomes the bitwise or of all ranks' on every rank.
  virtual Status all_reduce_or(std::span<std::uint64_t> words, std::uint64_t deadline_ns) = 0;

  /// Returns when all ranks have called it.
  virtual Status barrier(std::uint64_t deadline_ns) = 0;

  /// Everybody's `bytes` become those of rank `root`. kArgument if there is no such rank.
  virtual Status broadcast(std::span<std::byte> bytes, int root, std::uint64_t deadline_ns) = 0;
};

/// `size` (>= 1) ranks as threads of this process; element i is rank i. A group of one is the
/// identity. The group lives until its last communicator dies.
std::vector<std::unique_ptr<Communicator>> make_in_process_group(int size);

}  // namespace penstock
