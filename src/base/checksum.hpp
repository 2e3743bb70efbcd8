#pragma once

/// XXH3 (Collet, xxHash 0.8): the sums of tiles, manifests and names. Not for cryptography.
///
/// Values are those of the published algorithm, the same on every machine; the library picks the
/// vector path of the CPU at run time.
/// Threads: functions are pure; an object is for one thread at a time.
/// Memory:  no allocation; an object holds its state (about 600 bytes, 64-byte aligned).

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#ifndef XXH_STATIC_LINKING_ONLY
#define XXH_STATIC_LINKING_ONLY  // the state as a complete type: no allocation per hasher
#endif
#include <xxhash.h>

namespace penstock {

struct Hash128 {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend bool operator==(const Hash128&, const Hash128&) = default;
};

/// The sum of one tile, fed in pieces by the pass that produces or consumes its bytes.
class TileHasher {
 public:
  TileHasher() noexcept { reset(0); }

  /// Starts the sum of another tile.
  void reset(std::uint64_t seed) noexcept;

  /// Bytes in order; how they are cut into pieces does not change the digest.
  void update(const void* data, std::size_t bytes) noexcept;

  /// The sum of all bytes since reset(); more may follow.
  [[nodiscard]] std::uint64_t digest() const noexcept;

 private:
  XXH3_state_t state_;
};

/// 128 bits over a stream of pieces.
class StreamHash128 {
 public:
  StreamHash128() noexcept { reset(); }
  void reset() noexcept;
  void update(const void* data, std::size_t bytes) noexcept;
  [[nodiscard]] Hash128 digest() const noexcept;

 private:
  XXH3_state_t state_;
};

/// XXH3-64 with a seed; equals a TileHasher's digest of the same bytes and seed.
[[nodiscard]] std::uint64_t hash64(std::uint64_t seed, std::span<const std::byte> bytes) noexcept;

/// XXH3-128 without seed; equals StreamHash128's digest of the same bytes.
[[nodiscard]] Hash128 hash128(std::span<const std::byte> bytes) noexcept;

/// The id of a named thing: XXH3-64 of the name's bytes, seed 0. Stored in files: never changes.
[[nodiscard]] std::uint64_t hash_name(std::string_view name) noexcept;

/// 16 lower-case digits, most significant first.
[[nodiscard]] std::string to_hex(std::uint64_t value);

/// 32 lower-case digits, high half first, as `xxhsum -H2` prints it.
[[nodiscard]] std::string to_hex(const Hash128& hash);

}  // namespace penstock
