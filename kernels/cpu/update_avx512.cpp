#include "kernels/cpu/update_impl.hpp"
#include "kernels/cpu/vec_avx512.hpp"

namespace penstock::detail {

const UpdateTable kUpdateAvx512 = Updates<avx512::Kit, false>::table();

}  // namespace penstock::detail
