#include "kernels/cpu/transformer.hpp"

#include "kernels/cpu/transformer_table.hpp"

namespace penstock {

const TransformerKernels& transformer_kernels(Isa isa) {
  return built_for(isa, kTransformerScalar, kTransformerAvx2, kTransformerAvx512);
}

}  // namespace penstock
