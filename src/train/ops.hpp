#pragma once

/// What every part of the model computes with, and its loops over rows.
///
/// Operand: an array that a matrix product reads: bf16, or fp32 with `--compute fp32` and on
///   processors that do not multiply bf16. Everything else is fp32.
/// Partition: element-wise loops give the same bits however they are cut. Sums over rows are cut
///   into parts by their shape alone (row_parts), each summed in row order and added in part order.
/// Threads: called from the trainer's thread; bodies run on the executor's with the kernels'
///   floating-point mode set. Nothing here allocates.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/executor.hpp"
#include "kernels/cpu/optimizer.hpp"
#include "kernels/cpu/transformer.hpp"
#include "train/matmul.hpp"

namespace penstock {

/// Shapes are signed, as models give them; memory is not.
inline std::size_t size(std::int64_t count) {
  return static_cast<std::size_t>(count);
}

struct Ops {
  const TransformerKernels& math;
  const OptimizerKernels& cast;
  Executor& executor;
  Matmul& matmul;
  MatmulType operand;  ///< type of the operands

  [[nodiscard]] std::size_t operand_bytes() const { return size_bytes(operand); }

  [[nodiscard]] void* at(void* operands, std::int64_t element) const {
    return static_cast<std::byte*>(operands) + element * static_cast<int>(operand_bytes());
  }
  [[nodiscard]] const void* at(const void* operands, std::int64_t element) const {
    return static_cast<const std::byte*>(operands) + element * static_cast<int>(operand_bytes());
  }

  /// out[0..n) = in, rounded to the operand type.
  void to_operand(std::size_t n, const float* in, void* out) const {
    if (operand == MatmulType::kBf16) {
      cast.f32_to_bf16(n, in, static_cast<std::uint16_t*>(out));
    } else {
      std::memcpy(out, in, n * sizeof(float));
    }
  }
};

/// Elements of one task: enough to outweigh handing it out.
inline constexpr std::int64_t kTaskElements = 16 * 1024;

/// body(first, count) over all rows, a few tasks of rows at a time, in parallel.
template <class Body>
void for_rows(const Ops& ops, std::int64_t rows, std::int64_t elements_per_row, const Body& body) {
  const std::int64_t grain =
      std::max<std::int64_t>(1, kTaskElements / std::max<std::int64_t>(1, elements_per_row));
  const std::int64_t tasks = (rows + grain - 1) / grain;
  const auto task = [&](std::int64_t index) {
    const FloatModeGuard mode;
    const std::int64_t first = index * grain;
    body(first, std::min(grain, rows - first));
  };
  if (tasks <= 1) {
    if (tasks == 1) task(0);
    return;
  }
  // One captured reference, which std::function holds without allocating.
  ops.executor.parallel_for(static_cast<std::size_t>(tasks),
                            [&task](std::size_t index) { task(static_cast<std::int64_t>(index)); });
}

/// How rows are cut where values are summed over them: at most kMaxRowParts parts.
inline constexpr std::int64_t kMaxRowParts = 64;
struct RowParts {
  std::int64_t rows_per_part = 0;
  std::int64_t parts = 0;
};
[[nodiscard]] constexpr RowParts row_parts(std::int64_t rows) {
  const std::int64_t per_part =
      std::max<std::int64_t>(32, (rows + kMaxRowParts - 1) / kMaxRowParts);
  return {per_part, (rows + per_part - 1) / per_part};
}

/// Sums over rows: body(first, count, partial) adds its rows to `partial` [n], which starts at 0;
/// then add(partial) for each part, in order. scratch: [kMaxRowParts, n], overwritten.
template <class Body, class Add>
void sum_rows(const Ops& ops, std::int64_t rows, std::int64_t n, float* scratch, const Body& body,
              const Add& add) {
  const RowParts cut = row_parts(rows);
  const auto task = [&](std::size_t index) {
    const FloatModeGuard mode;
    const std::int64_t first = static_cast<std::int64_t>(index) * cut.rows_per_part;
    float* const partial = scratch + static_cast<std::int64_t>(index) * n;
    std::fill_n(partial, n, 0.0F);
    body(first, std::min(cut.rows_per_part, rows - first), partial);
  };
  ops.executor.parallel_for(static_cast<std::size_t>(cut.parts),
                            [&task](std::size_t index) { task(index); });
  const FloatModeGuard mode;
  for (std::int64_t part = 0; part < cut.parts; ++part) add(scratch + part * n);
}

// The loops that several parts of the model share. [rows, n] unless stated.

void round_rows(const Ops& ops, std::int64_t rows, std::int64_t n, const float* in, void* out);
void copy_rows(const Ops& ops, std::int64_t rows, std::int64_t n, const float* in, float* out);
void zero(const Ops& ops, std::int64_t count, float* out);
void add_rows(const Ops& ops, std::int64_t rows, std::int64_t n, const float* in, float* out);
/// out: [count] fp32 from bf16.
void widen(const Ops& ops, std::int64_t count, const std::uint16_t* in, float* out);
void add_bias(const Ops& ops, std::int64_t rows, std::int64_t n, const float* bias, float* y);
/// dbias: [n] += sum of dy over rows.
void add_bias_gradient(const Ops& ops, std::int64_t rows, std::int64_t n, const float* dy,
                       float* scratch, float* dbias);

}  // namespace penstock
