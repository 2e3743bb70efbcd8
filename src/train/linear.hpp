#pragma once

/// y = x W and its two gradients, as three prepared products over the rows of one micro-batch.

#include <cstdint>

#include "train/ops.hpp"

namespace penstock {

enum class WeightLayout : std::uint8_t { kOutIn, kInOut };  ///< how W is stored

struct LinearShape {
  std::int64_t rows = 0, in = 0, out = 0;
  WeightLayout layout = WeightLayout::kOutIn;
  std::int64_t row_y = 0;  ///< row stride of y and dy; 0: `out`
  bool add_to_y = false;   ///< forward: y += x W
  bool add_to_dx = false;  ///< backward: dx += dy W'
};

class Linear {
 public:
  static Result<Linear> prepare(Matmul& matmul, MatmulType operand, const LinearShape& shape);

  /// x: [rows, in] operand; w: operand; y: [rows, out] f32.
  Status forward(const Ops& ops, const void* x, const void* w, float* y) const {
    return ops.matmul.run(forward_, x, w, y);
  }
  /// dy: [rows, out] operand; dx: [rows, in] f32.
  Status backward_data(const Ops& ops, const void* dy, const void* w, float* dx) const {
    return ops.matmul.run(data_, dy, w, dx);
  }
  /// dw: f32 in the layout of W; always added to, in one product.
  Status backward_weight(const Ops& ops, const void* dy, const void* x, float* dw) const {
    const bool out_in = layout_ == WeightLayout::kOutIn;
    return ops.matmul.run(weight_, out_in ? dy : x, out_in ? x : dy, dw);
  }

 private:
  WeightLayout layout_ = WeightLayout::kOutIn;
  MatmulId forward_ = 0, data_ = 0, weight_ = 0;
};

}  // namespace penstock
