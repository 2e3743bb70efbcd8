#pragma once

/// Memory lent to an io_uring for its life ("registered buffers").
///
/// The kernel looks its pages up once instead of in every transfer. It is a gain only: memory that
/// is not lent, or that the kernel refuses (limit of locked memory, mapped files), is transferred
/// the plain way.
/// Owner:   the lender; it must outlive the ring.
/// Threads: the ring's.

#include <liburing.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace penstock {

class RingMemory {
 public:
  /// Lends as much of `spans` as the kernel takes, from their beginning, once.
  void lend(io_uring& ring, std::span<const std::span<std::byte>> spans);

  /// The place of [memory, memory + bytes) for a fixed transfer, or -1: not lent.
  [[nodiscard]] int find(const std::byte* memory, std::uint64_t bytes) const noexcept;

  /// No fixed transfers from now on.
  void forget() noexcept { chunks_.clear(); }

  /// "512 MiB of memory registered", or why not all is.
  [[nodiscard]] const std::string& words() const noexcept { return words_; }
  /// As of StorageQueue.
  [[nodiscard]] const std::string& shortfall() const noexcept { return shortfall_; }

 private:
  struct Chunk {
    const std::byte* begin;
    std::uint64_t bytes;
    int place;
  };
  std::vector<Chunk> chunks_;  // by address
  std::string words_ = "no registered memory", shortfall_;
};

}  // namespace penstock
