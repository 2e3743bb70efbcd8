#include "base/checksum.hpp"

#include <fmt/format.h>

#if defined(__x86_64__)
// Redirects the calls below to versions that pick SSE2, AVX2 or AVX-512 at run time.
#include <xxh_x86dispatch.h>
#endif

namespace penstock {
namespace {

Hash128 from_xxh(XXH128_hash_t hash) noexcept {
  return Hash128{hash.low64, hash.high64};
}

}  // namespace

void TileHasher::reset(std::uint64_t seed) noexcept {
  // Required before the first reset with a seed: it tells the library that no secret is cached.
  XXH3_INITSTATE(&state_);
  XXH3_64bits_reset_withSeed(&state_, seed);
}

void TileHasher::update(const void* data, std::size_t bytes) noexcept {
  if (bytes != 0) XXH3_64bits_update(&state_, data, bytes);
}

std::uint64_t TileHasher::digest() const noexcept {
  return XXH3_64bits_digest(&state_);
}

void StreamHash128::reset() noexcept {
  XXH3_INITSTATE(&state_);
  XXH3_128bits_reset(&state_);
}

void StreamHash128::update(const void* data, std::size_t bytes) noexcept {
  if (bytes != 0) XXH3_128bits_update(&state_, data, bytes);
}

Hash128 StreamHash128::digest() const noexcept {
  return from_xxh(XXH3_128bits_digest(&state_));
}

std::uint64_t hash64(std::uint64_t seed, std::span<const std::byte> bytes) noexcept {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

Hash128 hash128(std::span<const std::byte> bytes) noexcept {
  return from_xxh(XXH3_128bits(bytes.data(), bytes.size()));
}

std::uint64_t hash_name(std::string_view name) noexcept {
  return XXH3_64bits(name.data(), name.size());
}

std::string to_hex(std::uint64_t value) {
  return fmt::format("{:016x}", value);
}

std::string to_hex(const Hash128& hash) {
  return fmt::format("{:016x}{:016x}", hash.high, hash.low);
}

}  // namespace penstock
