#include "cli/store_wear.hpp"

#include "io/section.hpp"

namespace penstock {

std::uint64_t most_bytes_per_step(const Store& store) {
  const StoreGeometry& geometry = store.geometry();
  std::uint64_t bytes = 0;
  for (std::size_t block = 0; block < geometry.blocks.size(); ++block) {
    if (geometry.blocks[block].frozen) continue;
    for (std::size_t section = 0; section < geometry.sections.size(); ++section) {
      if (geometry.sections[section].is_mutable)
        bytes += store.extents(block)[section].total_bytes();
    }
  }
  for (const std::uint64_t spill : geometry.spill_bytes) bytes += round_up(spill, kPageBytes);
  return bytes;
}

std::uint64_t most_bytes_so_far(const Store& store) {
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(most_bytes_per_step(store), store.committed().step, &bytes) ||
      __builtin_add_overflow(bytes, store.file_bytes(), &bytes)) {
    return ~std::uint64_t{0};
  }
  return bytes;
}

}  // namespace penstock
