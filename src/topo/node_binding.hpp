#pragma once

/// Puts threads and memory on a NUMA node.
///
/// Threads: a binding object may be used from any; each call binds the thread that makes it, and
///          memory that this thread touches first from then on.
/// Errors:  kUnsupported, naming the node and what the system says.

#include <cstdint>
#include <memory>

#include "base/result.hpp"

namespace penstock {

class NodeBinding {
 public:
  static Result<NodeBinding> load();
  NodeBinding(NodeBinding&&) noexcept;
  NodeBinding& operator=(NodeBinding&&) noexcept;
  ~NodeBinding();

  /// `node`: as NumaNode::index.
  Status bind_thread(int node) const;
  Status bind_memory(int node) const;
  /// Takes the pages of [memory, memory + bytes), which have not been touched yet, from the node
  /// while that has any.
  Status prefer_memory(void* memory, std::uint64_t bytes, int node) const;
  /// Of this thread, as it was by default.
  Status free_memory() const;

 private:
  struct Impl;
  explicit NodeBinding(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock
