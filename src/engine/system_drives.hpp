#pragma once

/// The drives of this machine, as the storage and its queue want to know them.
///
/// Threads: pure functions of /sys. Errors: none; what is not known is treated as one drive.

#include <string>
#include <vector>

#include "io/storage.hpp"

namespace penstock {

/// Tells drives apart by what lies under a filesystem: two partitions are on one drive.
[[nodiscard]] DriveNamer system_drive_namer();

/// The directory, or what is above it where it is not there yet.
[[nodiscard]] std::string existing_place(const std::string& directory);

/// The NUMA nodes of the drives of these directories, each with its CPUs; empty where there is one
/// node, or nothing is known. A directory that is not there yet counts as the one above it.
[[nodiscard]] std::vector<IoNode> system_io_nodes(const std::vector<std::string>& directories);

}  // namespace penstock
