#include "cli/block_parts.hpp"

#include <algorithm>

namespace penstock {

std::vector<BlockPart> parts_of(const StoreDescription& description,
                                const DescribedTensor& tensor) {
  const DescribedGroup& group = description.groups[tensor.group];
  const std::uint64_t end = tensor.offset + tensor.elements;
  std::vector<BlockPart> parts;
  std::uint64_t block_first = 0;
  for (std::size_t i = 0; i < group.blocks.size() && block_first < end; ++i) {
    const std::uint64_t block_end = block_first + group.blocks[i];
    if (block_end > tensor.offset) {
      const std::uint64_t from = std::max(tensor.offset, block_first);
      const std::uint64_t to = std::min(end, block_end);
      if (to > from) {
        parts.push_back({group.first_block + i, group.blocks[i], from - block_first, to - from,
                         from - tensor.offset});
      }
    }
    block_first = block_end;
  }
  return parts;
}

BlockPlaces::BlockPlaces(const StoreDescription& description)
    : description_(description), by_offset_(description.groups.size()) {
  for (const DescribedTensor& tensor : description.tensors) {
    by_offset_[tensor.group].push_back(&tensor);
  }
  for (auto& tensors : by_offset_) {
    std::sort(tensors.begin(), tensors.end(), [](const auto* a, const auto* b) {
      return a->offset != b->offset ? a->offset < b->offset : a->name < b->name;
    });
  }
}

std::vector<TensorRun> BlockPlaces::tensors_in(std::size_t block, std::uint64_t first,
                                               std::uint64_t count) const {
  std::vector<TensorRun> runs;
  const DescribedGroup* group = description_.group_of(block);
  if (group == nullptr) return runs;
  std::uint64_t begin = first;  // from the start of the group
  for (std::size_t i = 0; i < block - group->first_block; ++i) begin += group->blocks[i];
  const std::uint64_t end = begin + count;
  const auto& tensors = by_offset_[static_cast<std::size_t>(group - description_.groups.data())];
  for (const DescribedTensor* tensor : tensors) {
    const std::uint64_t from = std::max(begin, tensor->offset);
    const std::uint64_t to = std::min(end, tensor->offset + tensor->elements);
    if (from < to) runs.push_back({tensor, from - tensor->offset, to - from});
  }
  return runs;
}

}  // namespace penstock
