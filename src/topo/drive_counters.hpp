#pragma once

/// What the system and the drives themselves count of writes.
///
///   /proc/diskstats   one line a device: major minor name, then numbers, of which the seventh is
///                     the 512-byte sectors written since the system started
///   SMART page        512 bytes, log 2 of an NVMe drive: byte 5 percent of the rated life used,
///                     bytes 48..63 data units (512,000 bytes each) written in the drive's life
/// Threads: pure functions of what they read.
/// Errors:  kIo (cannot be read), kUnsupported (not listed; no NVMe drive), kCorrupt (not as
/// above).

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace penstock {

/// Bytes that were written to a device since the system started, from the text of diskstats.
[[nodiscard]] Result<std::uint64_t> written_bytes_of(std::string_view diskstats,
                                                     std::string_view device);

/// What a drive says of its life. The maker's own counting.
struct DriveHealth {
  std::uint64_t written_bytes = 0;  ///< those beyond 64 bits count as the largest number
  std::uint32_t percent_used = 0;   ///< may be above 100
};

inline constexpr std::size_t kSmartPageBytes = 512;

[[nodiscard]] Result<DriveHealth> decode_smart_page(std::span<const std::byte> page);

/// The SMART page of an NVMe drive; mostly for root only.
[[nodiscard]] Result<std::vector<std::byte>> read_smart_page(const std::string& device_path);

}  // namespace penstock
