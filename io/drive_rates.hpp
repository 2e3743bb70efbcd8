#pragma once

/// What a drive gives: sequential reads and writes through a queue, measured for a moment.
///
/// Writes go to a region the caller owns and whose content does not matter; they overwrite, so the
/// rates are those of steady state once the region has been written. The region should be larger
/// than a few hundred MiB to say something about the drive rather than its cache.
/// Threads: blocks its caller. Errors: those of the queue; kTimeout after ten seconds per
/// direction.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.hpp"
#include "io/storage.hpp"

namespace penstock {

struct DriveRates {
  double read_bytes_per_second = 0.0;  ///< 0: not measured
  double write_bytes_per_second = 0.0;
  std::uint64_t written_bytes = 0;  ///< what measuring cost the drive
};

/// Uses `memory` (page aligned, at least 2 MiB) for transfers of 1 MiB within
/// [offset, offset + bytes) of the file: writes for about `seconds`, then reads.
Result<DriveRates> measure_drive(Storage& storage, FileId file, std::uint64_t offset_bytes,
                                 std::uint64_t bytes, std::span<std::byte> memory, double seconds);

}  // namespace penstock
