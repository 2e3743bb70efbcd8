#include "kernels/cpu/optimizer.hpp"

#include <xmmintrin.h>

#include <cmath>

#include "kernels/cpu/optimizer_tables.hpp"

namespace penstock {
namespace {

// Exceptions masked, round to nearest, flush to zero (bit 15), denormals are zero (bit 6).
constexpr unsigned kKernelMxcsr = 0x1f80U | 0x8000U | 0x0040U;

/// 1 - beta^t without the cancellation of computing the power first.
double bias_correction(double beta, std::uint64_t t) {
  if (beta == 0.0) return 1.0;
  return -std::expm1(static_cast<double>(t) * std::log(beta));
}

}  // namespace

FloatModeGuard::FloatModeGuard() noexcept : saved_(_mm_getcsr()) {
  _mm_setcsr(kKernelMxcsr);
}
FloatModeGuard::~FloatModeGuard() {
  _mm_setcsr(saved_);
}

AdamWScalars adamw_scalars(const AdamW& hyper, std::uint64_t t, double gradient_factor) {
  const double correction1 = bias_correction(hyper.beta1, t);
  const double correction2 = bias_correction(hyper.beta2, t);
  return {.w1 = static_cast<float>(1.0 - hyper.beta1),
          .w2 = static_cast<float>(1.0 - hyper.beta2),
          .ns = static_cast<float>(-hyper.lr / correction1),
          .is = static_cast<float>(1.0 / std::sqrt(correction2)),
          .eps = static_cast<float>(hyper.eps),
          .nd = static_cast<float>(-hyper.lr * hyper.weight_decay),
          .gs = static_cast<float>(gradient_factor)};
}

const OptimizerKernels& optimizer_kernels(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      break;
    case Isa::kAvx2:
      return detail::kOptimizerAvx2;
    case Isa::kAvx512:
      return detail::kOptimizerAvx512;
  }
  return detail::kOptimizerScalar;
}

NormPart tensor_norm(const OptimizerKernels& kernels, std::size_t n,
                     const std::uint16_t* gradient) {
  NormPart whole;
  for (std::size_t first = 0; first < n; first += kNormBlock) {
    const std::size_t count = n - first < kNormBlock ? n - first : kNormBlock;
    const NormPart block = kernels.norm_bf16(count, gradient + first);
    whole.sum_of_squares += block.sum_of_squares;
    whole.finite = whole.finite && block.finite;
  }
  return whole;
}

}  // namespace penstock
