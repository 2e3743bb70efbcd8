#include "kernels/cpu/transformer_table.hpp"
#include "kernels/cpu/vec_scalar.hpp"

namespace penstock {

constinit const TransformerKernels kTransformerScalar = transformer_table<scalar::Kit>();

}  // namespace penstock
