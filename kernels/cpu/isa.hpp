#pragma once

/// Instruction sets our kernels are built for, and which one runs.

#include <optional>
#include <string_view>

#include "base/result.hpp"

namespace penstock {

enum class Isa { kScalar = 0, kAvx2 = 1, kAvx512 = 2 };
inline constexpr int kIsaCount = 3;

/// "scalar", "avx2", "avx512".
[[nodiscard]] std::string_view isa_name(Isa isa);
[[nodiscard]] std::optional<Isa> isa_from_name(std::string_view name);
/// Whether this machine (processor and kernel) runs it: AVX2 needs FMA and F16C, AVX-512 F, BW, DQ
/// and VL.
[[nodiscard]] bool isa_supported(Isa isa);
/// The widest supported one, or what PENSTOCK_ISA names; an unknown or unsupported name is an
/// error.
[[nodiscard]] Result<Isa> choose_isa();

/// Of three the one that was built for `isa`.
template <class T>
[[nodiscard]] constexpr const T& built_for(Isa isa, const T& scalar, const T& avx2,
                                           const T& avx512) {
  switch (isa) {
    case Isa::kScalar:
      break;
    case Isa::kAvx2:
      return avx2;
    case Isa::kAvx512:
      return avx512;
  }
  return scalar;
}

}  // namespace penstock
