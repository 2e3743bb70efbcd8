#pragma once

/// The 16-lane vector vocabulary of our CPU kernels, on baseline x86-64.
///
/// vec_scalar.hpp, vec_avx2.hpp and vec_avx512.hpp define the same names, in the namespaces
/// `scalar`, `avx2`, `avx512`, each with the same bits as this one:
///   F32, U32, Mask  16 lanes each, whatever the register width, so sums over lanes, tails and
///                   loops are alike on every ISA
///   Kit             what needs a type to be found: load, store, set (a template argument `V`)
///   operators       + - * / of F32 and + - * & | ^ of U32, one operation per lane; fma, sqrt, min,
///                   max, abs, comparisons, select, bit casts, conversions: free functions (ADL)
///
/// Everything has internal linkage: a file built with wide flags must not hand the linker a
/// function that other files could share. Include at most one of the three, and no code of std::.
/// Partial loads and stores take the number of lanes, 0 to 16, and touch no byte beyond them; the
/// other lanes read as +0.
/// stream, stream_u16, stream_f16: whole vectors to an address aligned to what they write (64 or 32
/// bytes), past the caches; stream_fence() before another thread may be told of them.
/// min, max: a < b ? a : b, a > b ? a : b (so b where either is NaN); but of a denormal, with DAZ,
/// the wide ones return zero: not for what is stored. Comparisons are false on NaN. Float
/// operations follow MXCSR: use FloatModeGuard around them.

#include <emmintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/math/convert_bits.hpp"

namespace penstock::scalar {
namespace {

inline constexpr int kLanes = 16;

// The compiler's own vectors: it cuts one operation on 16 lanes into what the processor has. Loops
// over 16 array elements mean the same, but take minutes to compile with sanitizers; where one is
// needed, it is not inlined for the same reason.
using Floats [[gnu::vector_size(64)]] = float;
using Words [[gnu::vector_size(64)]] = std::uint32_t;
using Ints [[gnu::vector_size(64)]] = std::int32_t;

struct F32 {
  Floats all;
};
struct U32 {
  Words all;
};
struct Mask {  // all bits of a lane set, or none
  Words all;
};

struct Kit {
  using F32 = scalar::F32;
  using U32 = scalar::U32;
  using Mask = scalar::Mask;

  static F32 set(float x) { return {Floats{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}}; }
  static U32 set_u32(std::uint32_t x) {
    return {Words{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}};
  }
  /// Lanes 0 .. lanes-1.
  static Mask first_lanes(std::size_t lanes) {
    const U32 count = set_u32(static_cast<std::uint32_t>(lanes));
    return {reinterpret_cast<Words>(lane_index().all < count.all)};
  }
  /// 0, 1, ... 15.
  static U32 lane_index() { return {Words{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}}; }

  static F32 load(const float* p) { return load(p, kLanes); }
  static F32 load(const float* p, std::size_t lanes) {
    F32 x = {};
    __builtin_memcpy(&x, p, lanes * sizeof(float));
    return x;
  }
  static void store(float* p, F32 x) { store(p, x, kLanes); }
  static void store(float* p, F32 x, std::size_t lanes) {
    __builtin_memcpy(p, &x, lanes * sizeof(float));
  }

  /// 16-bit words, zero-extended; stores keep the low 16 bits.
  [[gnu::noinline]] static U32 load_u16(const std::uint16_t* p, std::size_t lanes = kLanes) {
    U32 x = {};
    for (std::size_t i = 0; i < lanes; ++i) x.all[i] = p[i];
    return x;
  }
  [[gnu::noinline]] static void store_u16(std::uint16_t* p, U32 x, std::size_t lanes = kLanes) {
    for (std::size_t i = 0; i < lanes; ++i) p[i] = static_cast<std::uint16_t>(x.all[i]);
  }

  /// The same words as the upper 16 bits of each lane, the lower ones being zero or dropped; and
  /// signed words.
  static U32 load_u16_high(const std::uint16_t* p, std::size_t lanes = kLanes) {
    return {load_u16(p, lanes).all << 16};
  }
  static void store_u16_high(std::uint16_t* p, U32 x, std::size_t lanes = kLanes) {
    store_u16(p, {x.all >> 16}, lanes);
  }
  static U32 load_i16(const std::uint16_t* p, std::size_t lanes = kLanes) {
    return {reinterpret_cast<Words>(reinterpret_cast<Ints>(load_u16_high(p, lanes).all) >> 16)};
  }

  /// Bytes, zero- or sign-extended; stores keep the low 8 bits.
  [[gnu::noinline]] static U32 load_u8(const std::uint8_t* p, std::size_t lanes = kLanes) {
    U32 x = {};
    for (std::size_t i = 0; i < lanes; ++i) x.all[i] = p[i];
    return x;
  }
  [[gnu::noinline]] static U32 load_i8(const std::int8_t* p, std::size_t lanes = kLanes) {
    U32 x = {};
    for (std::size_t i = 0; i < lanes; ++i) {
      x.all[i] = static_cast<std::uint32_t>(std::int32_t{p[i]});
    }
    return x;
  }
  [[gnu::noinline]] static void store_u8(std::uint8_t* p, U32 x, std::size_t lanes = kLanes) {
    for (std::size_t i = 0; i < lanes; ++i) p[i] = static_cast<std::uint8_t>(x.all[i]);
  }
  static void store_i8(std::int8_t* p, U32 x, std::size_t lanes = kLanes) {
    store_u8(reinterpret_cast<std::uint8_t*>(p), x, lanes);
  }

  /// f16, converted as VCVTPH2PS and VCVTPS2PH (to nearest even) do: f16 subnormals are kept
  /// whatever MXCSR says. NaN comes out as some quiet NaN.
  [[gnu::noinline]] static F32 load_f16(const std::uint16_t* p, std::size_t lanes = kLanes) {
    U32 x = {};
    for (std::size_t i = 0; i < lanes; ++i) x.all[i] = math::f16_bits_to_f32_bits(p[i]);
    return {reinterpret_cast<Floats>(x.all)};
  }
  [[gnu::noinline]] static void store_f16(std::uint16_t* p, F32 x, std::size_t lanes = kLanes) {
    const Words words = reinterpret_cast<Words>(x.all);
    for (std::size_t i = 0; i < lanes; ++i) p[i] = math::f32_bits_to_f16_bits(words[i]);
  }

  static void stream(float* p, F32 x) { stream_bytes<sizeof x>(p, &x); }
  static void stream_u16(std::uint16_t* p, U32 x) {
    std::uint16_t words[kLanes];
    store_u16(words, x);
    stream_bytes<sizeof words>(p, words);
  }
  static void stream_f16(std::uint16_t* p, F32 x) {
    std::uint16_t words[kLanes];
    store_f16(words, x);
    stream_bytes<sizeof words>(p, words);
  }
  static void stream_fence() { _mm_sfence(); }

 private:
  template <std::size_t kBytes>
  static void stream_bytes(void* p, const void* from) {
    auto* to = static_cast<__m128i*>(p);
    const auto* words = static_cast<const __m128i*>(from);
    for (std::size_t i = 0; i < kBytes / sizeof(__m128i); ++i) {
      _mm_stream_si128(to + i, _mm_loadu_si128(words + i));
    }
  }
};

inline U32 bits(F32 a) {
  return {reinterpret_cast<Words>(a.all)};
}
inline F32 from_bits(U32 a) {
  return {reinterpret_cast<Floats>(a.all)};
}
inline U32 operator+(U32 a, U32 b) {
  return {a.all + b.all};
}
inline U32 operator-(U32 a, U32 b) {
  return {a.all - b.all};
}
/// The low 32 bits of the product.
inline U32 operator*(U32 a, U32 b) {
  return {a.all * b.all};
}
inline U32 operator&(U32 a, U32 b) {
  return {a.all & b.all};
}
inline U32 operator|(U32 a, U32 b) {
  return {a.all | b.all};
}
inline U32 operator^(U32 a, U32 b) {
  return {a.all ^ b.all};
}
template <int kCount>
inline U32 shift_left(U32 a) {
  return {a.all << kCount};
}
template <int kCount>
inline U32 shift_right(U32 a) {
  return {a.all >> kCount};
}
/// Shifts copies of the sign bit in.
template <int kCount>
inline U32 shift_right_signed(U32 a) {
  return {reinterpret_cast<Words>(reinterpret_cast<Ints>(a.all) >> kCount)};
}

// GCC 12 cuts comparisons of these vectors into single floats, each with branches; so by quarters.
template <class Compare>
inline Mask compare(F32 a, F32 b, Compare compare_quarter) {
  __m128 x[4], y[4];
  __builtin_memcpy(x, &a, sizeof x);
  __builtin_memcpy(y, &b, sizeof y);
  for (int i = 0; i < 4; ++i) x[i] = compare_quarter(x[i], y[i]);
  Mask out;
  __builtin_memcpy(&out, x, sizeof out);
  return out;
}
inline Mask less(F32 a, F32 b) {
  return compare(a, b, [](__m128 x, __m128 y) { return _mm_cmplt_ps(x, y); });
}
inline Mask less_equal(F32 a, F32 b) {
  return compare(a, b, [](__m128 x, __m128 y) { return _mm_cmple_ps(x, y); });
}
inline Mask equal(F32 a, F32 b) {
  return compare(a, b, [](__m128 x, __m128 y) { return _mm_cmpeq_ps(x, y); });
}
inline Mask is_nan(F32 a) {
  return compare(a, a, [](__m128 x, __m128 y) { return _mm_cmpunord_ps(x, y); });
}
inline Mask equal(U32 a, U32 b) {
  return {reinterpret_cast<Words>(a.all == b.all)};
}
inline Mask operator&(Mask a, Mask b) {
  return {a.all & b.all};
}
inline Mask operator|(Mask a, Mask b) {
  return {a.all | b.all};
}
inline bool any(Mask a) {
  std::uint32_t found = 0;
  for (int i = 0; i < kLanes; ++i) found |= a.all[i];
  return found != 0;
}
/// a where the mask is set, else b.
inline U32 select(Mask mask, U32 a, U32 b) {
  return {(mask.all & a.all) | (~mask.all & b.all)};
}
inline F32 select(Mask mask, F32 a, F32 b) {
  return from_bits(select(mask, bits(a), bits(b)));
}

inline F32 operator+(F32 a, F32 b) {
  return {a.all + b.all};
}
inline F32 operator-(F32 a, F32 b) {
  return {a.all - b.all};
}
inline F32 operator*(F32 a, F32 b) {
  return {a.all * b.all};
}
inline F32 operator/(F32 a, F32 b) {
  return {a.all / b.all};
}

struct LaneByLane {
  [[gnu::noinline]] static F32 fma(F32 a, F32 b, F32 c) {
    for (int i = 0; i < kLanes; ++i) c.all[i] = __builtin_fmaf(a.all[i], b.all[i], c.all[i]);
    return c;
  }
  [[gnu::noinline]] static F32 sqrt(F32 a) {
    for (int i = 0; i < kLanes; ++i) a.all[i] = __builtin_sqrtf(a.all[i]);
    return a;
  }
};
/// a * b + c, rounded once. The C library's function: exact also where the processor has no FMA.
inline F32 fma(F32 a, F32 b, F32 c) {
  return LaneByLane::fma(a, b, c);
}
inline F32 sqrt(F32 a) {
  return LaneByLane::sqrt(a);
}
inline F32 min(F32 a, F32 b) {
  return select(less(a, b), a, b);
}
inline F32 max(F32 a, F32 b) {
  return select(less(b, a), a, b);
}
inline F32 operator-(F32 a) {
  return from_bits(bits(a) ^ Kit::set_u32(0x80000000U));
}
inline F32 abs(F32 a) {
  return from_bits(bits(a) & Kit::set_u32(0x7fffffffU));
}

/// The magnitude of a signed integer.
inline U32 magnitude(U32 a) {
  const Words sign = reinterpret_cast<Words>(reinterpret_cast<Ints>(a.all) >> 31);
  return {(a.all ^ sign) - sign};
}
inline U32 max(U32 a, U32 b) {
  return select(Mask{reinterpret_cast<Words>(a.all > b.all)}, a, b);
}
/// To the nearest (even) signed integer; out of range and NaN give 0x80000000.
inline U32 round_to_int(F32 a) {
  U32 out = {};
  for (int i = 0; i < kLanes; ++i) {
    out.all[i] = static_cast<std::uint32_t>(_mm_cvtss_si32(_mm_set_ss(a.all[i])));
  }
  return out;
}
/// From a signed integer, rounded to nearest even.
inline F32 int_to_float(U32 a) {
  return {__builtin_convertvector(reinterpret_cast<Ints>(a.all), Floats)};
}

/// The fixed lane tree: lanes i and i+8, then i+4, i+2, i+1.
inline float sum_lanes(F32 a) {
  for (int step = kLanes / 2; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) a.all[i] = a.all[i] + a.all[i + step];
  }
  return a.all[0];
}
inline std::uint32_t max_lanes(U32 a) {
  std::uint32_t largest = 0;
  for (int i = 0; i < kLanes; ++i) largest = a.all[i] > largest ? a.all[i] : largest;
  return largest;
}
inline float max_lanes(F32 a) {
  for (int step = kLanes / 2; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) {
      a.all[i] = a.all[i] > a.all[i + step] ? a.all[i] : a.all[i + step];
    }
  }
  return a.all[0];
}

}  // namespace
}  // namespace penstock::scalar
