#include "measure/traffic_loops.hpp"

#include <immintrin.h>

namespace penstock {
namespace {

constexpr std::size_t kLane = sizeof(__m256i);

const __m256i* at(const std::byte* p) {
  return reinterpret_cast<const __m256i*>(p);
}
__m256i* at(std::byte* p) {
  return reinterpret_cast<__m256i*>(p);
}

// Vectors of 32 bytes where the processor has them (in cache they matter), of 16 elsewhere.
bool has_avx2() {
  return __builtin_cpu_supports("avx2") != 0;
}

__attribute__((target("avx2"))) std::uint64_t read_avx2(const std::byte* from, std::size_t bytes) {
  __m256i sums[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                     _mm256_setzero_si256()};
  for (std::size_t i = 0; i < bytes; i += 4 * kLane) {
    for (std::size_t j = 0; j < 4; ++j) {
      sums[j] = _mm256_xor_si256(sums[j], _mm256_load_si256(at(from + i + j * kLane)));
    }
  }
  const __m256i sum =
      _mm256_xor_si256(_mm256_xor_si256(sums[0], sums[1]), _mm256_xor_si256(sums[2], sums[3]));
  alignas(32) std::uint64_t words[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(words), sum);
  return words[0] ^ words[1] ^ words[2] ^ words[3];
}

template <bool kBypass>
__attribute__((target("avx2"))) inline void store(std::byte* to, __m256i value) {
  if constexpr (kBypass) {
    _mm256_stream_si256(at(to), value);
  } else {
    _mm256_store_si256(at(to), value);
  }
}

template <bool kBypass>
__attribute__((target("avx2"))) void write_avx2(std::byte* to, std::size_t bytes,
                                                std::uint64_t value) {
  const __m256i all = _mm256_set1_epi64x(static_cast<long long>(value));
  for (std::size_t i = 0; i < bytes; i += kLane) store<kBypass>(to + i, all);
}

template <bool kBypass>
__attribute__((target("avx2"))) void copy_avx2(std::byte* to, const std::byte* from,
                                               std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += 2 * kLane) {
    const __m256i first = _mm256_load_si256(at(from + i));
    const __m256i second = _mm256_load_si256(at(from + i + kLane));
    store<kBypass>(to + i, first);
    store<kBypass>(to + i + kLane, second);
  }
}

template <bool kBypass>
__attribute__((target("avx2"))) void update_avx2(std::byte* a, std::byte* b, const std::byte* c,
                                                 std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += kLane) {
    const __m256i third = _mm256_load_si256(at(c + i));
    store<kBypass>(a + i, _mm256_xor_si256(_mm256_load_si256(at(a + i)), third));
    store<kBypass>(b + i, _mm256_xor_si256(_mm256_load_si256(at(b + i)), third));
  }
}

// The same in 16-byte vectors, which every x86-64 has.
constexpr std::size_t kHalf = sizeof(__m128i);

__m128i load(const std::byte* from) {
  return _mm_load_si128(reinterpret_cast<const __m128i*>(from));
}
void put(std::byte* to, __m128i value, bool bypass) {
  auto* const place = reinterpret_cast<__m128i*>(to);
  bypass ? _mm_stream_si128(place, value) : _mm_store_si128(place, value);
}

}  // namespace

std::uint64_t traffic_read(const std::byte* from, std::size_t bytes) {
  if (has_avx2()) return read_avx2(from, bytes);
  __m128i first = _mm_setzero_si128(), second = _mm_setzero_si128();
  for (std::size_t i = 0; i < bytes; i += 2 * kHalf) {
    first = _mm_xor_si128(first, load(from + i));
    second = _mm_xor_si128(second, load(from + i + kHalf));
  }
  alignas(16) std::uint64_t words[2];
  _mm_store_si128(reinterpret_cast<__m128i*>(words), _mm_xor_si128(first, second));
  return words[0] ^ words[1];
}

void traffic_write(std::byte* to, std::size_t bytes, std::uint64_t value, bool bypass) {
  if (has_avx2()) {
    bypass ? write_avx2<true>(to, bytes, value) : write_avx2<false>(to, bytes, value);
  } else {
    const __m128i all = _mm_set1_epi64x(static_cast<long long>(value));
    for (std::size_t i = 0; i < bytes; i += kHalf) put(to + i, all, bypass);
  }
  if (bypass) _mm_sfence();
}

void traffic_copy(std::byte* to, const std::byte* from, std::size_t bytes, bool bypass) {
  if (has_avx2()) {
    bypass ? copy_avx2<true>(to, from, bytes) : copy_avx2<false>(to, from, bytes);
  } else {
    for (std::size_t i = 0; i < bytes; i += kHalf) put(to + i, load(from + i), bypass);
  }
  if (bypass) _mm_sfence();
}

void traffic_update(std::byte* a, std::byte* b, const std::byte* c, std::size_t bytes,
                    bool bypass) {
  if (has_avx2()) {
    bypass ? update_avx2<true>(a, b, c, bytes) : update_avx2<false>(a, b, c, bytes);
  } else {
    for (std::size_t i = 0; i < bytes; i += kHalf) {
      const __m128i third = load(c + i);
      put(a + i, _mm_xor_si128(load(a + i), third), bypass);
      put(b + i, _mm_xor_si128(load(b + i), third), bypass);
    }
  }
  if (bypass) _mm_sfence();
}

}  // namespace penstock
