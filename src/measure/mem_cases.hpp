#pragma once

/// Measurements of memory: loops that move bytes, and copies between NUMA nodes and devices.
///
/// Threads: one. Cases share the memory they work in, since one runs at a time.
/// Errors:  kNoMemory with the numbers.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "measure/node_memory.hpp"
#include "measure/rounds.hpp"
#include "topo/topology.hpp"

namespace penstock {

/// Names of rows that the summary refers to.
[[nodiscard]] std::string mem_row_name(const char* loop, const char* level, std::uint32_t threads);
inline constexpr const char* kLoopUpdate = "update traffic";
inline constexpr const char* kLevelMemory = "memory";

/// So much on each node that caches hold little of it: four times the L3 cache, 128 MiB to 1 GiB in
/// all, at most a quarter of what is free.
Result<std::shared_ptr<NodeMemory>> make_bench_memory(const Topology& topology);

/// Reads, writes, copies, and the traffic of an update without its arithmetic (three streams read,
/// two of them written), in the L2 cache and in memory, by one thread and by all; the writing ones
/// also with stores that bypass the caches.
void add_mem_cases(const Topology& topology, const std::shared_ptr<NodeMemory>& memory,
                   std::vector<BenchCase>& cases);

/// Copies from every NUMA node to every one, by a thread near the second, with plain and with
/// bypassing stores; and between host and device. `notes` says what is not there to be measured.
void add_copy_cases(const std::shared_ptr<NodeMemory>& memory, std::vector<BenchCase>& cases,
                    std::vector<std::string>& notes);

}  // namespace penstock
