#define XXH_INLINE_ALL
#define XXH_VECTOR 0  // XXH_SCALAR
#include <xxhash.h>

#include "base/xxh3_scalar.hpp"

namespace penstock::testing {

std::uint64_t scalar_xxh3_64(const void* data, std::size_t bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(data, bytes, seed);
}

std::pair<std::uint64_t, std::uint64_t> scalar_xxh3_128(const void* data, std::size_t bytes) {
  const XXH128_hash_t hash = XXH3_128bits(data, bytes);
  return {hash.low64, hash.high64};
}

}  // namespace penstock::testing
