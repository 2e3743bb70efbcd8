#include "topo/topology.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <system_error>

#include <fmt/format.h>
#include <hwloc.h>

#include "topo/cgroup.hpp"

namespace penstock {
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const noexcept { hwloc_topology_destroy(topology); }
};
using TopologyHandle = std::unique_ptr<hwloc_topology, DestroyTopology>;

struct FreeBitmap {
  void operator()(hwloc_bitmap_t bitmap) const noexcept { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, FreeBitmap>;

TopologyHandle make_handle() {
  hwloc_topology_t topology = nullptr;
  return TopologyHandle(hwloc_topology_init(&topology) == 0 ? topology : nullptr);
}

Error cannot_read(Errc code, std::string_view what, int error) {
  return make_error(code,
                    fmt::format("topology of {}: hwloc cannot load it: {}; compare with \"lstopo\"",
                                what, std::generic_category().message(error)),
                    error);
}

std::string list_of(hwloc_const_cpuset_t cpus) {
  char* text = nullptr;
  if (cpus == nullptr || hwloc_bitmap_list_asprintf(&text, cpus) < 0) return {};
  std::string result(text);
  std::free(text);
  return result;
}

/// Objects of `type` that touch `allowed`.
int count(hwloc_topology_t topology, hwloc_obj_type_t type, hwloc_const_cpuset_t allowed) {
  int result = 0;
  for (hwloc_obj_t object = hwloc_get_next_obj_by_type(topology, type, nullptr); object != nullptr;
       object = hwloc_get_next_obj_by_type(topology, type, object)) {
    if (hwloc_bitmap_intersects(object->cpuset, allowed)) ++result;
  }
  return result;
}

std::uint64_t smallest_cache(hwloc_topology_t topology, hwloc_obj_type_t type) {
  std::uint64_t result = 0;
  for (hwloc_obj_t object = hwloc_get_next_obj_by_type(topology, type, nullptr); object != nullptr;
       object = hwloc_get_next_obj_by_type(topology, type, object)) {
    const std::uint64_t bytes = object->attr->cache.size;
    if (bytes != 0 && (result == 0 || bytes < result)) result = bytes;
  }
  return result;
}

std::vector<NumaNode> numa_nodes(hwloc_topology_t topology) {
  std::vector<NumaNode> nodes;
  for (hwloc_obj_t object = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, nullptr);
       object != nullptr;
       object = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, object)) {
    nodes.push_back(NumaNode{static_cast<int>(object->os_index),
                             object->attr->numanode.local_memory, list_of(object->cpuset)});
  }
  std::sort(nodes.begin(), nodes.end(),
            [](const NumaNode& a, const NumaNode& b) { return a.index < b.index; });
  return nodes;
}

Topology extract(hwloc_topology_t topology, hwloc_const_cpuset_t allowed,
                 std::optional<double> quota) {
  Topology result;
  // Some virtual machines show no cores; then each hardware thread counts as one.
  result.hardware_threads = std::max(1, count(topology, HWLOC_OBJ_PU, allowed));
  result.cores = count(topology, HWLOC_OBJ_CORE, allowed);
  if (result.cores == 0) result.cores = result.hardware_threads;
  result.usable_threads = result.hardware_threads;
  if (quota) {
    result.cpu_quota = *quota;
    // Rounded down: with one thread more than the quota pays for, all are halted now and then.
    if (*quota < result.hardware_threads) {
      result.usable_threads = std::max(1, static_cast<int>(*quota));
    }
  }
  result.numa_nodes = numa_nodes(topology);
  result.l2_bytes = smallest_cache(topology, HWLOC_OBJ_L2CACHE);
  result.l3_bytes = smallest_cache(topology, HWLOC_OBJ_L3CACHE);
  return result;
}

Result<Topology> load(TopologyHandle topology, Errc code, std::string_view what,
                      bool is_this_machine) {
  errno = 0;
  if (hwloc_topology_load(topology.get()) != 0) return cannot_read(code, what, errno);
  // Cgroup cpusets are in hwloc's own allowed set; taskset's affinity is not.
  const Bitmap allowed(hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(topology.get())));
  if (allowed == nullptr) return make_error(Errc::kNoMemory, "topology: out of host memory");
  std::optional<double> quota;
  if (is_this_machine) {
    const Bitmap bound(hwloc_bitmap_alloc());
    if (bound != nullptr &&
        hwloc_get_cpubind(topology.get(), bound.get(), HWLOC_CPUBIND_THREAD) == 0 &&
        hwloc_bitmap_intersects(allowed.get(), bound.get())) {
      hwloc_bitmap_and(allowed.get(), allowed.get(), bound.get());
    }
    quota = read_cpu_quota();
  }
  return extract(topology.get(), allowed.get(), quota);
}

}  // namespace

Result<Topology> read_topology() {
  TopologyHandle topology = make_handle();
  if (!topology) return cannot_read(Errc::kUnsupported, "this machine", errno);
  return load(std::move(topology), Errc::kUnsupported, "this machine", true);
}

Result<Topology> topology_from_synthetic(const std::string& description) {
  TopologyHandle topology = make_handle();
  const std::string what = fmt::format("synthetic \"{}\"", description);
  errno = 0;
  if (!topology || hwloc_topology_set_synthetic(topology.get(), description.c_str()) != 0) {
    return cannot_read(Errc::kArgument, what, errno);
  }
  return load(std::move(topology), Errc::kArgument, what, false);
}

Result<Topology> topology_from_xml(const std::filesystem::path& path) {
  TopologyHandle topology = make_handle();
  const std::string what = fmt::format("file {}", path.string());
  errno = 0;
  if (!topology || hwloc_topology_set_xml(topology.get(), path.c_str()) != 0) {
    return cannot_read(Errc::kArgument, what, errno);
  }
  return load(std::move(topology), Errc::kArgument, what, false);
}

}  // namespace penstock
