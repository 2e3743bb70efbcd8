#include "train/layer.hpp"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

void* take_operand(Carver& carver, MatmulType operand, std::int64_t count) {
  return carver.take_bytes(static_cast<std::size_t>(count) * size_bytes(operand));
}

}  // namespace

Activations carve_activations(Carver& carver, const LayerShape& shape, MatmulType operand) {
  const std::int64_t rows = shape.rows();
  Activations kept;
  kept.qkv = take_operand(carver, operand, rows * shape.attention().row_qkv());
  kept.heads = take_operand(carver, operand, rows * shape.attention().row_out());
  kept.middle = carver.take(rows * shape.config.hidden);
  kept.gate = carver.take(rows * shape.config.intermediate);
  if (shape.config.family == ModelFamily::kLlama) {
    kept.up = carver.take(rows * shape.config.intermediate);
  }
  return kept;
}

LayerScratch carve_scratch(Carver& carver, const LayerShape& shape, MatmulType operand) {
  const std::int64_t rows = shape.rows();
  const std::int64_t narrow = rows * shape.config.hidden;
  const std::int64_t wide = rows * shape.config.intermediate;
  const std::int64_t row_qkv = shape.attention().row_qkv();
  LayerScratch scratch;
  scratch.statistics.mean = carver.take(rows);
  scratch.statistics.rstd = carver.take(rows);
  for (float*& array : scratch.narrow) array = carver.take(narrow);
  scratch.qkv = carver.take(rows * row_qkv);
  scratch.heads = carver.take(rows * shape.attention().row_out());
  for (float*& array : scratch.wide) array = carver.take(wide);
  for (void*& array : scratch.narrow_operand) array = take_operand(carver, operand, narrow);
  scratch.qkv_operand = take_operand(carver, operand, rows * row_qkv);
  scratch.heads_operand = take_operand(carver, operand, rows * shape.attention().row_out());
  for (void*& array : scratch.wide_operand) array = take_operand(carver, operand, wide);
  // Summed over rows: norm weight and bias together, and (gpt2) the biases of the products.
  const bool biases = shape.config.family == ModelFamily::kGpt2;
  std::int64_t longest = 2 * shape.config.hidden;
  if (biases) longest = std::max({longest, row_qkv, shape.config.intermediate});
  scratch.partials = carver.take(kMaxRowParts * longest);
  if (!biases) {
    const std::int64_t half = shape.config.head_dim / 2;
    scratch.cosine = carver.take(shape.batch.seq * half);
    scratch.sine = carver.take(shape.batch.seq * half);
  }
  return scratch;
}

void fill_rotations(const LayerShape& shape, const LayerScratch& scratch) {
  const std::int64_t half = shape.config.head_dim / 2;
  for (std::int64_t position = 0; position < shape.batch.seq; ++position) {
    for (std::int64_t i = 0; i < half; ++i) {
      const double exponent = -static_cast<double>(i) / static_cast<double>(half);
      const double angle =
          static_cast<double>(position) * std::pow(shape.config.rope_theta, exponent);
      scratch.cosine[position * half + i] = static_cast<float>(std::cos(angle));
      scratch.sine[position * half + i] = static_cast<float>(std::sin(angle));
    }
  }
}

}  // namespace penstock
