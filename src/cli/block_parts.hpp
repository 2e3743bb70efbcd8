#pragma once

/// Where elements of tensors lie in blocks, and the other way round.
///
/// Units: elements. Threads: pure functions; a BlockPlaces is read-only once made.

#include <cstdint>
#include <vector>

#include "cli/store_description.hpp"

namespace penstock {

/// A run of one tensor inside one block.
struct BlockPart {
  std::size_t block = 0;
  std::uint64_t block_elements = 0;
  std::uint64_t first = 0;  ///< in the block
  std::uint64_t elements = 0;
  std::uint64_t first_in_tensor = 0;
};

/// The parts of a tensor, in order of element.
[[nodiscard]] std::vector<BlockPart> parts_of(const StoreDescription& description,
                                              const DescribedTensor& tensor);

/// A run of elements of one tensor.
struct TensorRun {
  const DescribedTensor* tensor = nullptr;
  std::uint64_t first = 0;
  std::uint64_t elements = 0;
};

/// Answers which tensors a run of a block holds. The description must outlive it.
class BlockPlaces {
 public:
  explicit BlockPlaces(const StoreDescription& description);

  /// Those in elements [first, first + count) of the block, in order; none where it is only what
  /// lies between tensors.
  [[nodiscard]] std::vector<TensorRun> tensors_in(std::size_t block, std::uint64_t first,
                                                  std::uint64_t count) const;

 private:
  const StoreDescription& description_;
  std::vector<std::vector<const DescribedTensor*>> by_offset_;  // of each group
};

}  // namespace penstock
