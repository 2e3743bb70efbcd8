#include "kernels/cpu/optimizer_impl.hpp"
#include "kernels/cpu/vec_avx512.hpp"

namespace penstock::detail {

const OptimizerKernels kOptimizerAvx512 = Optimizer<avx512::Kit>::table();

}  // namespace penstock::detail
