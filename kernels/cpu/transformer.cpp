#include "kernels/cpu/transformer.hpp"

#include "kernels/cpu/transformer_table.hpp"

namespace penstock {

const TransformerKernels& transformer_kernels(Isa isa) {
  switch (isa) {
    case Isa::kAvx512:
      return kTransformerAvx512;
    case Isa::kAvx2:
      return kTransformerAvx2;
    case Isa::kScalar:
      break;
  }
  return kTransformerScalar;
}

}  // namespace penstock
