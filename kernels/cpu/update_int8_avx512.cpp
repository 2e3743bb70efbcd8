#include "kernels/cpu/update_int8_impl.hpp"
#include "kernels/cpu/vec_avx512.hpp"

namespace penstock::detail {

const UpdateInt8Table kUpdateInt8Avx512 = UpdatesInt8<avx512::Kit, false>::table();

}  // namespace penstock::detail
