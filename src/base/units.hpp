#pragma once

/// Byte counts and rates as people write them.
///
/// GB is 10^9 and GiB is 2^30, always: drives are sold in one and memory in the other, and a plan
/// that mixes them is 7 % wrong.
/// Threads: pure functions.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace penstock {

inline constexpr std::uint64_t kKiB = std::uint64_t{1} << 10;
inline constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
inline constexpr std::uint64_t kTiB = std::uint64_t{1} << 40;

/// "4096", "60MiB", "1.5GB", "64 GiB". Units: B, kB/KB, MB, GB, TB, PB (powers of 1000) and KiB,
/// MiB, GiB, TiB, PiB (powers of 1024), in any case. A fraction is exact decimal arithmetic and the
/// result is rounded down to whole bytes. kArgument: negative, empty, no number, unknown unit (also
/// "G", which could mean either), or more than 64 bits hold.
[[nodiscard]] Result<std::uint64_t> parse_bytes(std::string_view text);

/// "0 B", "4 KiB", "1.5 GiB": the largest binary unit that leaves at least 1, three decimals at
/// most, trailing zeros dropped. For people: not exact.
[[nodiscard]] std::string format_bytes(std::uint64_t bytes);

/// "84 GB": decimal, as drives and what they endure are specified. For people: not exact.
[[nodiscard]] std::string format_drive_bytes(std::uint64_t bytes);

/// "3.2 GB/s": decimal, as drives are specified.
[[nodiscard]] std::string format_rate(double bytes_per_second);

}  // namespace penstock
