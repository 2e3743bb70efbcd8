#include <algorithm>

#include "base/units.hpp"
#include "measure/busy_cores.hpp"
#include "measure/io_cases.hpp"

namespace penstock {
namespace {

constexpr std::uint32_t kRandomDepth = 32;
constexpr std::uint64_t kDemandBlockBytes = kMiB;
constexpr std::uint32_t kPrefetchDepth = 16, kWriteBackDepth = 32;

BenchRow row_for(const char* name, std::uint64_t block_bytes, std::uint32_t depth,
                 double read_share) {
  BenchRow row;
  row.name = name;
  row.kind = "io";
  row.block_bytes = block_bytes;
  row.depth = depth;
  row.read_share = read_share;
  return row;
}

BenchCase sequential_case(IoContext& context, const char* name, LaneOps ops, double read_share) {
  const IoContextOptions& options = context.options();
  BenchCase made;
  made.row = row_for(name, options.block_bytes, options.depth, read_share);
  made.row.is_limit = ops != LaneOps::kAlternate;
  made.run = [&context, ops](double seconds) {
    const IoContextOptions& of = context.options();
    const Lane lane = context.lane(ops, LaneOrder::kSequential, of.block_bytes, of.depth);
    QueueKnobs knobs = knobs_for(of.backend, of.block_bytes, of.depth);
    if (ops == LaneOps::kAlternate) knobs.read_share = 0.5;
    return context.run({&lane, 1}, knobs, seconds);
  };
  return made;
}

BenchCase random_case(IoContext& context, const char* name, std::uint64_t block_bytes) {
  BenchCase made;
  made.row = row_for(name, block_bytes, kRandomDepth, 1.0);
  made.run = [&context, block_bytes](double seconds) {
    const Lane lane = context.lane(LaneOps::kRead, LaneOrder::kRandom, block_bytes, kRandomDepth);
    return context.run({&lane, 1}, knobs_for(context.options().backend, block_bytes, kRandomDepth),
                       seconds);
  };
  return made;
}

/// Reads that something waits for, alone, or while the queue is full of reads ahead and of writes
/// that nobody waits for. Credits, pieces and classes are the engine's own.
Result<RoundFigures> run_demand(IoContext& context, bool under_load, double seconds) {
  Lane probe = context.lane(LaneOps::kRead, LaneOrder::kRandom, kDemandBlockBytes, 1);
  probe.io_class = IoClass::kDemand;
  probe.places = 1;
  std::vector<Lane> lanes = {probe};
  if (under_load) {
    std::uint64_t used = context.drives() * kDemandBlockBytes;
    const auto add = [&](LaneOps ops, IoClass io_class, std::uint32_t depth) {
      Lane lane = context.lane(ops, LaneOrder::kSequential, kDemandBlockBytes, depth, used);
      lane.io_class = io_class;
      lane.is_probe = false;
      used += lane.places * kDemandBlockBytes;
      lanes.push_back(std::move(lane));
    };
    add(LaneOps::kWrite, IoClass::kWriteBack, kWriteBackDepth);
    add(LaneOps::kRead, IoClass::kPrefetch, kPrefetchDepth);
  }
  QueueKnobs knobs;
  knobs.backend = context.options().backend;
  return context.run(lanes, knobs, seconds);
}

void add_demand_cases(IoContext& context, std::vector<BenchCase>& cases) {
  for (const bool under_load : {false, true}) {
    BenchCase made;
    made.row = row_for(under_load ? kRowDemandLoad : kRowDemandIdle, kDemandBlockBytes,
                       under_load ? 1 + kPrefetchDepth + kWriteBackDepth : 1, 1.0);
    made.row.note = under_load ? "latencies of demand reads; the rate is that of all requests"
                               : "one read at a time";
    made.run = [&context, under_load](double seconds) {
      return run_demand(context, under_load, seconds);
    };
    cases.push_back(std::move(made));
  }
}

}  // namespace

std::uint64_t io_case_memory_bytes(const IoContextOptions& options) {
  const std::uint64_t drives = options.paths.size();
  const std::uint64_t sequential = options.block_bytes * options.depth * drives;
  const std::uint64_t random = 64 * kKiB * kRandomDepth * drives;
  const std::uint64_t demand = kDemandBlockBytes * (1 + kPrefetchDepth + kWriteBackDepth) * drives;
  return std::max(
      {sequential, random, demand, pipeline_memory_bytes(options), small_memory_bytes(options)});
}

void add_lane_cases(IoContext& context, BenchRw rw, std::vector<BenchCase>& cases) {
  const bool all = rw == BenchRw::kAll;
  // A mixture is compared with what reads and writes take alone.
  if (all || rw == BenchRw::kRead || rw == BenchRw::kMix) {
    cases.push_back(sequential_case(context, kRowRead, LaneOps::kRead, 1.0));
  }
  if (all || rw == BenchRw::kWrite || rw == BenchRw::kMix) {
    cases.push_back(sequential_case(context, kRowWrite, LaneOps::kWrite, 0.0));
  }
  if (all || rw == BenchRw::kMix) {
    cases.push_back(sequential_case(context, kRowMix, LaneOps::kAlternate, 0.5));
  }
  if (all) {
    BenchCase busy = sequential_case(context, kRowReadBusy, LaneOps::kRead, 1.0);
    busy.row.is_limit = false;
    busy.run = [&context, read = std::move(busy.run)](double seconds) -> Result<RoundFigures> {
      const BusyCores cores(context.options().threads);
      PENSTOCK_TAKE(figures, read(seconds));
      figures.cpu_seconds_per_gb = 0.0;  // mostly that of the other threads
      return figures;
    };
    cases.push_back(std::move(busy));
  }
  if (all || rw == BenchRw::kRandom) {
    cases.push_back(random_case(context, kRowRandom4K, 4 * kKiB));
    cases.push_back(random_case(context, kRowRandom64K, 64 * kKiB));
  }
  if (all) add_demand_cases(context, cases);
}

}  // namespace penstock
