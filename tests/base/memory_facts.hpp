#pragma once

/// What the kernel says of an address of this process.

#include <unistd.h>

#include <cinttypes>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <string>

namespace penstock::testing {

/// Whether the kernel can read one byte there; asks without touching it.
inline bool is_mapped(const void* address) {
  int ends[2];
  if (pipe(ends) != 0) return false;
  const bool mapped = write(ends[1], address, 1) == 1;
  close(ends[0]);
  close(ends[1]);
  return mapped;
}

/// The VmFlags of the mapping that holds `address`, by /proc/self/smaps, with a space on both
/// sides; empty where the kernel does not say (no CONFIG_PROC_PAGE_MONITOR).
/// "dd": left out of core dumps, "dc": left out of children.
inline std::string vm_flags(const void* address) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream smaps("/proc/self/smaps");
  std::string line;
  bool inside = false;
  while (std::getline(smaps, line)) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2) {
      inside = begin <= wanted && wanted < end;
    } else if (inside && line.starts_with("VmFlags:")) {
      return line.substr(8) + " ";
    }
  }
  return {};
}

}  // namespace penstock::testing
