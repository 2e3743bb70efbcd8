#pragma once

/// fio as a second opinion: the same requests on the same files, by a program others know.
///
/// fio inherits a descriptor of the file, which has no name, so nothing stays behind however either
/// program ends. Its own limit of time is the slice's; past it and a few seconds more it is killed.
/// Threads: one run at a time.
/// Errors:  kUnsupported (not installed, with the remedy), kIo (fio's own, in its words), kCorrupt
///          (its report is not as expected), kTimeout, kCancelled.

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "measure/rounds.hpp"

namespace penstock {

enum class FioPattern : std::uint8_t { kRead, kWrite, kReadWrite, kRandomRead };

struct FioJob {
  FioPattern pattern = FioPattern::kRead;
  std::vector<int> descriptors;  ///< of the files, one for each drive
  std::uint64_t first_offset = 0, region_bytes = 0, block_bytes = 0;
  std::uint32_t depth = 8;  ///< for each drive; of kReadWrite: half for reads, half for writes
  double seconds = 0.25, ramp_seconds = 0.0;
  bool hugetlb = false;  ///< its memory is of huge pages
};

/// Where fio is, from PATH; kUnsupported where it is not.
Result<std::string> find_fio();
/// Whether so many bytes of free hugetlb pages are there now.
[[nodiscard]] bool has_hugetlb(std::uint64_t bytes);

/// Its arguments, without its own name; files are named by descriptors that it inherits.
[[nodiscard]] std::vector<std::string> fio_arguments(const FioJob& job);
/// What its JSON output says, of all its jobs together.
Result<RoundFigures> parse_fio(std::string_view output, const FioJob& job);

Result<RoundFigures> run_fio(const std::string& program, const FioJob& job,
                             const std::atomic<bool>& stop);

}  // namespace penstock
