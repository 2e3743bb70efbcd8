#pragma once

/// What `penstock bench` measured: rows of figures, and where and how they were taken.
///
/// Units:   bytes, seconds, nanoseconds; GB is 10^9 bytes.
/// Figures: a Spread holds per-round values; one with count 0 was not measured and is never shown.
/// Threads: plain values.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "measure/statistics.hpp"

namespace penstock {

/// A row's values divided by others of the same round.
struct BenchRatio {
  std::string to;  ///< "fio", "harmonic model", ...
  Spread ratio;
};

struct BenchRow {
  std::string name;  ///< "read", "update traffic, DRAM, 2 threads": one row of that name in a run
  std::string kind;  ///< "io", "fio", "copy", "mem"
  std::uint64_t block_bytes = 0;  ///< of a request, or the working set of a loop
  std::uint32_t depth = 0;        ///< requests kept in flight for each drive; 0: not of drives
  std::uint32_t threads = 0;      ///< of a loop; 0: not of loops
  double read_share = 0.0;        ///< of the bytes, 0..1
  bool is_limit = false;          ///< pure reads, or pure writes, that say what the device can do

  Spread bytes_per_second;
  Spread cpu_seconds_per_gb;       ///< user and system time of the process
  Spread p50_ns, p99_ns, p999_ns;  ///< per-round percentiles of the latency
  double max_ns = 0.0;             ///< of all rounds
  double mean_depth = 0.0;         ///< requests in flight, median over the rounds
  double window_seconds = 0.0, dropped_seconds = 0.0;  ///< medians: steady window, ramp before it
  std::vector<double> drive_bytes_per_second;  ///< medians, by path; where there are several
  std::vector<BenchRatio> ratios;

  double limit_bytes_per_second = 0.0;  ///< the best that was reached in this run; 0: not known
  std::string limit_of;                 ///< by which row, or rows
  std::string note;                     ///< what the row is, in a few words
};

struct BenchTarget {
  std::string path, device, filesystem;  ///< device: "vda", "nvme0n1 nvme1n1"; empty: not known
  std::string device_id;                 ///< the same for every run on that device
  std::uint64_t file_bytes = 0;
  bool direct = true;  ///< transfers bypass the page cache
};

struct BenchReport {
  std::string what;  ///< "io", "copy", "mem", "all"
  std::string version, kernel, processor;
  std::uint64_t unix_seconds = 0, memory_bytes = 0;
  std::uint32_t threads = 0, numa_nodes = 0;
  double seconds = 0.0;  ///< that the command took
  std::uint64_t seed = 0;
  std::size_t rounds = 0, wanted_rounds = 0;
  double slice_seconds = 0.0;  ///< of one measurement
  std::string queue, queue_reason;
  double first_write_bytes_per_second = 0.0;  ///< when the files were written; 0: not measured
  std::uint64_t buffer_bytes = 0, huge_buffer_bytes = 0;
  std::vector<BenchTarget> targets;
  std::vector<BenchRow> rows;
  std::vector<std::string> notes;

  [[nodiscard]] const BenchRow* find(std::string_view name) const {
    for (const BenchRow& row : rows) {
      if (row.name == name) return &row;
    }
    return nullptr;
  }
};

/// Whether the drives alone decide what was measured: rows of kind "io" and "fio".
[[nodiscard]] inline bool is_of_drives(const BenchRow& row) {
  return row.kind == "io" || row.kind == "fio";
}

/// Fills limits: the best pure read and the best pure write of this run, and of mixtures the
/// harmonic mean of both. Rows of other kinds than "io" and "fio" stay as they are.
void set_device_limits(BenchReport& report);

}  // namespace penstock
