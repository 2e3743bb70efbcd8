#pragma once

/// The vocabulary of vec_scalar.hpp (its contract holds here) for AVX2 with FMA and F16C: 16 lanes
/// are two registers.

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace penstock::avx2 {
namespace {

inline constexpr int kLanes = 16;

struct F32 {
  __m256 low, high;
};
struct U32 {
  __m256i low, high;
};
struct Mask {  // all bits of a lane set, or none
  __m256i low, high;
};

struct Kit {
  using F32 = avx2::F32;
  using U32 = avx2::U32;
  using Mask = avx2::Mask;

  static F32 set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static U32 set_u32(std::uint32_t x) {
    const __m256i all = _mm256_set1_epi32(static_cast<int>(x));
    return {all, all};
  }
  static Mask first_lanes(std::size_t lanes) {
    const __m256i count = _mm256_set1_epi32(static_cast<int>(lanes));
    const U32 index = lane_index();
    return {_mm256_cmpgt_epi32(count, index.low), _mm256_cmpgt_epi32(count, index.high)};
  }
  static U32 lane_index() {
    return {_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
            _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15)};
  }

  static F32 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static F32 load(const float* p, std::size_t lanes) {
    const Mask mask = first_lanes(lanes);
    const __m256 high = lanes > 8 ? _mm256_maskload_ps(p + 8, mask.high) : _mm256_setzero_ps();
    return {_mm256_maskload_ps(p, mask.low), high};
  }
  static void store(float* p, F32 x) {
    _mm256_storeu_ps(p, x.low);
    _mm256_storeu_ps(p + 8, x.high);
  }
  static void store(float* p, F32 x, std::size_t lanes) {
    const Mask mask = first_lanes(lanes);
    _mm256_maskstore_ps(p, mask.low, x.low);
    if (lanes > 8) _mm256_maskstore_ps(p + 8, mask.high, x.high);
  }

  static U32 load_u16(const std::uint16_t* p) { return widen_u16(load_words(p)); }
  static U32 load_u16(const std::uint16_t* p, std::size_t lanes) {
    return widen_u16(load_words(p, lanes));
  }
  static void store_u16(std::uint16_t* p, U32 x) { store_words(p, narrow_u16(x)); }
  static void store_u16(std::uint16_t* p, U32 x, std::size_t lanes) {
    store_words(p, narrow_u16(x), lanes);
  }

  static U32 load_u16_high(const std::uint16_t* p) { return widen_high(load_words(p)); }
  static U32 load_u16_high(const std::uint16_t* p, std::size_t lanes) {
    return widen_high(load_words(p, lanes));
  }
  static void store_u16_high(std::uint16_t* p, U32 x) { store_words(p, narrow_high(x)); }
  static void store_u16_high(std::uint16_t* p, U32 x, std::size_t lanes) {
    store_words(p, narrow_high(x), lanes);
  }
  static U32 load_i16(const std::uint16_t* p) { return widen_i16(load_words(p)); }
  static U32 load_i16(const std::uint16_t* p, std::size_t lanes) {
    return widen_i16(load_words(p, lanes));
  }

  static U32 load_u8(const std::uint8_t* p) { return widen_u8(load_bytes(p)); }
  static U32 load_u8(const std::uint8_t* p, std::size_t lanes) {
    return widen_u8(load_bytes(p, lanes));
  }
  static U32 load_i8(const std::int8_t* p) { return widen_i8(load_bytes(p)); }
  static U32 load_i8(const std::int8_t* p, std::size_t lanes) {
    return widen_i8(load_bytes(p, lanes));
  }
  static void store_u8(std::uint8_t* p, U32 x) { store_bytes(p, narrow_u8(x)); }
  static void store_u8(std::uint8_t* p, U32 x, std::size_t lanes) {
    store_bytes(p, narrow_u8(x), lanes);
  }
  static void store_i8(std::int8_t* p, U32 x) { store_bytes(p, narrow_u8(x)); }
  static void store_i8(std::int8_t* p, U32 x, std::size_t lanes) {
    store_bytes(p, narrow_u8(x), lanes);
  }

  static F32 load_f16(const std::uint16_t* p) { return widen_f16(load_words(p)); }
  static F32 load_f16(const std::uint16_t* p, std::size_t lanes) {
    return widen_f16(load_words(p, lanes));
  }
  static void store_f16(std::uint16_t* p, F32 x) { store_words(p, narrow_f16(x)); }
  static void store_f16(std::uint16_t* p, F32 x, std::size_t lanes) {
    store_words(p, narrow_f16(x), lanes);
  }

  static void stream(float* p, F32 x) {
    _mm256_stream_ps(p, x.low);
    _mm256_stream_ps(p + 8, x.high);
  }
  static void stream_u16(std::uint16_t* p, U32 x) { stream_words(p, narrow_u16(x)); }
  static void stream_f16(std::uint16_t* p, F32 x) { stream_words(p, narrow_f16(x)); }
  static void stream_fence() { _mm_sfence(); }

 private:
  static __m256i load_words(const std::uint16_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static void store_words(std::uint16_t* p, __m256i x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x);
  }
  static void stream_words(std::uint16_t* p, __m256i x) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(p), x);
  }
  // AVX2 masks no 16-bit words: tails go through a buffer.
  static __m256i load_words(const std::uint16_t* p, std::size_t lanes) {
    alignas(32) std::uint16_t words[kLanes] = {};
    __builtin_memcpy(words, p, lanes * sizeof(std::uint16_t));
    return load_words(words);
  }
  static void store_words(std::uint16_t* p, __m256i x, std::size_t lanes) {
    alignas(32) std::uint16_t words[kLanes];
    store_words(words, x);
    __builtin_memcpy(p, words, lanes * sizeof(std::uint16_t));
  }
  static U32 widen_u16(__m256i words) {
    return {_mm256_cvtepu16_epi32(_mm256_castsi256_si128(words)),
            _mm256_cvtepu16_epi32(_mm256_extracti128_si256(words, 1))};
  }
  static U32 widen_high(__m256i words) {
    const U32 x = widen_u16(words);
    return {_mm256_slli_epi32(x.low, 16), _mm256_slli_epi32(x.high, 16)};
  }
  static U32 widen_i16(__m256i words) {
    return {_mm256_cvtepi16_epi32(_mm256_castsi256_si128(words)),
            _mm256_cvtepi16_epi32(_mm256_extracti128_si256(words, 1))};
  }
  static __m256i narrow_high(U32 x) {
    const __m256i packed =
        _mm256_packus_epi32(_mm256_srli_epi32(x.low, 16), _mm256_srli_epi32(x.high, 16));
    return _mm256_permute4x64_epi64(packed, 0xd8);
  }
  static __m256i narrow_u16(U32 x) {
    const __m256i keep = _mm256_set1_epi32(0xffff);
    const __m256i packed =
        _mm256_packus_epi32(_mm256_and_si256(x.low, keep), _mm256_and_si256(x.high, keep));
    return _mm256_permute4x64_epi64(packed, 0xd8);  // packus works within 128-bit halves
  }
  static __m128i load_bytes(const void* p) {
    return _mm_loadu_si128(static_cast<const __m128i*>(p));
  }
  static __m128i load_bytes(const void* p, std::size_t lanes) {
    alignas(16) std::uint8_t bytes[kLanes] = {};
    __builtin_memcpy(bytes, p, lanes);
    return load_bytes(bytes);
  }
  static void store_bytes(void* p, __m128i x) { _mm_storeu_si128(static_cast<__m128i*>(p), x); }
  static void store_bytes(void* p, __m128i x, std::size_t lanes) {
    alignas(16) std::uint8_t bytes[kLanes];
    store_bytes(bytes, x);
    __builtin_memcpy(p, bytes, lanes);
  }
  static U32 widen_u8(__m128i bytes) {
    return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
  }
  static U32 widen_i8(__m128i bytes) {
    return {_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))};
  }
  static __m128i narrow_u8(U32 x) {
    const __m256i keep = _mm256_set1_epi32(0xff);
    const __m256i words =
        _mm256_packus_epi32(_mm256_and_si256(x.low, keep), _mm256_and_si256(x.high, keep));
    const __m256i ordered = _mm256_permute4x64_epi64(words, 0xd8);
    return _mm_packus_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1));
  }
  static F32 widen_f16(__m256i words) {
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(words)),
            _mm256_cvtph_ps(_mm256_extracti128_si256(words, 1))};
  }
  static __m256i narrow_f16(F32 x) {
    return _mm256_set_m128i(_mm256_cvtps_ph(x.high, _MM_FROUND_TO_NEAREST_INT),
                            _mm256_cvtps_ph(x.low, _MM_FROUND_TO_NEAREST_INT));
  }
};

inline F32 operator+(F32 a, F32 b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
inline F32 operator-(F32 a, F32 b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
inline F32 operator*(F32 a, F32 b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
inline F32 operator/(F32 a, F32 b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
inline F32 fma(F32 a, F32 b, F32 c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline F32 sqrt(F32 a) {
  return {_mm256_sqrt_ps(a.low), _mm256_sqrt_ps(a.high)};
}
inline F32 min(F32 a, F32 b) {
  return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}
inline F32 max(F32 a, F32 b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}

inline U32 bits(F32 a) {
  return {_mm256_castps_si256(a.low), _mm256_castps_si256(a.high)};
}
inline F32 from_bits(U32 a) {
  return {_mm256_castsi256_ps(a.low), _mm256_castsi256_ps(a.high)};
}
inline U32 operator+(U32 a, U32 b) {
  return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}
inline U32 operator-(U32 a, U32 b) {
  return {_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)};
}
inline U32 operator*(U32 a, U32 b) {
  return {_mm256_mullo_epi32(a.low, b.low), _mm256_mullo_epi32(a.high, b.high)};
}
inline U32 operator&(U32 a, U32 b) {
  return {_mm256_and_si256(a.low, b.low), _mm256_and_si256(a.high, b.high)};
}
inline U32 operator|(U32 a, U32 b) {
  return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)};
}
inline U32 operator^(U32 a, U32 b) {
  return {_mm256_xor_si256(a.low, b.low), _mm256_xor_si256(a.high, b.high)};
}
template <int kCount>
inline U32 shift_left(U32 a) {
  return {_mm256_slli_epi32(a.low, kCount), _mm256_slli_epi32(a.high, kCount)};
}
template <int kCount>
inline U32 shift_right(U32 a) {
  return {_mm256_srli_epi32(a.low, kCount), _mm256_srli_epi32(a.high, kCount)};
}
template <int kCount>
inline U32 shift_right_signed(U32 a) {
  return {_mm256_srai_epi32(a.low, kCount), _mm256_srai_epi32(a.high, kCount)};
}
inline F32 operator-(F32 a) {
  return {-a.low, -a.high};  // not by bits: so compilers fold it into fma
}
inline F32 abs(F32 a) {
  return from_bits(bits(a) & Kit::set_u32(0x7fffffffU));
}

inline U32 magnitude(U32 a) {
  return {_mm256_abs_epi32(a.low), _mm256_abs_epi32(a.high)};
}
inline U32 max(U32 a, U32 b) {
  return {_mm256_max_epu32(a.low, b.low), _mm256_max_epu32(a.high, b.high)};
}
inline U32 round_to_int(F32 a) {
  return {_mm256_cvtps_epi32(a.low), _mm256_cvtps_epi32(a.high)};
}
inline F32 int_to_float(U32 a) {
  return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)};
}

template <int kPredicate>
inline Mask compare(F32 a, F32 b) {
  return {_mm256_castps_si256(_mm256_cmp_ps(a.low, b.low, kPredicate)),
          _mm256_castps_si256(_mm256_cmp_ps(a.high, b.high, kPredicate))};
}
inline Mask less(F32 a, F32 b) {
  return compare<_CMP_LT_OQ>(a, b);
}
inline Mask less_equal(F32 a, F32 b) {
  return compare<_CMP_LE_OQ>(a, b);
}
inline Mask equal(F32 a, F32 b) {
  return compare<_CMP_EQ_OQ>(a, b);
}
inline Mask is_nan(F32 a) {
  return compare<_CMP_UNORD_Q>(a, a);
}
inline Mask equal(U32 a, U32 b) {
  return {_mm256_cmpeq_epi32(a.low, b.low), _mm256_cmpeq_epi32(a.high, b.high)};
}
inline Mask operator&(Mask a, Mask b) {
  return {_mm256_and_si256(a.low, b.low), _mm256_and_si256(a.high, b.high)};
}
inline Mask operator|(Mask a, Mask b) {
  return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)};
}
inline bool any(Mask a) {
  const __m256i either = _mm256_or_si256(a.low, a.high);
  return _mm256_testz_si256(either, either) == 0;
}
inline U32 select(Mask mask, U32 a, U32 b) {
  return {_mm256_blendv_epi8(b.low, a.low, mask.low),
          _mm256_blendv_epi8(b.high, a.high, mask.high)};
}
inline F32 select(Mask mask, F32 a, F32 b) {
  return from_bits(select(mask, bits(a), bits(b)));
}

inline float sum_lanes(F32 a) {
  const __m256 eight = _mm256_add_ps(a.low, a.high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline std::uint32_t max_lanes(U32 a) {
  const __m256i eight = _mm256_max_epu32(a.low, a.high);
  __m128i x = _mm_max_epu32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  x = _mm_max_epu32(x, _mm_shuffle_epi32(x, 0x4e));
  x = _mm_max_epu32(x, _mm_shuffle_epi32(x, 0xb1));
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(x));
}
inline float max_lanes(F32 a) {
  const __m256 eight = _mm256_max_ps(a.low, a.high);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

}  // namespace
}  // namespace penstock::avx2
