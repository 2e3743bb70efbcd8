#include "kernels/cpu/update_impl.hpp"
#include "kernels/cpu/vec_avx2.hpp"

namespace penstock::detail {

const UpdateTable kUpdateAvx2 = Updates<avx2::Kit, false>::table();

}  // namespace penstock::detail
