#include "train/embedding.hpp"

namespace penstock {

void embed(const Ops& ops, std::int64_t rows, std::int64_t seq, std::int64_t hidden,
           const std::uint16_t* wte, const std::uint16_t* wpe, const std::uint32_t* tokens,
           float* position_rows, float* x) {
  for_rows(ops, rows, hidden, [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t row = first; row < first + count; ++row) {
      float* const out = x + row * hidden;
      ops.cast.bf16_to_f32(size(hidden), wte + static_cast<std::int64_t>(tokens[row]) * hidden,
                           out);
      if (wpe == nullptr) continue;
      float* const position = position_rows + row * hidden;
      ops.cast.bf16_to_f32(size(hidden), wpe + row % seq * hidden, position);
      ops.math.add_into(size(hidden), position, out);
    }
  });
}

void embed_backward(const Ops& ops, std::int64_t rows, std::int64_t seq, std::int64_t hidden,
                    const std::uint32_t* tokens, const float* dx, float* dwte, float* dwpe) {
  // Tasks are columns: two rows may add to the same token.
  constexpr std::int64_t kColumns = 64;
  const std::int64_t slices = (hidden + kColumns - 1) / kColumns;
  for_rows(ops, slices, kTaskElements, [&](std::int64_t first_slice, std::int64_t count) {
    const std::int64_t first = first_slice * kColumns;
    const std::int64_t columns = std::min(count * kColumns, hidden - first);
    for (std::int64_t row = 0; row < rows; ++row) {
      const float* const in = dx + row * hidden + first;
      ops.math.add_into(size(columns), in,
                        dwte + static_cast<std::int64_t>(tokens[row]) * hidden + first);
      if (dwpe != nullptr) {
        ops.math.add_into(size(columns), in, dwpe + row % seq * hidden + first);
      }
    }
  });
}

}  // namespace penstock
