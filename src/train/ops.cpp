#include "train/ops.hpp"

namespace penstock {

void round_rows(const Ops& ops, std::int64_t rows, std::int64_t n, const float* in, void* out) {
  for_rows(ops, rows, n, [&](std::int64_t first, std::int64_t count) {
    ops.to_operand(size(count * n), in + first * n, ops.at(out, first * n));
  });
}

void copy_rows(const Ops& ops, std::int64_t rows, std::int64_t n, const float* in, float* out) {
  for_rows(ops, rows, n, [&](std::int64_t first, std::int64_t count) {
    std::memcpy(out + first * n, in + first * n, size(count * n) * sizeof(float));
  });
}

void zero(const Ops& ops, std::int64_t count, float* out) {
  for_rows(ops, count, 1, [&](std::int64_t first, std::int64_t n) {
    std::memset(out + first, 0, size(n) * sizeof(float));
  });
}

void add_rows(const Ops& ops, std::int64_t rows, std::int64_t n, const float* in, float* out) {
  for_rows(ops, rows, n, [&](std::int64_t first, std::int64_t count) {
    ops.math.add_into(size(count * n), in + first * n, out + first * n);
  });
}

void widen(const Ops& ops, std::int64_t count, const std::uint16_t* in, float* out) {
  for_rows(ops, count, 1, [&](std::int64_t first, std::int64_t n) {
    ops.cast.bf16_to_f32(size(n), in + first, out + first);
  });
}

void add_bias(const Ops& ops, std::int64_t rows, std::int64_t n, const float* bias, float* y) {
  for_rows(ops, rows, n, [&](std::int64_t first, std::int64_t count) {
    ops.math.bias_add(size(count), size(n), bias, y + first * n);
  });
}

void add_bias_gradient(const Ops& ops, std::int64_t rows, std::int64_t n, const float* dy,
                       float* scratch, float* dbias) {
  sum_rows(
      ops, rows, n, scratch,
      [&](std::int64_t first, std::int64_t count, float* partial) {
        ops.math.bias_backward(size(count), size(n), dy + first * n, partial);
      },
      [&](const float* partial) { ops.math.add_into(size(n), partial, dbias); });
}

}  // namespace penstock
