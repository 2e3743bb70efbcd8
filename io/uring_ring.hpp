#pragma once

/// Setting up a ring: the best the kernel grants, or the reason why it grants none.

#include <liburing.h>

#include <string>

#include "base/result.hpp"

namespace penstock {

/// Initialises `ring` for the calling thread alone; returns what it got, in words. The caller ends
/// it with io_uring_queue_exit(). kUnsupported carries cause and remedy.
Result<std::string> open_uring(io_uring& ring, unsigned entries);

}  // namespace penstock
