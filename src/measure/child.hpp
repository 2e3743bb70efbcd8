#pragma once

/// Runs what may hang in a child process.
///
/// A call on a dead network drive cannot be interrupted, and a process with a thread inside one
/// does not end. A child can be left behind: it ends when its call does.
/// Owner:   a child that does not end in time is sent SIGKILL and no longer waited for.
/// Threads: the caller may have others. The body runs in a fork of the process, so it must make
///          system calls and touch plain memory only: no locks, no allocation. No file is open in
///          it.
/// Errors:  none; the end is a value.

#include <cstdint>

namespace penstock {

enum class ChildEnd : std::uint8_t {
  kDone,
  kLate,       ///< not within the limit
  kDied,       ///< ended by a signal
  kNotStarted  ///< the system has no process or descriptor left
};

/// Waits at most `limit_ns` for body(context). What the body leaves must be in shared memory.
[[nodiscard]] ChildEnd run_in_child(std::uint64_t limit_ns, void (*body)(void* context),
                                    void* context) noexcept;

}  // namespace penstock
