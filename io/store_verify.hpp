#pragma once

/// Reads every committed section of a store and lists all damage.
///
/// Threads: one call at a time per store; the store may be opened for reading only.
/// Errors:  kState when nothing is committed, kNoMemory. Damage is the result, not an error.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "io/page_buffer.hpp"
#include "io/section_sums.hpp"
#include "io/store.hpp"

namespace penstock {

struct BadTile {
  std::size_t block = 0;
  std::size_t section = 0;
  Errc code = Errc::kCorrupt;  ///< kIo: the drive does not return it; else what `kind` says
  SectionFaultKind kind = SectionFaultKind::kTile;
  std::uint32_t tile = 0;          ///< of kTile
  std::string path;                ///< of the data file
  std::uint64_t offset_bytes = 0;  ///< in the data file
  std::uint64_t bytes = 0;         ///< of the tile, the sums or the padding
  std::string message;             ///< one sentence, names block, section, file and offset
};

/// Room for verify_block(): the largest section with its sums.
[[nodiscard]] std::uint64_t verify_buffer_bytes(const Store& store);

/// All damage of one block as `entry` describes it. What the drive does not return is read again
/// tile by tile, so that the places are as small as they can be named; where only the sums are lost
/// no tile can be told right from wrong. `storage` is the one that the store was opened in; each
/// section is read up to three times before it is called bad.
std::vector<BadTile> verify_block(Storage& storage, Store& store, std::size_t block,
                                  const SlotEntry& entry, PageBuffer& buffer);

/// Called after each section with the bytes read so far and in all.
using VerifyProgress = std::function<void(std::uint64_t done_bytes, std::uint64_t total_bytes)>;

/// Empty: all committed bytes are right. Each section is read up to three times before it is called
/// bad.
Result<std::vector<BadTile>> verify_store(Store& store, const VerifyProgress& progress = {});

}  // namespace penstock
