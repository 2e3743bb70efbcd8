#pragma once

/// A report as a run on a drive of 3 GB/s reads and 6 GB/s writes would give it.

#include <string>

#include "measure/bench_report.hpp"
#include "measure/io_cases.hpp"

namespace penstock::testing {

inline Spread around(double median, double noise = 0.02, std::size_t rounds = 9) {
  return {median * (1 - noise), median, median * (1 + noise), rounds};
}

inline BenchRow io_row(const std::string& name, double gb_per_second, double read_share) {
  BenchRow row;
  row.name = name;
  row.kind = "io";
  row.block_bytes = 1 << 20;
  row.depth = 8;
  row.read_share = read_share;
  row.bytes_per_second = around(gb_per_second * 1e9);
  row.p50_ns = around(2e6);
  row.p99_ns = around(3e6);
  row.p999_ns = around(4e6);
  row.max_ns = 5e6;
  row.cpu_seconds_per_gb = around(0.006);
  row.mean_depth = 8;
  row.window_seconds = 0.2;
  row.dropped_seconds = 0.03;
  return row;
}

inline BenchReport sample_report() {
  BenchReport report;
  report.what = "all";
  report.version = "0.1.0";
  report.kernel = "Linux 6.1";
  report.processor = "A processor";
  report.threads = 2;
  report.numa_nodes = 1;
  report.rounds = report.wanted_rounds = 9;
  report.slice_seconds = 0.25;
  report.queue = "io_uring";
  report.targets = {{"/mnt/a", "nvme0n1", "ext4", "nvme.1:1000", 1 << 30, true}};
  report.rows = {io_row(kRowRead, 3.0, 1.0), io_row(kRowWrite, 6.0, 0.0), io_row(kRowMix, 4.0, 0.5),
                 io_row(kRowDemandIdle, 1.0, 1.0)};
  report.rows[0].is_limit = report.rows[1].is_limit = true;
  report.rows[2].ratios = {{"reads and writes in turn", around(1.0)}};
  return report;
}

}  // namespace penstock::testing
