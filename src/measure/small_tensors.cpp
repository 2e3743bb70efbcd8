#include "measure/small_tensors.hpp"

#include <cmath>

#include "base/random.hpp"
#include "io/section.hpp"

namespace penstock {

SmallTensors arrange_small_tensors(std::uint64_t count, std::uint64_t file_bytes,
                                   std::uint64_t seed) {
  SmallTensors made;
  std::uint64_t each_end = 0;                          // of the separate tensors
  std::uint64_t section_start = 0, section_bytes = 0;  // of the section that is being filled
  const auto close_section = [&] {
    if (section_bytes == 0) return;
    const std::uint64_t padded = round_up(section_bytes, kPageBytes);
    made.packed.push_back({section_start, padded});
    section_start += padded;
    section_bytes = 0;
  };
  const double ratio = std::log2(static_cast<double>(kLargestSmallTensorBytes) /
                                 static_cast<double>(kSmallestTensorBytes));
  for (std::uint64_t i = 0; i < count; ++i) {
    const double size =
        static_cast<double>(kSmallestTensorBytes) * std::exp2(ratio * uniform01(seed, 1, i));
    const std::uint64_t bytes = static_cast<std::uint64_t>(size) / 2 * 2;  // of 2-byte elements
    const std::uint64_t padded = round_up(bytes, kPageBytes);
    // The separate ones take more, so what they leave room for fits packed, too.
    if (each_end + padded > file_bytes) break;
    if (section_bytes + bytes > kSmallSectionBytes) close_section();
    made.each.push_back({each_end, padded});
    each_end += padded;
    section_bytes += bytes;
    made.tensor_bytes += bytes;
    ++made.tensors;
  }
  close_section();
  return made;
}

}  // namespace penstock
