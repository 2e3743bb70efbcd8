#include "kernels/cpu/update_impl.hpp"
#include "kernels/cpu/vec_scalar.hpp"

namespace penstock::detail {

const UpdateTable kUpdateScalar = Updates<scalar::Kit, true>::table();

}  // namespace penstock::detail
