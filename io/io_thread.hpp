#pragma once

/// What an I/O thread is for the system: its name, where it runs, how urgent its transfers are.
///
/// Nothing here is necessary for right results, so what the system refuses is left as it was.
/// Threads: each function speaks of its calling thread.

#include <array>

#include "io/storage.hpp"

namespace penstock {

/// The system's I/O priority for each IoClass; 0: none of its own.
using IoPriorities = std::array<int, kIoClassCount>;

/// Names the calling thread, binds it to the CPUs of its node and asks for short turns, so that it
/// starts soon where others compute.
void settle_io_thread(const IoNode& node) noexcept;

/// Where the caller may (CAP_SYS_NICE), demands are of the real-time class; elsewhere what is not a
/// demand is of the idle class. The order is the same.
[[nodiscard]] IoPriorities io_priorities() noexcept;

/// Gives the calling thread's own transfers a priority; false: refused.
bool set_io_priority(int priority) noexcept;

/// "demands in the real-time class" or "what can wait in the idle class".
[[nodiscard]] const char* words_of(const IoPriorities& priorities) noexcept;

}  // namespace penstock
