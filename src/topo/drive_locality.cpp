#include "topo/drive_locality.hpp"

#include <charconv>
#include <fstream>

#include <fmt/format.h>

namespace penstock {
namespace {

namespace fs = std::filesystem;

std::uint64_t mix(std::uint64_t hash, std::string_view text) {
  for (const char c : text) {  // FNV-1a
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001B3U;
  }
  return (hash ^ 0xFFU) * 0x100000001B3U;
}

}  // namespace

std::uint64_t drive_number(DeviceNumber device, const SystemFiles& files) noexcept {
  constexpr std::uint64_t kBasis = 0xCBF29CE484222325U;
  try {
    const auto drives = drives_under(device, "a device", files);
    if (!drives) return mix(kBasis, fmt::format("{}:{}", device.major, device.minor));
    std::uint64_t hash = kBasis;
    for (const std::string& drive : drives.value()) hash = mix(hash, drive);  // sorted by name
    return hash;
  } catch (...) {  // memory for a path; the device's own number is good enough
    return std::uint64_t{device.major} << 32 | device.minor;
  }
}

int numa_node_of(DeviceNumber device, const SystemFiles& files) {
  const auto drives = drives_under(device, "a device", files);
  if (!drives) return -1;
  for (const std::string& drive : drives.value()) {
    std::error_code error;
    // /sys/class/block/NAME leads to .../pci0000:00/0000:00:04.0/nvme/nvme0/nvme0n1: the bus's
    // device says the node.
    fs::path place = fs::canonical(files.sys / "class" / "block" / drive, error);
    for (; !error && place.has_relative_path() && place != files.sys; place = place.parent_path()) {
      int node = -1;
      if (std::ifstream(place / "numa_node") >> node && node >= 0) return node;
    }
  }
  return -1;
}

std::vector<int> cpu_numbers(const std::string& list) {
  constexpr int kMost = 1 << 16;
  std::vector<int> cpus;
  const char* at = list.data();
  const char* const end = at + list.size();
  while (at < end) {
    int first = 0;
    auto parsed = std::from_chars(at, end, first);
    int last = first;
    if (parsed.ec == std::errc() && parsed.ptr < end && *parsed.ptr == '-') {
      parsed = std::from_chars(parsed.ptr + 1, end, last);
    }
    const bool ends = parsed.ptr == end || *parsed.ptr == ',' || *parsed.ptr == '\n';
    if (parsed.ec != std::errc() || !ends || first < 0 || last < first || last > kMost) return {};
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    at = parsed.ptr + 1;
  }
  return cpus;
}

}  // namespace penstock
