#include "kernels/cpu/optimizer_impl.hpp"
#include "kernels/cpu/vec_scalar.hpp"

namespace penstock::detail {

const OptimizerKernels kOptimizerScalar = Optimizer<scalar::Kit>::table();

}  // namespace penstock::detail
