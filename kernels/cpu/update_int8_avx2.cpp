#include "kernels/cpu/update_int8_impl.hpp"
#include "kernels/cpu/vec_avx2.hpp"

namespace penstock::detail {

const UpdateInt8Table kUpdateInt8Avx2 = UpdatesInt8<avx2::Kit, false>::table();

}  // namespace penstock::detail
