#include "topo/node_binding.hpp"

#include <cerrno>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <hwloc.h>

namespace penstock {

struct NodeBinding::Impl {
  hwloc_topology_t topology = nullptr;
  ~Impl() {
    if (topology != nullptr) hwloc_topology_destroy(topology);
  }
  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  [[nodiscard]] hwloc_obj_t find(int node) const {
    return hwloc_get_numanode_obj_by_os_index(topology, static_cast<unsigned>(node));
  }
};

namespace {

Error cannot_bind(const char* what, int node, int error) {
  return make_error(Errc::kUnsupported,
                    fmt::format("{} cannot be bound to NUMA node {}: {}; check the cpuset of this "
                                "process",
                                what, node, std::generic_category().message(error)),
                    error);
}

}  // namespace

NodeBinding::NodeBinding(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
NodeBinding::NodeBinding(NodeBinding&&) noexcept = default;
NodeBinding& NodeBinding::operator=(NodeBinding&&) noexcept = default;
NodeBinding::~NodeBinding() = default;

Result<NodeBinding> NodeBinding::load() {
  auto impl = std::make_unique<Impl>();
  errno = 0;
  if (hwloc_topology_init(&impl->topology) != 0 || hwloc_topology_load(impl->topology) != 0) {
    return make_error(Errc::kUnsupported,
                      fmt::format("hwloc cannot load the topology of this machine: {}; compare "
                                  "with \"lstopo\"",
                                  std::generic_category().message(errno)),
                      errno);
  }
  return NodeBinding(std::move(impl));
}

Status NodeBinding::bind_thread(int node) const {
  const hwloc_obj_t object = impl_->find(node);
  errno = EINVAL;
  if (object == nullptr ||
      hwloc_set_cpubind(impl_->topology, object->cpuset, HWLOC_CPUBIND_THREAD) != 0) {
    return cannot_bind("a thread", node, errno);
  }
  return ok();
}

Status NodeBinding::bind_memory(int node) const {
  const hwloc_obj_t object = impl_->find(node);
  errno = EINVAL;
  if (object == nullptr || hwloc_set_membind(impl_->topology, object->nodeset, HWLOC_MEMBIND_BIND,
                                             HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET) != 0) {
    return cannot_bind("memory", node, errno);
  }
  return ok();
}

Status NodeBinding::prefer_memory(void* memory, std::uint64_t bytes, int node) const {
  const hwloc_obj_t object = impl_->find(node);
  errno = EINVAL;
  // Not strict: memory of another node is better than none.
  if (object == nullptr ||
      hwloc_set_area_membind(impl_->topology, memory, bytes, object->nodeset, HWLOC_MEMBIND_BIND,
                             HWLOC_MEMBIND_BYNODESET) != 0) {
    return cannot_bind("memory", node, errno);
  }
  return ok();
}

Status NodeBinding::free_memory() const {
  const hwloc_const_nodeset_t all = hwloc_topology_get_allowed_nodeset(impl_->topology);
  errno = EINVAL;
  if (hwloc_set_membind(impl_->topology, all, HWLOC_MEMBIND_DEFAULT,
                        HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET) != 0) {
    return cannot_bind("memory", -1, errno);
  }
  return ok();
}

}  // namespace penstock
