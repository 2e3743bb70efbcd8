#pragma once

/// A small multi-layer model with synthetic gradients.
///
/// Gradients depend on the weights that the trainer sees, so a stale or torn weight shows up in
/// everything after it.

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "engine/engine.hpp"

namespace penstock::testing {

/// One of the steps of a run.
enum class StepKind { kNormal, kInfinite, kSkip, kEvalAfter, kPartial };

struct Script {
  std::vector<StepKind> steps;
  double max_norm = 0.5;
};

inline Script default_script() {
  using enum StepKind;
  return {{kNormal, kNormal, kEvalAfter, kInfinite, kNormal, kSkip, kPartial, kNormal, kNormal}};
}

inline StepInput step_input(std::uint64_t step, double max_norm) {
  StepInput input;
  input.hyper = {1e-2 / static_cast<double>(step), 0.9, 0.95, 1e-8, 0.1};
  input.max_norm = max_norm;
  input.gradient_scale = 0.5;
  return input;
}

inline void add_tensor(ModelSpec& model, const std::string& name, std::vector<std::int64_t> shape,
                       GroupId group, std::uint32_t contributions, Init::Kind kind) {
  TensorSpec tensor;
  tensor.name = name;
  tensor.shape = std::move(shape);
  tensor.group = group;
  tensor.decay = tensor.shape.size() >= 2;
  tensor.contributions = contributions;
  tensor.init.kind = kind;
  tensor.init.deviation = 0.02F;
  tensor.init.constant = 1.0F;
  model.tensors.push_back(std::move(tensor));
}

/// Group 0 holds a tied tensor (two contributions); group 1.. are layers; the last is tiny.
inline ModelSpec small_model(Level level = Level::kWeights, std::uint64_t scale = 1) {
  ModelSpec model;
  model.level = level;
  const auto s = static_cast<std::int64_t>(scale);
  model.groups.push_back("embed");
  add_tensor(model, "wte", {257 * s, 96}, 0, 2, Init::Kind::kNormal);
  for (GroupId layer = 1; layer <= 5; ++layer) {
    model.groups.push_back("layer" + std::to_string(layer));
    const std::string prefix = "h." + std::to_string(layer) + ".";
    add_tensor(model, prefix + "norm", {96}, layer, 1, Init::Kind::kConstant);
    add_tensor(model, prefix + "qkv", {96, 288 * s}, layer, 1, Init::Kind::kNormal);
    add_tensor(model, prefix + "bias", {33}, layer, 1, Init::Kind::kZeros);
    add_tensor(model, prefix + "mlp", {96, 377 * s}, layer, 1, Init::Kind::kNormal);
  }
  model.groups.push_back("head");
  add_tensor(model, "norm.final", {96}, 6, 1, Init::Kind::kConstant);
  if (level == Level::kWeights) {
    model.forward = {0, 1, 2, 3, 4, 5, 6, 0};
    model.backward = {0, 6, 5, 4, 3, 2, 1, 0};
  }
  return model;
}

inline float widen(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

/// Contribution k of tensor t's gradient at `step`, element i, for weight w.
inline float synthetic_gradient(std::uint64_t step, TensorId t, std::uint32_t k, std::uint64_t i,
                                float weight) {
  const float noise = approximately_normal(7 + step, t * 16 + k, i);
  return 0.05F * weight + 0.01F * noise;
}

/// Whether the tensor gets a gradient in a step of this kind.
inline bool gets_gradient(StepKind kind, TensorId t) {
  return kind != StepKind::kPartial || t % 3 != 1;
}

}  // namespace penstock::testing
