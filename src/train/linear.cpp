#include "train/linear.hpp"

namespace penstock {

Result<Linear> Linear::prepare(Matmul& matmul, MatmulType operand, const LinearShape& s) {
  const bool out_in = s.layout == WeightLayout::kOutIn;
  const std::int64_t row_y = s.row_y == 0 ? s.out : s.row_y;
  const std::int64_t row_w = out_in ? s.in : s.out;

  MatmulShape forward{operand, s.rows, s.out, s.in, s.in, row_w, row_y};
  forward.transpose_b = out_in;
  forward.accumulate = s.add_to_y;

  MatmulShape data{operand, s.rows, s.in, s.out, row_y, row_w, s.in};
  data.transpose_b = !out_in;
  data.accumulate = s.add_to_dx;

  MatmulShape weight{operand, out_in ? s.out : s.in, out_in ? s.in : s.out, s.rows};
  weight.row_a = out_in ? row_y : s.in;
  weight.row_b = out_in ? s.in : row_y;
  weight.row_c = row_w;
  weight.transpose_a = true;
  weight.accumulate = true;

  Linear linear;
  linear.layout_ = s.layout;
  PENSTOCK_TAKE(forward_id, matmul.prepare(forward));
  PENSTOCK_TAKE(data_id, matmul.prepare(data));
  PENSTOCK_TAKE(weight_id, matmul.prepare(weight));
  linear.forward_ = forward_id;
  linear.data_ = data_id;
  linear.weight_ = weight_id;
  return linear;
}

}  // namespace penstock
