#include "kernels/cpu/optimizer_impl.hpp"
#include "kernels/cpu/vec_avx2.hpp"

namespace penstock::detail {

const OptimizerKernels kOptimizerAvx2 = Optimizer<avx2::Kit>::table();

}  // namespace penstock::detail
