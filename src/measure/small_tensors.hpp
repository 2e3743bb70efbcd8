#pragma once

/// Where many small tensors lie in a file: packed, or each on its own.
///
/// Packed is as the store has it: the tensors of a group follow each other in a section of a block,
/// which is transferred as a whole; only the section's end is padded to 4 KiB. Alone, each tensor
/// is padded and is a transfer of its own.
/// Threads: pure functions.

#include <cstdint>
#include <vector>

#include "measure/io_load.hpp"

namespace penstock {

struct SmallTensors {
  std::vector<Extent> packed, each;
  std::uint64_t tensor_bytes = 0;  ///< without padding; of all of them
  std::uint64_t tensors = 0;
};

inline constexpr std::uint64_t kSmallTensors = 20'000;
inline constexpr std::uint64_t kSmallSectionBytes = std::uint64_t{4} << 20;
inline constexpr std::uint64_t kSmallestTensorBytes = 4096, kLargestSmallTensorBytes = 256 << 10;

/// At most `count` tensors of 4 to 256 KiB, every size equally often by its logarithm, as far as
/// both arrangements end within `file_bytes`.
[[nodiscard]] SmallTensors arrange_small_tensors(std::uint64_t count, std::uint64_t file_bytes,
                                                 std::uint64_t seed);

}  // namespace penstock
