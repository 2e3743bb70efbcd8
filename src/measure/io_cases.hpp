#pragma once

/// The measurements of drives, as cases for run_rounds(), and the ratios between them.
///
/// Threads: one. Cases refer to the context, which outlives them.

#include <cstdint>
#include <string>
#include <vector>

#include "measure/io_context.hpp"
#include "measure/rounds.hpp"

namespace penstock {

enum class BenchRw : std::uint8_t { kAll, kRead, kWrite, kMix, kRandom };

/// Names of the rows, which ratios and the summary refer to.
inline constexpr const char* kRowRead = "read";
inline constexpr const char* kRowWrite = "write";
inline constexpr const char* kRowMix = "read and write";
inline constexpr const char* kRowReadBusy = "read, cores busy";
inline constexpr const char* kRowRandom4K = "random read 4 KiB";
inline constexpr const char* kRowRandom64K = "random read 64 KiB";
inline constexpr const char* kRowPipeline = "read, update, write";
inline constexpr const char* kRowUpdate = "update alone";
inline constexpr const char* kRowSmallWrite = "small tensors, write";
inline constexpr const char* kRowSmallRead = "small tensors, read";
inline constexpr const char* kRowSmallEach = "small tensors, read one by one";
inline constexpr const char* kRowDemandIdle = "demand read, idle";
inline constexpr const char* kRowDemandLoad = "demand read, queue full";

inline constexpr std::uint32_t kSmallPackedDepth = 4;  ///< sections in flight, for each drive

/// Bytes of memory that the cases need; the next two are parts of it.
[[nodiscard]] std::uint64_t io_case_memory_bytes(const IoContextOptions& options);

[[nodiscard]] std::uint64_t pipeline_memory_bytes(const IoContextOptions& options);
[[nodiscard]] std::uint64_t small_memory_bytes(const IoContextOptions& options);

/// Whether requests of that size and number fit the smallest file; kArgument with the numbers.
Status check_io_shape(const IoContextOptions& options);

/// Sequential and random lanes, and demand reads.
void add_lane_cases(IoContext& context, BenchRw rw, std::vector<BenchCase>& cases);
/// Read, AdamW update, write; and the update alone on as many threads.
void add_pipeline_cases(IoContext& context, std::vector<BenchCase>& cases);
/// 20,000 tensors of 4 to 256 KiB, packed as the store packs them, and one request for each.
void add_small_cases(IoContext& context, std::vector<BenchCase>& cases);
/// For the rows above that fio can do: fio on the same files with the same blocks and depth, as
/// rows "fio <name>". `hugetlb`: in memory of huge pages, fio_memory_bytes() of them.
void add_fio_cases(IoContext& context, const std::string& program, bool hugetlb,
                   std::vector<BenchCase>& cases);
[[nodiscard]] std::uint64_t fio_memory_bytes(const IoContextOptions& options);

/// The rows of the cases, with what they are divided by: fio, the harmonic model of a drive that
/// does one thing at a time, the slower of drive and update, the idle latency.
void add_io_rows(const std::vector<BenchCase>& cases, const RoundResults& results,
                 std::vector<BenchRow>& rows);

}  // namespace penstock
