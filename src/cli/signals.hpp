#pragma once

/// Ctrl-C: the first asks for an orderly end, the second leaves at once.
///
/// Leaving at once is always safe: a store returns to its last commit. SIGTERM counts like Ctrl-C.
/// A thread of its own waits for both, and every other blocks them: the matrix library's kernels
/// use the stack register for other ends, so a handler on their stack would write into their data.
/// SIGPIPE and SIGXFSZ are ignored, so that a closed pipe or a file size limit is an error that a
/// write reports and not the end of the process.

#include <atomic>

namespace penstock {

/// Call once, before threads are started: they inherit the mask.
void install_signal_handlers() noexcept;

/// Set by the first SIGINT or SIGTERM.
[[nodiscard]] const std::atomic<bool>& stop_requested() noexcept;

}  // namespace penstock
