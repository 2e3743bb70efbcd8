#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "measure/busy_cores.hpp"
#include "measure/fio.hpp"
#include "measure/io_cases.hpp"

namespace penstock {
namespace {

/// fio starts, maps its memory and looks back on what it did.
constexpr double kFioOverheadSeconds = 0.7;
constexpr double kRampShare = 0.15;  // as of LoadOptions

std::optional<FioPattern> pattern_of(const BenchRow& row) {
  if (row.name == kRowRead || row.name == kRowReadBusy) return FioPattern::kRead;
  if (row.name == kRowWrite) return FioPattern::kWrite;
  if (row.name == kRowMix) return FioPattern::kReadWrite;
  if (row.name == kRowRandom4K || row.name == kRowRandom64K) return FioPattern::kRandomRead;
  return std::nullopt;
}

Result<RoundFigures> run_job(IoContext& context, const std::string& program, FioJob job) {
  const std::uint64_t bytes = context.file_bytes();
  job.first_offset = 0;
  if (job.pattern != FioPattern::kRandomRead) {
    job.first_offset = context.next_offset(job.block_bytes);
    if (bytes - job.first_offset < bytes / 2) job.first_offset = 0;
  }
  job.region_bytes = (bytes - job.first_offset) / job.block_bytes * job.block_bytes;
  for (const BenchFile& file : context.files()) job.descriptors.push_back(file.descriptor);
  PENSTOCK_TAKE(figures, run_fio(program, job, context.stop()));
  const double each = figures.bytes_per_second * job.seconds / context.drives();
  context.advance_to(job.first_offset + static_cast<std::uint64_t>(each));
  return figures;
}

}  // namespace

std::uint64_t fio_memory_bytes(const IoContextOptions& options) {
  // Each job has a region of whole huge pages.
  return (options.block_bytes * options.depth + 2 * kHugePageBytes) * 2 * options.paths.size();
}

void add_fio_cases(IoContext& context, const std::string& program, bool hugetlb,
                   std::vector<BenchCase>& cases) {
  const std::size_t own = cases.size();
  for (std::size_t i = 0; i < own; ++i) {
    const auto pattern = pattern_of(cases[i].row);
    if (!pattern) continue;
    BenchCase made;
    made.row = cases[i].row;
    made.row.name = "fio " + cases[i].row.name;
    made.row.kind = "fio";
    made.row.note = hugetlb ? "in huge pages" : "in plain pages";
    made.overhead_seconds = kFioOverheadSeconds;
    FioJob job;
    job.pattern = *pattern;
    job.block_bytes = made.row.block_bytes;
    job.depth = made.row.depth;
    job.hugetlb = hugetlb;
    const bool busy = made.row.name == std::string("fio ") + kRowReadBusy;
    made.run = [&context, program, job, busy](double seconds) {
      std::optional<BusyCores> cores;
      if (busy) cores.emplace(context.options().threads);
      FioJob now = job;
      now.seconds = seconds;
      now.ramp_seconds = seconds * kRampShare;
      return run_job(context, program, now);
    };
    cases.push_back(std::move(made));
  }
}

}  // namespace penstock
