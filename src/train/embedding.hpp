#pragma once

/// Token and (gpt2) position embeddings.

#include <cstdint>

#include "train/ops.hpp"

namespace penstock {

/// x[t, :] = tokens[t]'s row + position's row. wte: [vocab, hidden] bf16; wpe: [positions, hidden]
/// bf16 or null; position_row: [hidden] f32 scratch per row, [rows, hidden]; x: [rows, hidden] f32.
void embed(const Ops& ops, std::int64_t rows, std::int64_t seq, std::int64_t hidden,
           const std::uint16_t* wte, const std::uint16_t* wpe, const std::uint32_t* tokens,
           float* position_rows, float* x);

/// Adds dx to the rows of the tokens (and positions), rows in ascending order for every element.
/// dwte: [vocab, hidden] f32; dwpe: [positions, hidden] f32 or null.
void embed_backward(const Ops& ops, std::int64_t rows, std::int64_t seq, std::int64_t hidden,
                    const std::uint32_t* tokens, const float* dx, float* dwte, float* dwpe);

}  // namespace penstock
