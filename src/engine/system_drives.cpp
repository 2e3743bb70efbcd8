#include "engine/system_drives.hpp"

#include <filesystem>
#include <map>

#include "topo/drive_locality.hpp"

namespace penstock {

DriveNamer system_drive_namer() {
  return [](std::uint32_t major, std::uint32_t minor) { return drive_number({major, minor}); };
}

std::string existing_place(const std::string& directory) {
  std::error_code error;
  std::filesystem::path place = std::filesystem::absolute(directory, error).lexically_normal();
  while (!std::filesystem::exists(place, error) && place.has_relative_path()) {
    place = place.parent_path();
  }
  return place.string();
}

std::vector<IoNode> system_io_nodes(const std::vector<std::string>& directories) {
  const auto topology = read_topology();
  if (!topology || topology.value().numa_nodes.size() < 2) return {};
  std::map<int, IoNode> nodes;
  for (const std::string& directory : directories) {
    const auto device = device_of(existing_place(directory));
    if (!device) continue;
    const int node = numa_node_of(device.value());
    if (node < 0) continue;
    nodes[node].index = node;
    nodes[node].drives.push_back(drive_number(device.value()));
    for (const NumaNode& one : topology.value().numa_nodes) {
      if (one.index == node) nodes[node].cpus = cpu_numbers(one.cpus);
    }
  }
  std::vector<IoNode> result;
  for (auto& [index, node] : nodes) result.push_back(std::move(node));
  return result;
}

}  // namespace penstock
