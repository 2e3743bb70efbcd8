#pragma once

/// Several queues as one: each serves the drives of a NUMA node, with an I/O thread close to them.

#include <memory>
#include <vector>

#include "io/posix_file.hpp"

namespace penstock {

/// `queues[i]` serves the drives of `nodes[i]`; drives no node names go to the first. The sink is
/// called from the I/O threads of all.
std::unique_ptr<StorageQueue> join_queues(std::shared_ptr<PosixFileTable> files,
                                          std::vector<IoNode> nodes,
                                          std::vector<std::unique_ptr<StorageQueue>> queues);

}  // namespace penstock
