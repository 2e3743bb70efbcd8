#pragma once

/// CPU kernels of the update rules: one fused pass over weights, states and gradients.
///
/// Rules: AdamW, Adam, both with AMSGrad; SGD; Adagrad; Lion. Each formula, its source and every
///   difference from PyTorch are in docs/numerics.md.
/// Master weight: f32, or its two halves (hi, lo) of kernels/cpu/optimizer.hpp, to the same bits.
/// Numerics: as in kernels/cpu/optimizer.hpp: one IEEE operation per written one, nearest even, FTZ
///   and DAZ inside, the same bits on every ISA and for every cut of the arrays, NaN canonical.
/// Alignment: that of the element. Lengths: any, 0 included. No aliasing between arguments.
/// Threads: reentrant; no state. What was copied out is visible to every thread afterwards.
/// Errors: none; the caller checks hyper-parameters and the finiteness of gradients.

#include <cstddef>
#include <cstdint>

#include "base/dtype.hpp"
#include "kernels/cpu/isa.hpp"

namespace penstock {

enum class Rule : std::uint8_t { kAdamW, kAdam, kSgd, kAdagrad, kLion };
inline constexpr int kRuleCount = 5;

/// How the weights are kept. The last two are rounded at random after each update, with the right
/// mean: to the nearest, small updates would be lost.
enum class Master : std::uint8_t {
  kF32,     ///< p
  kSplit,   ///< hi and lo: f32, to the same bits
  kSplit8,  ///< hi and lo8: the upper 24 bits of an f32
  kBf16     ///< hi alone
};
inline constexpr int kMasterCount = 4;

/// Elements that share a scale, where states have 8 bits.
inline constexpr std::size_t kStateBlock = 256;

/// A rule and its hyper-parameters, as the trainer states them; a rule ignores those of others.
struct UpdateRule {
  Rule rule = Rule::kAdamW;
  bool amsgrad = false;     ///< AdamW, Adam
  bool nesterov = false;    ///< SGD, with momentum
  bool maximize = false;    ///< all: the gradient counts negatively (weight decay does not)
  double lr = 1e-3;         ///< all
  double weight_decay = 0;  ///< all; an L2 penalty in Adam, SGD, Adagrad, decoupled in AdamW, Lion
  double beta1 = 0.9;       ///< AdamW, Adam, Lion
  double beta2 = 0.999;     ///< AdamW, Adam, Lion (there usually 0.99)
  double eps = 1e-8;        ///< AdamW, Adam, Adagrad
  double momentum = 0;      ///< SGD
  double dampening = 0;     ///< SGD, with momentum
  double lr_decay = 0;      ///< Adagrad
};

/// Hyper-parameters of AdamW, the rule of the engine.
struct AdamW {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
};
[[nodiscard]] UpdateRule update_rule(const AdamW& hyper);

/// Which states besides the weight a rule keeps, each [n] f32, or [n] bf16: then v is rounded at
/// random (to the nearest it would stay where it is: .999 v is within half a unit of v), m and
/// v_max to the nearest. A step computes with the states it read and, unrounded, with those it
/// writes.
struct UpdateStates {
  bool m = false;      ///< average of gradients; SGD: the momentum buffer
  bool v = false;      ///< average of squares; Adagrad: their sum
  bool v_max = false;  ///< AMSGrad: the largest v so far
};
[[nodiscard]] UpdateStates update_states(const UpdateRule& rule);

/// The hyper-parameters of one update, computed in double and rounded once; names of
/// docs/numerics.md.
struct UpdateScalars {
  float gs;               ///< gradient factor, negated by maximize
  float l2;               ///< weight decay added to the gradient; 0: none
  float nd;               ///< -lr * weight decay where it is decoupled; 0: none
  float w1, w2;           ///< 1 - beta
  float ns;               ///< -lr / bc1, or the rule's own negative step size
  float is, eps;          ///< 1 / sqrt(bc2)
  float mu, keep;         ///< momentum, 1 - dampening
  float first;            ///< 1 at t = 1, else 0
  float nesterov;         ///< 1 or 0
  std::uint64_t key = 0;  ///< random rounding: a hash of seed, tensor and t
};

/// t: this update's number, from 1. gradient_factor: clip factor / loss scale.
[[nodiscard]] UpdateScalars update_scalars(const UpdateRule& rule, std::uint64_t t,
                                           double gradient_factor);
/// What random rounding depends on, besides the element: UpdateScalars::key.
[[nodiscard]] std::uint64_t rounding_key(std::uint64_t seed, std::uint64_t tensor, std::uint64_t t);

/// What one call updates, all in place but gradient and out. A null p means (hi, lo). States that
/// the rule does not keep are not looked at.
struct UpdateArrays {
  std::size_t n = 0;
  float* p = nullptr;                                 ///< [n] f32
  std::uint16_t *hi = nullptr, *lo = nullptr;         ///< [n] each
  std::int8_t* lo8 = nullptr;                         ///< [n]
  void *m = nullptr, *v = nullptr, *v_max = nullptr;  ///< [n] of state_type each
  DType state_type = DType::kF32;                     ///< f32 or bf16; 8 bits if there are scales:
  float *m_scale = nullptr, *v_scale = nullptr;       ///< [n / kStateBlock, rounded up]; or null
  std::uint64_t first_element = 0;     ///< index in the tensor of element 0, for random rounding
  const void* gradient = nullptr;      ///< [n] of gradient_type
  DType gradient_type = DType::kBf16;  ///< bf16, f16 or f32
  void* out = nullptr;                 ///< [n] of out_type: the new weights; or null
  DType out_type = DType::kBf16;       ///< bf16, f16 (nearest even) or f32

  /// `count` elements from `first` on. With scales, `first` is a multiple of kStateBlock.
  [[nodiscard]] UpdateArrays part(std::size_t first, std::size_t count) const;
};

/// Traffic of AdamW, bytes an element: 28 with f32 master and gradient, 26 with a split master and
/// a bf16 gradient, and what is copied out, by non-temporal stores; bf16 states save 8 of them.
using UpdateKernel = void (*)(const UpdateScalars& scalars, const UpdateArrays& arrays);

/// The kernel for a rule, a gradient type (bf16, f16, f32), a form of the master and a type of the
/// states (f32, bf16); `isa` must be supported. All rules have kF32 and kSplit; kBf16 Adam and
/// AdamW without AMSGrad have; kSplit8 is for states of 8 bits.
[[nodiscard]] UpdateKernel update_kernel(Isa isa, const UpdateRule& rule, DType gradient_type,
                                         Master master, DType state_type = DType::kF32);

/// The kernel of Adam or AdamW, without AMSGrad, with states of 8 bits (kernels/math/codes8.hpp): m
/// [n] i8, v [n] u8 and a scale for each block of kStateBlock elements. `first_element` is a
/// multiple of kStateBlock. Zeros everywhere are the states to begin with. v holds codes of sqrt(v)
/// and is rounded at random, or it would stay where it is (docs/numerics.md). A block with an m or
/// v that is infinite or NaN becomes NaN as a whole.
/// Traffic: 14 bytes an element with a split master and a bf16 gradient, 12 with kSplit8.
[[nodiscard]] UpdateKernel update_kernel_int8(Isa isa, const UpdateRule& rule, DType gradient_type,
                                              Master master);

/// Whether no gradient is NaN or larger in magnitude than `limit`, a positive normal number.
[[nodiscard]] bool all_within(Isa isa, std::size_t n, const void* gradient, DType gradient_type,
                              float limit);

}  // namespace penstock
