#include "measure/bench_report.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace penstock {
namespace {

const BenchRow* best(const std::vector<BenchRow>& rows, double read_share) {
  const BenchRow* found = nullptr;
  for (const BenchRow& row : rows) {
    if (!row.is_limit || row.read_share != read_share || row.bytes_per_second.count == 0) continue;
    if (found == nullptr || row.bytes_per_second.median > found->bytes_per_second.median) {
      found = &row;
    }
  }
  return found;
}

}  // namespace

void set_device_limits(BenchReport& report) {
  const BenchRow* const read = best(report.rows, 1.0);
  const BenchRow* const write = best(report.rows, 0.0);
  for (BenchRow& row : report.rows) {
    if (!is_of_drives(row) || row.bytes_per_second.count == 0) continue;
    row.limit_bytes_per_second =
        harmonic_rate(row.read_share, read == nullptr ? 0.0 : read->bytes_per_second.median,
                      write == nullptr ? 0.0 : write->bytes_per_second.median);
    if (row.limit_bytes_per_second == 0.0) continue;
    if (row.read_share == 1.0) {
      row.limit_of = read->name;
    } else if (row.read_share == 0.0) {
      row.limit_of = write->name;
    } else {
      row.limit_of = fmt::format("{} and {} in turn", read->name, write->name);
    }
  }
}

}  // namespace penstock
