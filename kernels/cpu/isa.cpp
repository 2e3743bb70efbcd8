#include "kernels/cpu/isa.hpp"

#include <cpuid.h>

#include <array>
#include <cstdlib>
#include <string>

namespace penstock {
namespace {

constexpr std::array<std::string_view, kIsaCount> kNames = {"scalar", "avx2", "avx512"};

// clang 14 does not know this name in __builtin_cpu_supports().
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

// The compiler's check for AVX2 and AVX-512 includes XCR0, that is, whether the kernel saves the
// wide registers.
bool has_avx2() {
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 && has_f16c();
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") != 0 &&
         __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
         __builtin_cpu_supports("avx512vl") != 0;
}

}  // namespace

std::string_view isa_name(Isa isa) {
  return kNames[static_cast<std::size_t>(isa)];
}

std::optional<Isa> isa_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Isa>(i);
  }
  return std::nullopt;
}

bool isa_supported(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return true;
    case Isa::kAvx2:
      return has_avx2();
    case Isa::kAvx512:
      return has_avx512();
  }
  return false;
}

Result<Isa> choose_isa() {
  const char* wanted = std::getenv("PENSTOCK_ISA");
  if (wanted == nullptr || *wanted == '\0') {
    if (isa_supported(Isa::kAvx512)) return Isa::kAvx512;
    return isa_supported(Isa::kAvx2) ? Isa::kAvx2 : Isa::kScalar;
  }
  const std::optional<Isa> isa = isa_from_name(wanted);
  if (!isa) {
    return make_error(Errc::kArgument, "choose the instruction set from PENSTOCK_ISA=\"" +
                                           std::string(wanted) +
                                           "\": no such name; use scalar, avx2 or avx512, or "
                                           "unset it for the widest this machine has");
  }
  if (!isa_supported(*isa)) {
    return make_error(Errc::kUnsupported,
                      "choose the instruction set from PENSTOCK_ISA=" + std::string(wanted) +
                          ": this processor or its kernel lacks it; use a narrower one, or unset "
                          "it for the widest this machine has");
  }
  return *isa;
}

}  // namespace penstock
