#pragma once

/// The file that benchmarks read and write on a drive.
///
/// The file has no name, so it is gone when the program ends, however it ends. It is written once
/// with bytes that do not compress before anything is measured, because first writes to fresh
/// blocks are slower than later ones, and reads of blocks never written do not reach the drive.
/// Errors: kArgument (missing, no directory, not writable), kNoSpace, kIo; messages name the path.

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "io/storage.hpp"
#include "measure/bench_report.hpp"

namespace penstock {

inline constexpr std::uint64_t kDefaultBenchBytes = std::uint64_t{8} << 30;
inline constexpr std::uint64_t kLeastBenchBytes = std::uint64_t{16} << 20;

/// Whether a file can be made there, as far as can be told without writing.
Status check_bench_path(const std::string& path);

/// The size of the file in each of `paths`: `wanted`, or (0) the default, at most a tenth of what
/// is free. A multiple of 2 MiB. kNoSpace says how much is missing.
Result<std::uint64_t> bench_file_bytes(Storage& storage, const std::vector<std::string>& paths,
                                       std::uint64_t wanted);

struct BenchFile {
  FileId file = 0;
  int descriptor = -1;  ///< a second opening, for another program; -1: none
  BenchTarget target;
};

/// Reserved, not yet written. `for_others`: with a second descriptor, for which the file has a name
/// for a moment.
Result<BenchFile> make_bench_file(Storage& storage, const std::string& path, std::uint64_t bytes,
                                  bool for_others);
void close_bench_file(Storage& storage, BenchFile& file);

/// Bytes that do not compress.
void fill_with_noise(std::span<std::byte> memory, std::uint64_t seed);

}  // namespace penstock
