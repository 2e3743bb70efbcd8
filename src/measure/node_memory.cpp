#include "measure/node_memory.hpp"

#include <mutex>
#include <system_error>
#include <thread>

#include <fmt/format.h>

#include "base/units.hpp"
#include "measure/io_context.hpp"

namespace penstock {

Result<std::shared_ptr<NodeMemory>> NodeMemory::create(const Topology& topology,
                                                       std::uint64_t bytes_per_node) {
  auto made = std::make_shared<NodeMemory>();
  std::vector<NumaNode> nodes = topology.numa_nodes;
  if (nodes.empty()) nodes.push_back({});
  const std::uint64_t bytes = bytes_per_node * nodes.size();
  const std::uint64_t free = free_memory_bytes();
  if (2 * bytes > free) {
    return make_error(Errc::kNoMemory,
                      fmt::format("memory to measure is short: {} are needed and {} are free, of "
                                  "which half is used at most; free some",
                                  format_bytes(bytes), format_bytes(free)));
  }
  if (nodes.size() > 1) {
    PENSTOCK_TAKE(binding, NodeBinding::load());
    made->binding_.emplace(std::move(binding));
  }
  made->budget_ = std::make_unique<ByteBudget>("host", bytes + nodes.size() * kHugePageBytes);
  for (const NumaNode& node : nodes) {
    if (made->binding_) PENSTOCK_CHECK_OK(made->binding_->bind_memory(node.index));
    auto arena = Arena::create(*made->budget_, fmt::format("node {}", node.index), bytes_per_node);
    if (made->binding_) PENSTOCK_CHECK_OK(made->binding_->free_memory());
    if (!arena) return std::move(arena).error();
    made->nodes_.push_back({node.index, nodes.size() == 1 || !node.cpus.empty(),
                            std::make_unique<Arena>(std::move(arena).value())});
  }
  return made;
}

std::uint64_t NodeMemory::huge_bytes() const {
  std::uint64_t bytes = 0;
  for (const Node& node : nodes_) bytes += node.arena->huge_bytes();
  return bytes;
}

Status NodeMemory::run_threads(std::uint32_t count,
                               const std::function<std::size_t(std::uint32_t)>& node_of,
                               const std::function<void(std::uint32_t)>& body) const {
  std::mutex mutex;  // guards status
  Status status = ok();
  const auto fail = [&](Error error) {
    const std::lock_guard lock(mutex);
    if (status) status = std::move(error);
  };
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < count; ++i) {
    try {
      threads.emplace_back([&, i] {
        if (binding_) {
          if (Status bound = binding_->bind_thread(nodes_[node_of(i)].index); !bound) {
            fail(std::move(bound).error());
            return;
          }
        }
        body(i);
      });
    } catch (const std::system_error& error) {
      fail(make_error(Errc::kNoMemory,
                      fmt::format("thread {} of {} cannot be started: {}; raise the limit of "
                                  "threads",
                                  i + 1, count, error.what())));
      break;
    }
  }
  for (std::thread& thread : threads) thread.join();
  return status;
}

}  // namespace penstock
