#pragma once

/// Copies between pinned host memory and CUDA devices, where there are any.
///
/// The driver's library is looked for when the program runs, so that one program serves machines
/// with and without it.
/// Threads: one.

#include <string>
#include <vector>

#include "measure/rounds.hpp"

namespace penstock {

/// Rows "copy host to device N" and back; where there is no driver or no device, a note instead.
void add_device_copy_cases(std::vector<BenchCase>& cases, std::vector<std::string>& notes);

}  // namespace penstock
