#pragma once

/// Page-aligned memory for blocking transfers of headers and tools. Not for the hot path, which
/// uses arenas.

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>

#include "io/section.hpp"

namespace penstock {

class PageBuffer {
 public:
  /// At least `bytes`, rounded up to whole pages, zeroed. empty() when memory is short.
  explicit PageBuffer(std::uint64_t bytes) : bytes_(round_up(bytes, kPageBytes)) {
    if (bytes_ == 0) bytes_ = kPageBytes;
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kPageBytes, bytes_)));
    if (memory_ == nullptr) bytes_ = 0;
    for (std::byte& byte : span()) byte = std::byte{0};
  }
  [[nodiscard]] bool empty() const { return bytes_ == 0; }
  [[nodiscard]] std::span<std::byte> span() { return {memory_.get(), bytes_}; }
  [[nodiscard]] std::span<std::byte> first(std::uint64_t bytes) { return span().first(bytes); }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::uint64_t bytes_;
};

}  // namespace penstock
