#pragma once

/// CPU kernels around an update: the split master, casts, sums of gradients, gradient norm. The
/// update rules are in kernels/cpu/update.hpp.
///
/// Numerics: every line of a formula is one IEEE operation, round to nearest even, no contraction,
///   denormals flushed (FTZ and DAZ inside; the caller's MXCSR is unchanged afterwards). All ISAs
///   give the same bits; NaNs are stored canonical (0x7fc00000, bf16 0x7fc0, f16 0x7e00). split,
///   join and widening keep denormals; narrowing to bf16 makes them zeros of their sign; f16
///   subnormals are kept both ways.
/// Alignment: that of the element. Lengths: any, 0 included. No aliasing between arguments.
/// Threads: reentrant; no state.

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/isa.hpp"

namespace penstock {

/// The exact fp32 master is (hi << 16) + sext(lo): hi = (bits + 0x8000) >> 16, lo = int16(bits).
inline constexpr std::uint32_t join_master_bits(std::uint16_t hi, std::uint16_t lo) {
  return (static_cast<std::uint32_t>(hi) << 16) +
         static_cast<std::uint32_t>(static_cast<std::int32_t>(static_cast<std::int16_t>(lo)));
}
inline constexpr std::uint16_t split_hi(std::uint32_t bits) {
  return static_cast<std::uint16_t>((bits + 0x8000U) >> 16);
}
inline constexpr std::uint16_t split_lo(std::uint32_t bits) {
  return static_cast<std::uint16_t>(bits);
}

/// Result of one norm block: sum of squares and whether no element is inf or NaN. The sum is +inf
/// when one is, and also when finite elements (above 1.8e19) overflow fp32.
struct NormPart {
  double sum_of_squares = 0.0;
  bool finite = true;
};
inline constexpr std::size_t kNormBlock = 4096;

struct OptimizerKernels {
  /// master: [n] f32 -> split (NaN made canonical), and back.
  void (*split)(std::size_t n, const float* master, std::uint16_t* hi, std::uint16_t* lo);
  void (*join)(std::size_t n, const std::uint16_t* hi, const std::uint16_t* lo, float* master);

  /// Casts, round to nearest even; exact widening.
  void (*f32_to_bf16)(std::size_t n, const float* in, std::uint16_t* out);
  void (*bf16_to_f32)(std::size_t n, const std::uint16_t* in, float* out);
  void (*f32_to_f16)(std::size_t n, const float* in, std::uint16_t* out);
  void (*f16_to_f32)(std::size_t n, const std::uint16_t* in, float* out);

  /// accumulator: [n] f32 += in, one addition per element.
  void (*add_f32)(std::size_t n, const float* in, float* accumulator);
  void (*add_bf16)(std::size_t n, const std::uint16_t* in, float* accumulator);
  void (*add_f16)(std::size_t n, const std::uint16_t* in, float* accumulator);

  /// Sum of squares of one block of at most kNormBlock elements: 16 virtual fp32 fma lanes, lane
  /// tree, then fp64. The caller adds the blocks of a tensor in index order, in fp64.
  NormPart (*norm_bf16)(std::size_t n, const std::uint16_t* in);
};

/// The kernels of one ISA; `isa` must be supported.
[[nodiscard]] const OptimizerKernels& optimizer_kernels(Isa isa);

/// Norm of a whole tensor: its blocks of kNormBlock elements added in index order.
[[nodiscard]] NormPart tensor_norm(const OptimizerKernels& kernels, std::size_t n,
                                   const std::uint16_t* gradient);

/// Sets round-to-nearest, FTZ and DAZ for a scope and restores the caller's MXCSR. Kernels do this
/// themselves; tasks with arithmetic of their own use it too.
class FloatModeGuard {
 public:
  FloatModeGuard() noexcept;
  ~FloatModeGuard();
  FloatModeGuard(const FloatModeGuard&) = delete;
  FloatModeGuard& operator=(const FloatModeGuard&) = delete;

 private:
  unsigned saved_;
};

}  // namespace penstock
