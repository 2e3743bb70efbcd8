#pragma once

/// How the blocks of a store over several drives are dealt to them: by what each drive gives.
///
/// A step waits for the drive that is last, so each gets blocks in proportion to its rate in the
/// step's mix of reads and writes (a drive is half duplex: times of both add up). Directories on
/// one drive share that drive's part; a drive with too little room gets what fits. Threads: blocks
/// its caller. Errors: those of the files and of measuring, with the directory.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/drive_rates.hpp"
#include "io/store.hpp"

namespace penstock {

/// What one directory offers.
struct DriveOffer {
  std::uint64_t drive = 0;  ///< directories with the same number are on one drive
  double read_bytes_per_second = 0.0, write_bytes_per_second = 0.0;  ///< of the drive
  std::uint64_t free_bytes = 0;
};

struct DriveShares {
  std::vector<std::uint32_t> shares;  ///< by directory, each at least 1
  std::string words;                  ///< who gets what and why, for people
};

/// `read_share`: of the bytes of a step, those that are read. `needed_bytes`: of all files
/// together.
[[nodiscard]] DriveShares deal_shares(std::span<const DriveOffer> offers,
                                      const std::vector<std::string>& directories,
                                      double read_share, std::uint64_t needed_bytes);

/// Measures the drives of the directories, one after the other, on temporary files without a name,
/// for about `seconds` in each direction; of a directory that is not there, in the one above it.
Result<std::vector<DriveOffer>> measure_offers(Storage& storage,
                                               const std::vector<std::string>& directories,
                                               double seconds, const QueueOptions& options);

/// Shares of the directories for a store of this geometry, by what their drives are measured to
/// give in a step that reads this part of its bytes.
Result<DriveShares> measure_shares(Storage& storage, const StoreDirectories& directories,
                                   StoreGeometry geometry, bool scratch, double read_share,
                                   double seconds, const QueueOptions& options);

}  // namespace penstock
