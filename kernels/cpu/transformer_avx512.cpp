#include "kernels/cpu/transformer_table.hpp"
#include "kernels/cpu/vec_avx512.hpp"

namespace penstock {

constinit const TransformerKernels kTransformerAvx512 = transformer_table<avx512::Kit>();

}  // namespace penstock
