#include "measure/mem_cases.hpp"

#include <algorithm>
#include <atomic>
#include <memory>

#include <fmt/format.h>

#include "base/clock.hpp"
#include "base/units.hpp"
#include "measure/device_copy.hpp"
#include "measure/io_context.hpp"
#include "measure/node_memory.hpp"
#include "measure/traffic_loops.hpp"

namespace penstock {
namespace {

constexpr std::uint64_t kMostSet = kGiB, kUsualSet = 128 * kMiB, kLeastSet = 64 * kMiB;
constexpr std::uint64_t kGrain = 4096;  // arrays are multiples of it
constexpr std::uint64_t kUnknownL2 = 512 * kKiB;

enum class Loop : std::uint8_t { kRead, kWrite, kCopy, kUpdate };

struct LoopKind {
  const char* name;
  Loop loop;
  bool bypass;
  std::uint32_t arrays;   // of equal size
  std::uint32_t traffic;  // bytes moved for each byte of an array
};
constexpr LoopKind kLoops[] = {
    {"read", Loop::kRead, false, 1, 1},
    {"write", Loop::kWrite, false, 1, 1},
    {"write, bypassing", Loop::kWrite, true, 1, 1},
    {"copy", Loop::kCopy, false, 2, 2},
    {"copy, bypassing", Loop::kCopy, true, 2, 2},
    {kLoopUpdate, Loop::kUpdate, false, 3, 5},
    {"update traffic, bypassing", Loop::kUpdate, true, 3, 5},
};

/// One pass over a thread's part; `used` keeps what was read.
void pass(const LoopKind& kind, std::span<std::byte> part, std::uint64_t& used) {
  const std::size_t bytes = part.size() / kind.arrays / kGrain * kGrain;
  std::byte* const a = part.data();
  switch (kind.loop) {
    case Loop::kRead:
      used += traffic_read(a, bytes);
      break;
    case Loop::kWrite:
      traffic_write(a, bytes, ++used, kind.bypass);
      break;
    case Loop::kCopy:
      traffic_copy(a + bytes, a, bytes, kind.bypass);
      break;
    case Loop::kUpdate:
      traffic_update(a, a + bytes, a + 2 * bytes, bytes, kind.bypass);
      break;
  }
}

/// Each thread goes over its part again and again; the rates of the threads are added.
Result<RoundFigures> run_loop(const NodeMemory& memory, const LoopKind& kind,
                              std::uint64_t set_bytes, std::uint32_t threads, double seconds) {
  const std::size_t nodes = memory.nodes();
  std::vector<double> rates(threads, 0.0);
  std::atomic<std::uint64_t> kept{0};
  const std::uint64_t start = now_ns();
  const auto node_of = [nodes](std::uint32_t thread) { return thread % nodes; };
  PENSTOCK_CHECK_OK(memory.run_threads(threads, node_of, [&](std::uint32_t thread) {
    const std::uint64_t offset = thread / nodes * set_bytes;
    const std::span<std::byte> part = memory.memory(node_of(thread)).subspan(offset, set_bytes);
    const std::uint64_t bytes = part.size() / kind.arrays / kGrain * kGrain * kind.traffic;
    std::uint64_t used = thread, passes = 0;
    pass(kind, part, used);  // warms what fits a cache
    const std::uint64_t begin = now_ns();
    std::uint64_t now = begin;
    do {
      pass(kind, part, used);
      ++passes;
      now = now_ns();
    } while (static_cast<double>(now - start) * 1e-9 < seconds);
    kept += used;
    rates[thread] = static_cast<double>(passes * bytes) / (static_cast<double>(now - begin) * 1e-9);
  }));
  RoundFigures figures;
  for (const double rate : rates) figures.bytes_per_second += rate;
  figures.window_seconds = static_cast<double>(now_ns() - start) * 1e-9;
  return figures;
}

std::string threads_text(std::uint32_t threads) {
  return threads == 1 ? std::string("1 thread") : fmt::format("{} threads", threads);
}

BenchCase copy_case(const std::shared_ptr<NodeMemory>& memory, std::size_t from, std::size_t to,
                    bool bypass) {
  const std::uint64_t half = memory->memory(from).size() / 2 / kGrain * kGrain;
  BenchCase made;
  made.row.name = fmt::format("copy node {} to node {}{}", memory->index_of(from),
                              memory->index_of(to), bypass ? ", bypassing" : "");
  made.row.kind = "copy";
  made.row.block_bytes = half;
  made.row.threads = 1;
  made.row.note = "bytes copied, by one thread at the second node";
  const std::size_t near = memory->has_cpus(to) ? to : from;
  made.run = [memory, from, to, near, half, bypass](double seconds) -> Result<RoundFigures> {
    RoundFigures figures;
    PENSTOCK_CHECK_OK(memory->run_threads(
        1, [near](std::uint32_t) { return near; },
        [&](std::uint32_t) {
          // Pieces of a frame's size; the second half is the target, so that one node will do.
          const std::byte* const source = memory->memory(from).data();
          std::byte* const target = memory->memory(to).data() + half;
          const std::uint64_t start = now_ns();
          std::uint64_t bytes = 0, at = 0, now = start;
          do {
            const std::uint64_t part = std::min(kHugePageBytes, half - at);
            traffic_copy(target + at, source + at, part, bypass);
            bytes += part;
            at = at + part == half ? 0 : at + part;
            now = now_ns();
          } while (static_cast<double>(now - start) * 1e-9 < seconds);
          figures.window_seconds = static_cast<double>(now - start) * 1e-9;
          figures.bytes_per_second = static_cast<double>(bytes) / figures.window_seconds;
        }));
    return figures;
  };
  return made;
}

}  // namespace

std::string mem_row_name(const char* loop, const char* level, std::uint32_t threads) {
  return fmt::format("{}, {}, {}", loop, level, threads_text(threads));
}

Result<std::shared_ptr<NodeMemory>> make_bench_memory(const Topology& topology) {
  const std::size_t nodes = std::max<std::size_t>(topology.numa_nodes.size(), 1);
  const std::uint64_t free = free_memory_bytes();
  const std::uint64_t wanted = std::clamp(4 * topology.l3_bytes * nodes, kUsualSet, kMostSet);
  const std::uint64_t bytes = std::min(wanted, free / 4) / nodes / kHugePageBytes * kHugePageBytes;
  if (bytes * nodes < kLeastSet) {
    return make_error(Errc::kNoMemory,
                      fmt::format("memory to measure is short: {} are needed at least, and {} are "
                                  "free, of which a quarter is used; free some",
                                  format_bytes(kLeastSet), format_bytes(free)));
  }
  return NodeMemory::create(topology, bytes);
}

void add_mem_cases(const Topology& topology, const std::shared_ptr<NodeMemory>& memory,
                   std::vector<BenchCase>& cases) {
  const std::size_t nodes = memory->nodes();
  const std::uint64_t per_node = memory->memory(0).size();
  const auto all = static_cast<std::uint32_t>(std::max(topology.usable_threads, 1));
  const std::uint64_t l2 = topology.l2_bytes == 0 ? kUnknownL2 : topology.l2_bytes;
  std::vector<std::uint32_t> counts = {1};
  if (all > 1) counts.push_back(all);
  for (const std::uint32_t threads : counts) {
    const std::uint64_t on_a_node = (threads + nodes - 1) / nodes;
    const std::uint64_t share = per_node / on_a_node / kGrain * kGrain;
    const std::uint64_t in_l2 = std::min(l2 / 2, share) / kGrain * kGrain;
    for (const LoopKind& kind : kLoops) {
      for (const bool in_cache : {true, false}) {
        if (in_cache && kind.bypass) continue;  // such stores leave the cache
        const std::uint64_t set = in_cache ? in_l2 : share;
        BenchCase made;
        made.row.name = mem_row_name(kind.name, in_cache ? "L2" : kLevelMemory, threads);
        made.row.kind = "mem";
        made.row.block_bytes = set;
        made.row.threads = threads;
        made.row.note = fmt::format("{} a thread", format_bytes(set));
        made.run = [memory, &kind, set, threads](double seconds) {
          return run_loop(*memory, kind, set, threads, seconds);
        };
        cases.push_back(std::move(made));
      }
    }
  }
}

void add_copy_cases(const std::shared_ptr<NodeMemory>& memory, std::vector<BenchCase>& cases,
                    std::vector<std::string>& notes) {
  for (std::size_t from = 0; from < memory->nodes(); ++from) {
    for (std::size_t to = 0; to < memory->nodes(); ++to) {
      for (const bool bypass : {false, true}) {
        cases.push_back(copy_case(memory, from, to, bypass));
      }
    }
  }
  add_device_copy_cases(cases, notes);
}

}  // namespace penstock
