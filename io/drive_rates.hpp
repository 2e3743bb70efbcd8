#pragma once

/// What a drive gives: sequential reads and writes through a queue, measured for a moment.
///
/// Writes go to regions the caller owns; they overwrite, so the rates are those of steady state
/// once a region has been written. The region should be larger than a few hundred MiB to say
/// something about the drive rather than its cache. Threads: blocks its caller. Errors: those of
/// the queue; kTimeout after ten seconds per direction.

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

/// A part of a file whose content does not matter.
struct DriveRegion {
  FileId file = 0;
  std::uint64_t offset_bytes = 0;
  std::uint64_t bytes = 0;  ///< at least 2 MiB; only whole MiB are used
};

/// Uses `memory` (page aligned, at least 2 MiB) for transfers of 1 MiB: writes for about `seconds`,
/// then reads what it has just written. Of several regions each gets as many transfers as the
/// others, at once, so the rates are those of all together; regions on one drive share it as they
/// will later.
Result<DriveRates> measure_drives(Storage& storage, std::span<const DriveRegion> regions,
                                  std::span<std::byte> memory, double seconds,
                                  const QueueOptions& options = {});

}  // namespace penstock
