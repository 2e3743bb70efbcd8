#pragma once

/// The vocabulary of vec_scalar.hpp (its contract holds here) for AVX-512 F, BW, DQ, VL: 16 lanes
/// are one register.

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace penstock::avx512 {
namespace {

inline constexpr int kLanes = 16;

struct F32 {
  __m512 all;
};
struct U32 {
  __m512i all;
};
struct Mask {
  __mmask16 all;
};

struct Kit {
  using F32 = avx512::F32;
  using U32 = avx512::U32;
  using Mask = avx512::Mask;

  static F32 set(float x) { return {_mm512_set1_ps(x)}; }
  static U32 set_u32(std::uint32_t x) { return {_mm512_set1_epi32(static_cast<int>(x))}; }
  static Mask first_lanes(std::size_t lanes) {
    return {static_cast<__mmask16>((1U << lanes) - 1U)};
  }
  static U32 lane_index() {
    return {_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)};
  }

  static F32 load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static F32 load(const float* p, std::size_t lanes) {
    return {_mm512_maskz_loadu_ps(first_lanes(lanes).all, p)};
  }
  static void store(float* p, F32 x) { _mm512_storeu_ps(p, x.all); }
  static void store(float* p, F32 x, std::size_t lanes) {
    _mm512_mask_storeu_ps(p, first_lanes(lanes).all, x.all);
  }

  static U32 load_u16(const std::uint16_t* p) { return {_mm512_cvtepu16_epi32(load_words(p))}; }
  static U32 load_u16(const std::uint16_t* p, std::size_t lanes) {
    return {_mm512_cvtepu16_epi32(load_words(p, lanes))};
  }
  static void store_u16(std::uint16_t* p, U32 x) { store_words(p, _mm512_cvtepi32_epi16(x.all)); }
  static void store_u16(std::uint16_t* p, U32 x, std::size_t lanes) {
    store_words(p, _mm512_cvtepi32_epi16(x.all), lanes);
  }

  static U32 load_u16_high(const std::uint16_t* p) { return widen_high(load_words(p)); }
  static U32 load_u16_high(const std::uint16_t* p, std::size_t lanes) {
    return widen_high(load_words(p, lanes));
  }
  static void store_u16_high(std::uint16_t* p, U32 x) { store_words(p, narrow_high(x)); }
  static void store_u16_high(std::uint16_t* p, U32 x, std::size_t lanes) {
    store_words(p, narrow_high(x), lanes);
  }
  static U32 load_i16(const std::uint16_t* p) { return {_mm512_cvtepi16_epi32(load_words(p))}; }
  static U32 load_i16(const std::uint16_t* p, std::size_t lanes) {
    return {_mm512_cvtepi16_epi32(load_words(p, lanes))};
  }

  static U32 load_u8(const std::uint8_t* p) { return {_mm512_cvtepu8_epi32(load_bytes(p))}; }
  static U32 load_u8(const std::uint8_t* p, std::size_t lanes) {
    return {_mm512_cvtepu8_epi32(load_bytes(p, lanes))};
  }
  static U32 load_i8(const std::int8_t* p) { return {_mm512_cvtepi8_epi32(load_bytes(p))}; }
  static U32 load_i8(const std::int8_t* p, std::size_t lanes) {
    return {_mm512_cvtepi8_epi32(load_bytes(p, lanes))};
  }
  static void store_u8(std::uint8_t* p, U32 x) { store_bytes(p, x); }
  static void store_u8(std::uint8_t* p, U32 x, std::size_t lanes) { store_bytes(p, x, lanes); }
  static void store_i8(std::int8_t* p, U32 x) { store_bytes(p, x); }
  static void store_i8(std::int8_t* p, U32 x, std::size_t lanes) { store_bytes(p, x, lanes); }

  static F32 load_f16(const std::uint16_t* p) { return {_mm512_cvtph_ps(load_words(p))}; }
  static F32 load_f16(const std::uint16_t* p, std::size_t lanes) {
    return {_mm512_cvtph_ps(load_words(p, lanes))};
  }
  static void store_f16(std::uint16_t* p, F32 x) { store_words(p, narrow_f16(x)); }
  static void store_f16(std::uint16_t* p, F32 x, std::size_t lanes) {
    store_words(p, narrow_f16(x), lanes);
  }

  static void stream(float* p, F32 x) { _mm512_stream_ps(p, x.all); }
  static void stream_u16(std::uint16_t* p, U32 x) { stream_words(p, _mm512_cvtepi32_epi16(x.all)); }
  static void stream_f16(std::uint16_t* p, F32 x) { stream_words(p, narrow_f16(x)); }
  static void stream_fence() { _mm_sfence(); }

 private:
  static __m128i load_bytes(const void* p) {
    return _mm_loadu_si128(static_cast<const __m128i*>(p));
  }
  static __m128i load_bytes(const void* p, std::size_t lanes) {
    return _mm_maskz_loadu_epi8(first_lanes(lanes).all, p);
  }
  static void store_bytes(void* p, U32 x) {
    _mm_storeu_si128(static_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x.all));
  }
  static void store_bytes(void* p, U32 x, std::size_t lanes) {
    _mm_mask_storeu_epi8(p, first_lanes(lanes).all, _mm512_cvtepi32_epi8(x.all));
  }
  static __m256i load_words(const std::uint16_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static __m256i load_words(const std::uint16_t* p, std::size_t lanes) {
    return _mm256_maskz_loadu_epi16(first_lanes(lanes).all, p);
  }
  static void store_words(std::uint16_t* p, __m256i x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x);
  }
  static void store_words(std::uint16_t* p, __m256i x, std::size_t lanes) {
    _mm256_mask_storeu_epi16(p, first_lanes(lanes).all, x);
  }
  static void stream_words(std::uint16_t* p, __m256i x) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(p), x);
  }
  /// One permutation of words each, where widening or narrowing and a shift would be two or three.
  static U32 widen_high(__m256i words) {
    const __m512i twice = _mm512_set_epi16(15, 15, 14, 14, 13, 13, 12, 12, 11, 11, 10, 10, 9, 9, 8,
                                           8, 7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
    return {_mm512_maskz_permutexvar_epi16(0xaaaaaaaaU, twice, _mm512_castsi256_si512(words))};
  }
  static __m256i narrow_high(U32 x) {
    const __m512i upper = _mm512_castsi256_si512(
        _mm256_setr_epi16(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31));
    return _mm512_castsi512_si256(_mm512_permutexvar_epi16(upper, x.all));
  }
  static __m256i narrow_f16(F32 x) {
    return _mm512_cvtps_ph(x.all, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
};

inline F32 operator+(F32 a, F32 b) {
  return {_mm512_add_ps(a.all, b.all)};
}
inline F32 operator-(F32 a, F32 b) {
  return {_mm512_sub_ps(a.all, b.all)};
}
inline F32 operator*(F32 a, F32 b) {
  return {_mm512_mul_ps(a.all, b.all)};
}
inline F32 operator/(F32 a, F32 b) {
  return {_mm512_div_ps(a.all, b.all)};
}
inline F32 fma(F32 a, F32 b, F32 c) {
  return {_mm512_fmadd_ps(a.all, b.all, c.all)};
}
inline F32 sqrt(F32 a) {
  return {_mm512_sqrt_ps(a.all)};
}
inline F32 min(F32 a, F32 b) {
  return {_mm512_min_ps(a.all, b.all)};
}
inline F32 max(F32 a, F32 b) {
  return {_mm512_max_ps(a.all, b.all)};
}

inline U32 bits(F32 a) {
  return {_mm512_castps_si512(a.all)};
}
inline F32 from_bits(U32 a) {
  return {_mm512_castsi512_ps(a.all)};
}
inline U32 operator+(U32 a, U32 b) {
  return {_mm512_add_epi32(a.all, b.all)};
}
inline U32 operator-(U32 a, U32 b) {
  return {_mm512_sub_epi32(a.all, b.all)};
}
inline U32 operator*(U32 a, U32 b) {
  return {_mm512_mullo_epi32(a.all, b.all)};
}
inline U32 operator&(U32 a, U32 b) {
  return {_mm512_and_si512(a.all, b.all)};
}
inline U32 operator|(U32 a, U32 b) {
  return {_mm512_or_si512(a.all, b.all)};
}
inline U32 operator^(U32 a, U32 b) {
  return {_mm512_xor_si512(a.all, b.all)};
}
template <int kCount>
inline U32 shift_left(U32 a) {
  return {_mm512_slli_epi32(a.all, kCount)};
}
template <int kCount>
inline U32 shift_right(U32 a) {
  return {_mm512_srli_epi32(a.all, kCount)};
}
template <int kCount>
inline U32 shift_right_signed(U32 a) {
  return {_mm512_srai_epi32(a.all, kCount)};
}
inline F32 operator-(F32 a) {
  return {-a.all};  // not by bits: so compilers fold it into fma
}
inline F32 abs(F32 a) {
  return from_bits(bits(a) & Kit::set_u32(0x7fffffffU));
}

inline U32 magnitude(U32 a) {
  return {_mm512_abs_epi32(a.all)};
}
inline U32 max(U32 a, U32 b) {
  return {_mm512_max_epu32(a.all, b.all)};
}
inline U32 round_to_int(F32 a) {
  return {_mm512_cvtps_epi32(a.all)};
}
inline F32 int_to_float(U32 a) {
  return {_mm512_cvtepi32_ps(a.all)};
}

inline Mask less(F32 a, F32 b) {
  return {_mm512_cmp_ps_mask(a.all, b.all, _CMP_LT_OQ)};
}
inline Mask less_equal(F32 a, F32 b) {
  return {_mm512_cmp_ps_mask(a.all, b.all, _CMP_LE_OQ)};
}
inline Mask equal(F32 a, F32 b) {
  return {_mm512_cmp_ps_mask(a.all, b.all, _CMP_EQ_OQ)};
}
inline Mask is_nan(F32 a) {
  return {_mm512_cmp_ps_mask(a.all, a.all, _CMP_UNORD_Q)};
}
inline Mask equal(U32 a, U32 b) {
  return {_mm512_cmpeq_epi32_mask(a.all, b.all)};
}
inline Mask operator&(Mask a, Mask b) {
  return {static_cast<__mmask16>(a.all & b.all)};
}
inline Mask operator|(Mask a, Mask b) {
  return {static_cast<__mmask16>(a.all | b.all)};
}
inline bool any(Mask a) {
  return a.all != 0;
}
inline U32 select(Mask mask, U32 a, U32 b) {
  return {_mm512_mask_blend_epi32(mask.all, b.all, a.all)};
}
inline F32 select(Mask mask, F32 a, F32 b) {
  return {_mm512_mask_blend_ps(mask.all, b.all, a.all)};
}

inline float sum_lanes(F32 a) {
  const __m256 eight =
      _mm256_add_ps(_mm512_castps512_ps256(a.all), _mm512_extractf32x8_ps(a.all, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline std::uint32_t max_lanes(U32 a) {
  return _mm512_reduce_max_epu32(a.all);
}
inline float max_lanes(F32 a) {
  const __m256 eight =
      _mm256_max_ps(_mm512_castps512_ps256(a.all), _mm512_extractf32x8_ps(a.all, 1));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

}  // namespace
}  // namespace penstock::avx512
