#pragma once

/// Loops that move bytes and compute nothing that matters, to say what memory can do.
///
/// Memory: 64-byte aligned, lengths multiples of 256 bytes, no overlap.
/// Traffic of each, in bytes of one array: read 1; write 1; copy 2 (1 read, 1 written); update 5
/// (three arrays read, two of them written in place, as an optimizer does).
/// `bypass`: with stores that do not read the line first and do not stay in a cache.
/// Threads: reentrant; no state.

#include <cstddef>
#include <cstdint>

namespace penstock {

/// The result depends on every byte, so that no read can be left out.
std::uint64_t traffic_read(const std::byte* from, std::size_t bytes);
void traffic_write(std::byte* to, std::size_t bytes, std::uint64_t value, bool bypass);
void traffic_copy(std::byte* to, const std::byte* from, std::size_t bytes, bool bypass);
/// a ^= c, b ^= c.
void traffic_update(std::byte* a, std::byte* b, const std::byte* c, std::size_t bytes, bool bypass);

}  // namespace penstock
