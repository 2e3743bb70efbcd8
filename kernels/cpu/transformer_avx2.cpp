#include "kernels/cpu/transformer_table.hpp"
#include "kernels/cpu/vec_avx2.hpp"

namespace penstock {

constinit const TransformerKernels kTransformerAvx2 = transformer_table<avx2::Kit>();

}  // namespace penstock
