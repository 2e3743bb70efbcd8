#pragma once

/// Counter-based random numbers: pure functions of (seed, stream, index).
///
/// A stream is usually the id of a tensor and an index an element of it, so a value depends on
/// neither the order nor the number of calls, and any part of a tensor can be made anywhere.
/// All results are the same bits on every machine: integers only, then at most one conversion that
/// is exact and one IEEE multiplication.
/// Threads: pure functions. Not for cryptography.

#include <cstdint>

namespace penstock {
namespace random_detail {

inline constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15U;  // 2^64 / golden ratio, odd

/// The finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), Stafford's variant 13.
[[nodiscard]] constexpr std::uint64_t finalise(std::uint64_t z) noexcept {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

}  // namespace random_detail

/// 64 random bits. For one (seed, stream) this is SplitMix64, whose state is a counter, started at
/// a hash of both and passed through a second finaliser with a second hash of both. Without the
/// second pass, streams would be windows of one sequence and could overlap.
[[nodiscard]] constexpr std::uint64_t mix64(std::uint64_t seed, std::uint64_t stream,
                                            std::uint64_t index) noexcept {
  using random_detail::finalise;
  using random_detail::kGolden;
  const std::uint64_t start = finalise(finalise(seed + kGolden) + stream);
  // Not from `start`: that would be the counter's own hash at one index, and cancel it there.
  const std::uint64_t key = finalise(finalise(stream - kGolden) + seed);
  return finalise(finalise(start + index * kGolden) ^ key);
}

/// Uniform in [0, 1), a multiple of 2^-53.
[[nodiscard]] constexpr double uniform01(std::uint64_t seed, std::uint64_t stream,
                                         std::uint64_t index) noexcept {
  return static_cast<double>(mix64(seed, stream, index) >> 11) * 0x1p-53;
}

/// Mean 0, variance 1, close to normal: the sum of eight 16-bit uniforms (Irwin-Hall), whose
/// largest magnitude is 4.9. Meant for initial weights, where the bits must not depend on a
/// math library's log or cos and the far tails do not matter.
[[nodiscard]] constexpr float approximately_normal(std::uint64_t seed, std::uint64_t stream,
                                                   std::uint64_t index) noexcept {
  std::int32_t sum = 0;
  for (std::uint64_t half = 0; half < 2; ++half) {
    const std::uint64_t bits = mix64(seed, stream, 2 * index + half);
    for (int shift = 0; shift < 64; shift += 16) {
      sum += static_cast<std::int32_t>((bits >> shift) & 0xFFFF);
    }
  }
  constexpr std::int32_t kMean = 8 * 65535 / 2;
  // 1 / sqrt(8 (2^32 - 1) / 12), rounded to float. |sum - mean| < 2^19 converts exactly.
  constexpr float kScale = 0x1.3988e2p-16F;
  return static_cast<float>(sum - kMean) * kScale;
}

}  // namespace penstock
