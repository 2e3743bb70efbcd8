#pragma once

/// Reads every committed section of a store and lists all damage.
///
/// Threads: one call at a time per store; the store may be opened for reading only.
/// Errors:  kState when nothing is committed, kNoMemory. Damage is the result, not an error.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "io/section_sums.hpp"
#include "io/store.hpp"

namespace penstock {

struct BadTile {
  std::size_t block = 0;
  std::size_t section = 0;
  Errc code = Errc::kCorrupt;  ///< kIo: the drive does not return it; else what `kind` says
  SectionFaultKind kind = SectionFaultKind::kTile;
  std::uint32_t tile = 0;          ///< of kTile
  std::uint64_t offset_bytes = 0;  ///< in the data file
  std::string message;             ///< one sentence, names block, section, file and offset
};

/// Called after each section with the bytes read so far and in all.
using VerifyProgress = std::function<void(std::uint64_t done_bytes, std::uint64_t total_bytes)>;

/// Empty: all committed bytes are right. Each section is read up to three times before it is called
/// bad.
Result<std::vector<BadTile>> verify_store(Store& store, const VerifyProgress& progress = {});

}  // namespace penstock
