#pragma once

/// The 16-lane vector vocabulary of our CPU kernels, on baseline x86-64: plain loops.
///
/// vec_scalar.hpp, vec_avx2.hpp and vec_avx512.hpp define the same names, in the namespaces
/// `scalar`, `avx2`, `avx512`, each with the same bits as this one:
///   F32, U32, Mask  16 lanes each, whatever the register width, so sums over lanes, tails and
///                   loops are alike on every ISA
///   Kit             what needs a type to be found: load, store, set (a template argument `V`)
///   operators       + - * / of F32 and + - & | ^ of U32, one operation per lane; fma, sqrt, min,
///                   max, abs, comparisons, select, bit casts, conversions: free functions (ADL)
///
/// Everything has internal linkage: a file built with wide flags must not hand the linker a
/// function that other files could share. Include at most one of the three, and no code of std::.
/// Partial loads and stores take the number of lanes, 0 to 16, and touch no byte beyond them; the
/// other lanes read as +0.
/// min, max: a < b ? a : b, a > b ? a : b (so b where either is NaN). Comparisons are false on NaN.
/// Float operations follow MXCSR: use FloatModeGuard around them.

#include <emmintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/math/convert_bits.hpp"

namespace penstock::scalar {
namespace {

inline constexpr int kLanes = 16;

struct F32 {
  float lane[kLanes];
};
struct U32 {
  std::uint32_t lane[kLanes];
};
struct Mask {
  bool lane[kLanes];
};

template <class Out, class Function>
inline Out each_lane(Function function) {
  Out out;
  for (int i = 0; i < kLanes; ++i) out.lane[i] = function(i);
  return out;
}

struct Kit {
  using F32 = scalar::F32;
  using U32 = scalar::U32;
  using Mask = scalar::Mask;

  static F32 set(float x) {
    return each_lane<F32>([=](int) { return x; });
  }
  static U32 set_u32(std::uint32_t x) {
    return each_lane<U32>([=](int) { return x; });
  }
  /// Lanes 0 .. lanes-1.
  static Mask first_lanes(std::size_t lanes) {
    return each_lane<Mask>([=](int i) { return static_cast<std::size_t>(i) < lanes; });
  }
  /// 0, 1, ... 15.
  static U32 lane_index() {
    return each_lane<U32>([](int i) { return static_cast<std::uint32_t>(i); });
  }

  static F32 load(const float* p) {
    return each_lane<F32>([=](int i) { return p[i]; });
  }
  static F32 load(const float* p, std::size_t lanes) {
    return each_lane<F32>([=](int i) { return static_cast<std::size_t>(i) < lanes ? p[i] : 0.0F; });
  }
  static void store(float* p, F32 x) {
    for (int i = 0; i < kLanes; ++i) p[i] = x.lane[i];
  }
  static void store(float* p, F32 x, std::size_t lanes) {
    for (std::size_t i = 0; i < lanes; ++i) p[i] = x.lane[i];
  }

  /// 16-bit words, zero-extended; stores keep the low 16 bits.
  static U32 load_u16(const std::uint16_t* p) {
    return each_lane<U32>([=](int i) { return static_cast<std::uint32_t>(p[i]); });
  }
  static U32 load_u16(const std::uint16_t* p, std::size_t lanes) {
    return each_lane<U32>([=](int i) {
      return static_cast<std::size_t>(i) < lanes ? static_cast<std::uint32_t>(p[i]) : 0U;
    });
  }
  static void store_u16(std::uint16_t* p, U32 x) {
    for (int i = 0; i < kLanes; ++i) p[i] = static_cast<std::uint16_t>(x.lane[i]);
  }
  static void store_u16(std::uint16_t* p, U32 x, std::size_t lanes) {
    for (std::size_t i = 0; i < lanes; ++i) p[i] = static_cast<std::uint16_t>(x.lane[i]);
  }

  /// f16, converted as VCVTPH2PS and VCVTPS2PH (to nearest even) do: f16 subnormals are kept
  /// whatever MXCSR says. NaN comes out as some quiet NaN.
  static F32 load_f16(const std::uint16_t* p) {
    return each_lane<F32>(
        [=](int i) { return __builtin_bit_cast(float, math::f16_bits_to_f32_bits(p[i])); });
  }
  static F32 load_f16(const std::uint16_t* p, std::size_t lanes) {
    return each_lane<F32>([=](int i) {
      const std::uint16_t half = static_cast<std::size_t>(i) < lanes ? p[i] : std::uint16_t{0};
      return __builtin_bit_cast(float, math::f16_bits_to_f32_bits(half));
    });
  }
  static void store_f16(std::uint16_t* p, F32 x, std::size_t lanes = kLanes) {
    for (std::size_t i = 0; i < lanes; ++i) {
      p[i] = math::f32_bits_to_f16_bits(__builtin_bit_cast(std::uint32_t, x.lane[i]));
    }
  }
};

inline F32 operator+(F32 a, F32 b) {
  return each_lane<F32>([&](int i) { return a.lane[i] + b.lane[i]; });
}
inline F32 operator-(F32 a, F32 b) {
  return each_lane<F32>([&](int i) { return a.lane[i] - b.lane[i]; });
}
inline F32 operator*(F32 a, F32 b) {
  return each_lane<F32>([&](int i) { return a.lane[i] * b.lane[i]; });
}
inline F32 operator/(F32 a, F32 b) {
  return each_lane<F32>([&](int i) { return a.lane[i] / b.lane[i]; });
}
/// a * b + c, rounded once. The C library's function: exact also where the processor has no FMA.
inline F32 fma(F32 a, F32 b, F32 c) {
  return each_lane<F32>([&](int i) { return __builtin_fmaf(a.lane[i], b.lane[i], c.lane[i]); });
}
inline F32 sqrt(F32 a) {
  return each_lane<F32>([&](int i) { return __builtin_sqrtf(a.lane[i]); });
}
inline F32 min(F32 a, F32 b) {
  return each_lane<F32>([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline F32 max(F32 a, F32 b) {
  return each_lane<F32>([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}

inline U32 bits(F32 a) {
  return __builtin_bit_cast(U32, a);
}
inline F32 from_bits(U32 a) {
  return __builtin_bit_cast(F32, a);
}
inline U32 operator+(U32 a, U32 b) {
  return each_lane<U32>([&](int i) { return a.lane[i] + b.lane[i]; });
}
inline U32 operator-(U32 a, U32 b) {
  return each_lane<U32>([&](int i) { return a.lane[i] - b.lane[i]; });
}
inline U32 operator&(U32 a, U32 b) {
  return each_lane<U32>([&](int i) { return a.lane[i] & b.lane[i]; });
}
inline U32 operator|(U32 a, U32 b) {
  return each_lane<U32>([&](int i) { return a.lane[i] | b.lane[i]; });
}
inline U32 operator^(U32 a, U32 b) {
  return each_lane<U32>([&](int i) { return a.lane[i] ^ b.lane[i]; });
}
template <int kCount>
inline U32 shift_left(U32 a) {
  return each_lane<U32>([&](int i) { return a.lane[i] << kCount; });
}
template <int kCount>
inline U32 shift_right(U32 a) {
  return each_lane<U32>([&](int i) { return a.lane[i] >> kCount; });
}
/// Shifts copies of the sign bit in.
template <int kCount>
inline U32 shift_right_signed(U32 a) {
  return each_lane<U32>([&](int i) {
    return static_cast<std::uint32_t>(static_cast<std::int32_t>(a.lane[i]) >> kCount);
  });
}
inline F32 operator-(F32 a) {
  return from_bits(bits(a) ^ Kit::set_u32(0x80000000U));
}
inline F32 abs(F32 a) {
  return from_bits(bits(a) & Kit::set_u32(0x7fffffffU));
}

/// To the nearest (even) signed integer; out of range and NaN give 0x80000000.
inline U32 round_to_int(F32 a) {
  return each_lane<U32>(
      [&](int i) { return static_cast<std::uint32_t>(_mm_cvtss_si32(_mm_set_ss(a.lane[i]))); });
}
/// From a signed integer, rounded to nearest even.
inline F32 int_to_float(U32 a) {
  return each_lane<F32>(
      [&](int i) { return static_cast<float>(static_cast<std::int32_t>(a.lane[i])); });
}

inline Mask less(F32 a, F32 b) {
  return each_lane<Mask>([&](int i) { return a.lane[i] < b.lane[i]; });
}
inline Mask less_equal(F32 a, F32 b) {
  return each_lane<Mask>([&](int i) { return a.lane[i] <= b.lane[i]; });
}
inline Mask equal(F32 a, F32 b) {
  return each_lane<Mask>([&](int i) { return a.lane[i] == b.lane[i]; });
}
inline Mask is_nan(F32 a) {
  return each_lane<Mask>([&](int i) { return a.lane[i] != a.lane[i]; });
}
inline Mask equal(U32 a, U32 b) {
  return each_lane<Mask>([&](int i) { return a.lane[i] == b.lane[i]; });
}
inline Mask operator&(Mask a, Mask b) {
  return each_lane<Mask>([&](int i) { return a.lane[i] && b.lane[i]; });
}
inline Mask operator|(Mask a, Mask b) {
  return each_lane<Mask>([&](int i) { return a.lane[i] || b.lane[i]; });
}
inline bool any(Mask a) {
  bool found = false;
  for (int i = 0; i < kLanes; ++i) found = found || a.lane[i];
  return found;
}
/// a where the mask is set, else b.
inline F32 select(Mask mask, F32 a, F32 b) {
  return each_lane<F32>([&](int i) { return mask.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline U32 select(Mask mask, U32 a, U32 b) {
  return each_lane<U32>([&](int i) { return mask.lane[i] ? a.lane[i] : b.lane[i]; });
}

/// The fixed lane tree: lanes i and i+8, then i+4, i+2, i+1.
inline float sum_lanes(F32 a) {
  for (int step = kLanes / 2; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) a.lane[i] = a.lane[i] + a.lane[i + step];
  }
  return a.lane[0];
}
inline float max_lanes(F32 a) {
  for (int step = kLanes / 2; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) {
      a.lane[i] = a.lane[i] > a.lane[i + step] ? a.lane[i] : a.lane[i + step];
    }
  }
  return a.lane[0];
}

}  // namespace
}  // namespace penstock::scalar
