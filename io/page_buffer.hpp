#pragma once

/// Page-aligned memory for blocking transfers of headers and tools. Not for the hot path, which
/// uses arenas.
///
/// Owner:   the buffer. Content: zero at first; weights and moments may pass through it, so it is
///          left out of children (fork) and of core dumps, and ends in a page that cannot be
///          touched.
/// Threads: none.

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "io/section.hpp"

namespace penstock {

class PageBuffer {
 public:
  /// At least `bytes`, rounded up to whole pages. empty() when memory is short.
  explicit PageBuffer(std::uint64_t bytes);
  PageBuffer(PageBuffer&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  PageBuffer& operator=(PageBuffer&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~PageBuffer();

  [[nodiscard]] bool empty() const { return bytes_ == 0; }
  [[nodiscard]] std::span<std::byte> span() { return {memory_, bytes_}; }
  [[nodiscard]] std::span<std::byte> first(std::uint64_t bytes) { return span().first(bytes); }

 private:
  std::byte* memory_ = nullptr;  // a mapping of bytes_ and a guard page
  std::uint64_t bytes_ = 0;
};

}  // namespace penstock
