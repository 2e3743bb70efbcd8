#pragma once

/// One kernel table for each instruction set, defined in optimizer_<isa>.cpp.

#include "kernels/cpu/optimizer.hpp"

namespace penstock::detail {

extern const OptimizerKernels kOptimizerScalar;
extern const OptimizerKernels kOptimizerAvx2;
extern const OptimizerKernels kOptimizerAvx512;

}  // namespace penstock::detail
