#pragma once

/// Ctrl-C: the first asks for an orderly end, the second leaves at once.
///
/// Leaving at once is always safe: a store returns to its last commit. SIGTERM counts like Ctrl-C.
/// SIGPIPE and SIGXFSZ are ignored, so that a closed pipe or a file size limit is an error that a
/// write reports and not the end of the process.

#include <atomic>

namespace penstock {

/// Installs the handlers. Call once, before threads are started.
void install_signal_handlers() noexcept;

/// Set by the first SIGINT or SIGTERM.
[[nodiscard]] const std::atomic<bool>& stop_requested() noexcept;

}  // namespace penstock
