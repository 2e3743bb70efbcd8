#include "kernels/cpu/update_int8_impl.hpp"
#include "kernels/cpu/vec_scalar.hpp"

namespace penstock::detail {

const UpdateInt8Table kUpdateInt8Scalar = UpdatesInt8<scalar::Kit, true>::table();

}  // namespace penstock::detail
