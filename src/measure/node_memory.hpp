#pragma once

/// Memory and threads of the NUMA nodes, for measurements of memory.
///
/// On a machine with one node nothing is bound. Each node with memory has an arena of the same size
/// there, in huge pages where the system grants them.
/// Threads: run_threads() starts and joins its own.
/// Errors:  kNoMemory with the numbers, kUnsupported where a node cannot be bound to.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "mem/arena.hpp"
#include "topo/node_binding.hpp"
#include "topo/topology.hpp"

namespace penstock {

class NodeMemory {
 public:
  /// So many bytes for each node that has memory.
  static Result<std::shared_ptr<NodeMemory>> create(const Topology& topology,
                                                    std::uint64_t bytes_per_node);

  [[nodiscard]] std::size_t nodes() const { return nodes_.size(); }
  [[nodiscard]] int index_of(std::size_t node) const { return nodes_[node].index; }
  [[nodiscard]] bool has_cpus(std::size_t node) const { return nodes_[node].has_cpus; }
  [[nodiscard]] std::span<std::byte> memory(std::size_t node) const {
    return {nodes_[node].arena->data(), nodes_[node].arena->bytes()};
  }
  [[nodiscard]] std::uint64_t huge_bytes() const;

  /// body(thread) on `count` threads at once, thread i bound to node node_of(i). The first error.
  Status run_threads(std::uint32_t count, const std::function<std::size_t(std::uint32_t)>& node_of,
                     const std::function<void(std::uint32_t)>& body) const;

 private:
  struct Node {
    int index = 0;
    bool has_cpus = true;
    std::unique_ptr<Arena> arena;
  };
  std::unique_ptr<ByteBudget> budget_;
  std::optional<NodeBinding> binding_;  // where there are several nodes
  std::vector<Node> nodes_;
};

}  // namespace penstock
