#pragma once

/// One table of update kernels for each instruction set, defined in update_<isa>.cpp.

#include "kernels/cpu/update.hpp"

namespace penstock::detail {

/// The loops that rules run. AMSGrad and momentum have further arrays, and Adam's decoupled decay
/// has to be fast; all else is a matter of scalars.
enum class UpdateLoop {
  kAdam,
  kAdamDecay,
  kAdamMax,
  kAdamMaxDecay,
  kSgd,
  kSgdMomentum,
  kAdagrad,
  kLion
};
inline constexpr int kUpdateLoopCount = 8;
inline constexpr int kGradientTypeCount = 3;  ///< f32, f16, bf16, as DType numbers them

struct UpdateTable {
  /// [][][split master][bf16 states]
  UpdateKernel kernels[kUpdateLoopCount][kGradientTypeCount][2][2];
  UpdateKernel bf16_weights[2][kGradientTypeCount]
                           [2];  ///< of Adam: [decoupled decay][][bf16 states]
  bool (*within[kGradientTypeCount])(std::size_t n, const void* gradient, float limit);
};

struct UpdateInt8Table {
  UpdateKernel kernels[2][kGradientTypeCount][kMasterCount];  ///< [decoupled decay][][]
};

extern const UpdateTable kUpdateScalar;
extern const UpdateTable kUpdateAvx2;
extern const UpdateTable kUpdateAvx512;
extern const UpdateInt8Table kUpdateInt8Scalar;
extern const UpdateInt8Table kUpdateInt8Avx2;
extern const UpdateInt8Table kUpdateInt8Avx512;

}  // namespace penstock::detail
