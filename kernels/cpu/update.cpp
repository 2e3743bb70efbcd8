#include "kernels/cpu/update.hpp"

#include <cmath>
#include <limits>
#include <type_traits>

#include "base/random.hpp"
#include "kernels/cpu/update_tables.hpp"

namespace penstock {
namespace {

using detail::UpdateLoop;
using detail::UpdateTable;

const UpdateTable& table_of(Isa isa) {
  return built_for(isa, detail::kUpdateScalar, detail::kUpdateAvx2, detail::kUpdateAvx512);
}

const detail::UpdateInt8Table& int8_table_of(Isa isa) {
  return built_for(isa, detail::kUpdateInt8Scalar, detail::kUpdateInt8Avx2,
                   detail::kUpdateInt8Avx512);
}

bool is_adam(Rule rule) {
  return rule == Rule::kAdamW || rule == Rule::kAdam;
}

bool is_decoupled(Rule rule) {
  return rule == Rule::kAdamW || rule == Rule::kLion;
}

/// -lr * weight decay; 0 where the kernels, which flush denormals, would see 0.
float decoupled_decay(const UpdateRule& rule) {
  if (!is_decoupled(rule.rule)) return 0.0F;
  const auto decay = static_cast<float>(-rule.lr * rule.weight_decay);
  return decay <= -std::numeric_limits<float>::min() ? decay : 0.0F;
}

UpdateLoop loop_of(const UpdateRule& rule) {
  switch (rule.rule) {
    case Rule::kAdamW:
    case Rule::kAdam:
      if (decoupled_decay(rule) < 0.0F) {
        return rule.amsgrad ? UpdateLoop::kAdamMaxDecay : UpdateLoop::kAdamDecay;
      }
      return rule.amsgrad ? UpdateLoop::kAdamMax : UpdateLoop::kAdam;
    case Rule::kSgd:
      return rule.momentum != 0.0 ? UpdateLoop::kSgdMomentum : UpdateLoop::kSgd;
    case Rule::kAdagrad:
      return UpdateLoop::kAdagrad;
    case Rule::kLion:
      break;
  }
  return UpdateLoop::kLion;
}

/// 1 - beta^t without the cancellation of computing the power first.
double bias_correction(double beta, std::uint64_t t) {
  if (beta == 0.0) return 1.0;
  return -std::expm1(static_cast<double>(t) * std::log(beta));
}

/// The size of the step, positive.
double step_size(const UpdateRule& rule, std::uint64_t t) {
  if (is_adam(rule.rule)) return rule.lr / bias_correction(rule.beta1, t);
  if (rule.rule == Rule::kAdagrad) {
    return rule.lr / (1.0 + static_cast<double>(t - 1) * rule.lr_decay);
  }
  return rule.lr;
}

}  // namespace

UpdateRule update_rule(const AdamW& hyper) {
  return {.rule = Rule::kAdamW,
          .lr = hyper.lr,
          .weight_decay = hyper.weight_decay,
          .beta1 = hyper.beta1,
          .beta2 = hyper.beta2,
          .eps = hyper.eps};
}

UpdateStates update_states(const UpdateRule& rule) {
  const bool adam = is_adam(rule.rule);
  return {
      .m = adam || rule.rule == Rule::kLion || (rule.rule == Rule::kSgd && rule.momentum != 0.0),
      .v = adam || rule.rule == Rule::kAdagrad,
      .v_max = adam && rule.amsgrad};
}

UpdateScalars update_scalars(const UpdateRule& rule, std::uint64_t t, double gradient_factor) {
  const double inverse_root =
      is_adam(rule.rule) ? 1.0 / std::sqrt(bias_correction(rule.beta2, t)) : 1.0;
  return {.gs = static_cast<float>(rule.maximize ? -gradient_factor : gradient_factor),
          .l2 = is_decoupled(rule.rule) ? 0.0F : static_cast<float>(rule.weight_decay),
          .nd = decoupled_decay(rule),
          .w1 = static_cast<float>(1.0 - rule.beta1),
          .w2 = static_cast<float>(1.0 - rule.beta2),
          .ns = static_cast<float>(-step_size(rule, t)),
          .is = static_cast<float>(inverse_root),
          .eps = static_cast<float>(rule.eps),
          .mu = static_cast<float>(rule.momentum),
          .keep = static_cast<float>(1.0 - rule.dampening),
          .first = t == 1 ? 1.0F : 0.0F,
          .nesterov = rule.nesterov ? 1.0F : 0.0F,
          .key = 0};
}

UpdateArrays UpdateArrays::part(std::size_t first, std::size_t count) const {
  const auto from = [first](auto* array) { return array != nullptr ? array + first : nullptr; };
  const auto from_bytes = [first](auto* array, DType type) {
    using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(array)>>,
                                    const char, char>;
    return array != nullptr ? static_cast<Byte*>(array) + first * size_bytes(type) : nullptr;
  };
  const auto from_states = [&](void* array) -> void* {
    if (m_scale == nullptr) return from_bytes(array, state_type);
    return from(static_cast<char*>(array));
  };
  UpdateArrays out = *this;
  out.n = count;
  out.p = from(p);
  out.hi = from(hi);
  out.lo = from(lo);
  out.lo8 = from(lo8);
  out.m = from_states(m);
  out.v = from_states(v);
  out.v_max = from_states(v_max);
  if (m_scale != nullptr) out.m_scale = m_scale + first / kStateBlock;
  if (v_scale != nullptr) out.v_scale = v_scale + first / kStateBlock;
  out.first_element = first_element + first;
  out.gradient = from_bytes(gradient, gradient_type);
  out.out = from_bytes(out.out, out_type);
  return out;
}

std::uint64_t rounding_key(std::uint64_t seed, std::uint64_t tensor, std::uint64_t t) {
  return mix64(seed, tensor, t);
}

UpdateKernel update_kernel(Isa isa, const UpdateRule& rule, DType gradient_type, Master master,
                           DType state_type) {
  const UpdateTable& table = table_of(isa);
  const int gradient = static_cast<int>(gradient_type);
  const int bf16_states = state_type == DType::kBf16 ? 1 : 0;
  if (master == Master::kBf16) {
    return table.bf16_weights[decoupled_decay(rule) < 0.0F ? 1 : 0][gradient][bf16_states];
  }
  return table
      .kernels[static_cast<int>(loop_of(rule))][gradient][static_cast<int>(master)][bf16_states];
}

UpdateKernel update_kernel_int8(Isa isa, const UpdateRule& rule, DType gradient_type,
                                Master master) {
  const int decay = decoupled_decay(rule) < 0.0F ? 1 : 0;
  return int8_table_of(isa)
      .kernels[decay][static_cast<int>(gradient_type)][static_cast<int>(master)];
}

bool all_within(Isa isa, std::size_t n, const void* gradient, DType gradient_type, float limit) {
  return table_of(isa).within[static_cast<int>(gradient_type)](n, gradient, limit);
}

}  // namespace penstock
