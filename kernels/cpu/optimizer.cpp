#include "kernels/cpu/optimizer.hpp"

#include <xmmintrin.h>

#include "kernels/cpu/optimizer_tables.hpp"

namespace penstock {
namespace {

// Exceptions masked, round to nearest, flush to zero (bit 15), denormals are zero (bit 6).
constexpr unsigned kKernelMxcsr = 0x1f80U | 0x8000U | 0x0040U;

}  // namespace

FloatModeGuard::FloatModeGuard() noexcept : saved_(_mm_getcsr()) {
  _mm_setcsr(kKernelMxcsr);
}
FloatModeGuard::~FloatModeGuard() {
  _mm_setcsr(saved_);
}

const OptimizerKernels& optimizer_kernels(Isa isa) {
  return built_for(isa, detail::kOptimizerScalar, detail::kOptimizerAvx2, detail::kOptimizerAvx512);
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
