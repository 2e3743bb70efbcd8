#include "measure/bench.hpp"

#include <sys/utsname.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "base/clock.hpp"
#include "base/units.hpp"
#include "measure/fio.hpp"
#include "measure/mem_cases.hpp"
#include "topo/drive_locality.hpp"
#include "topo/topology.hpp"

namespace penstock {
namespace {

constexpr double kFillShare = 0.25;  // of the time, at most, for writing the files once
constexpr double kEndSeconds = 0.1;  // kept for the end, so that the whole ends in time

bool has_drives(BenchWhat what) {
  return what == BenchWhat::kIo || what == BenchWhat::kAll;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return {};
}

BenchReport describe_machine(const BenchOptions& options, const Topology& topology) {
  BenchReport report;
  report.what = name_of(options.what);
  report.version = options.version;
  utsname system{};
  if (::uname(&system) == 0) report.kernel = fmt::format("{} {}", system.sysname, system.release);
  report.processor = processor_name();
  report.unix_seconds = static_cast<std::uint64_t>(std::max<std::time_t>(std::time(nullptr), 0));
  report.threads = static_cast<std::uint32_t>(topology.usable_threads);
  report.numa_nodes = static_cast<std::uint32_t>(topology.numa_nodes.size());
  for (const NumaNode& node : topology.numa_nodes) report.memory_bytes += node.memory_bytes;
  report.seed = options.seed;
  report.wanted_rounds = kWantedRounds;
  return report;
}

class Bench {
 public:
  Bench(const BenchOptions& options, BenchObserver& observer, const std::atomic<bool>& stop)
      : options_(options), observer_(observer), stop_(stop), start_ns_(now_ns()) {}

  Result<BenchReport> run() {
    PENSTOCK_TAKE(topology, read_topology());
    BenchReport report = describe_machine(options_, topology);
    if (has_drives(options_.what)) PENSTOCK_CHECK_OK(add_drives(report));
    if (options_.what != BenchWhat::kIo) {
      PENSTOCK_TAKE(memory, make_bench_memory(topology));
      if (options_.what != BenchWhat::kMem) add_copy_cases(memory, cases_, report.notes);
      if (options_.what != BenchWhat::kCopy) add_mem_cases(topology, memory, cases_);
    }
    RoundOptions rounds;
    rounds.deadline_ns = time_ns(options_.seconds - kEndSeconds);
    rounds.grace_ns = static_cast<std::uint64_t>(options_.seconds * options_.grace_share * 1e9);
    rounds.seed = options_.seed;
    PENSTOCK_TAKE(results, run_rounds(cases_, rounds, observer_, stop_));
    add_io_rows(cases_, results, report.rows);
    set_device_limits(report);
    report.rounds = results.plan.rounds;
    report.slice_seconds = results.plan.slice_seconds;
    if (context_) context_->report(report);
    if (report.rounds < kWantedRounds) {
      report.notes.push_back(fmt::format(
          "{} of {} rounds fitted into {:.3g} s, so the figures are less certain; grant more with "
          "--time",
          report.rounds, kWantedRounds, options_.seconds));
    }
    report.seconds = static_cast<double>(now_ns() - start_ns_) * 1e-9;
    return report;
  }

 private:
  [[nodiscard]] std::uint64_t time_ns(double seconds) const {
    return start_ns_ + static_cast<std::uint64_t>(std::max(seconds, 0.0) * 1e9);
  }

  Status add_drives(BenchReport& report) {
    PENSTOCK_TAKE(isa, choose_isa());
    IoContextOptions io;
    io.paths = options_.paths;
    io.block_bytes = options_.block_bytes;
    io.depth = options_.depth;
    io.backend = options_.backend;
    io.size_bytes = options_.size_bytes;
    io.threads = std::max(report.threads, 1U);
    io.isa = isa;
    io.seed = options_.seed;
    io.with_fio = options_.with_fio;
    PENSTOCK_CHECK_OK(check_io_shape(io));
    std::string fio;
    if (options_.with_fio) {
      PENSTOCK_TAKE(found, find_fio());
      fio = found;
    }
    // As in a training: directories on one drive share its queue.
    storage_ = make_posix_storage([](std::uint32_t major, std::uint32_t minor) {
      return drive_number({major, minor});
    });
    PENSTOCK_TAKE(context,
                  IoContext::open(*storage_, io, io_case_memory_bytes(io),
                                  time_ns(options_.seconds * kFillShare), observer_, stop_));
    context_ = std::move(context);
    add_lane_cases(*context_, options_.rw, cases_);
    if (options_.rw == BenchRw::kAll) {
      add_pipeline_cases(*context_, cases_);
      add_small_cases(*context_, cases_);
    }
    if (options_.with_fio) add_fio(report, fio, io);
    return ok();
  }

  void add_fio(BenchReport& report, const std::string& program, const IoContextOptions& io) {
    const std::uint64_t needed = fio_memory_bytes(io);
    const bool hugetlb = has_hugetlb(needed);
    if (!hugetlb) {
      report.notes.push_back(fmt::format(
          "fio works in plain pages, which slows it down: {} of free hugetlb pages are needed; "
          "reserve some (as root: sysctl vm.nr_hugepages={}) for a fair comparison",
          format_bytes(needed), needed / kHugePageBytes + 8));
    }
    add_fio_cases(*context_, program, hugetlb, cases_);
  }

  const BenchOptions& options_;
  BenchObserver& observer_;
  const std::atomic<bool>& stop_;
  const std::uint64_t start_ns_;
  std::unique_ptr<Storage> storage_;
  std::unique_ptr<IoContext> context_;
  std::vector<BenchCase> cases_;
};

}  // namespace

const char* name_of(BenchWhat what) {
  switch (what) {
    case BenchWhat::kIo:
      return "io";
    case BenchWhat::kCopy:
      return "copy";
    case BenchWhat::kMem:
      return "mem";
    case BenchWhat::kAll:
      return "all";
  }
  return "all";
}

Status check_io_shape(const IoContextOptions& options) {
  constexpr std::uint64_t kLeastBlock = 4 * kKiB, kMostBlock = 64 * kMiB;
  if (options.block_bytes < kLeastBlock || options.block_bytes > kMostBlock ||
      options.block_bytes % kLeastBlock != 0) {
    return make_error(Errc::kArgument,
                      fmt::format("--block {} is not a multiple of 4 KiB from 4 KiB to 64 MiB",
                                  options.block_bytes));
  }
  const std::uint64_t in_flight = options.block_bytes * options.depth;
  const std::uint64_t file = options.size_bytes == 0 ? kDefaultBenchBytes : options.size_bytes;
  if (2 * in_flight > file) {
    return make_error(
        Errc::kArgument,
        fmt::format("--depth {} blocks of {} are more than half of a file of {}; "
                    "take a larger --size, or a smaller --block or --depth",
                    options.depth, format_bytes(options.block_bytes), format_bytes(file)));
  }
  return ok();
}

Result<BenchReport> run_bench(const BenchOptions& options, BenchObserver& observer,
                              const std::atomic<bool>& stop) {
  return Bench(options, observer, stop).run();
}

}  // namespace penstock
