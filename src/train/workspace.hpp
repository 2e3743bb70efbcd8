#pragma once

/// Carves arrays out of one span, or, over no memory, only adds up what they need.
///
/// The same code lays out and measures, so the two cannot disagree. Arrays start at multiples of
/// 64 bytes from the base, which is expected to be aligned at least as well.

#include <cstddef>
#include <cstdint>

namespace penstock {

/// `count` elements of f32 rounded up to whole 64 bytes.
[[nodiscard]] constexpr std::int64_t padded_elements(std::uint64_t count) {
  return static_cast<std::int64_t>((count + 15) / 16 * 16);
}

class Carver {
 public:
  static constexpr std::size_t kAlignBytes = 64;

  explicit Carver(std::byte* base) : base_(base) {}

  template <class T = float>
  T* take(std::int64_t count) {
    return static_cast<T*>(take_bytes(static_cast<std::size_t>(count) * sizeof(T)));
  }

  void* take_bytes(std::size_t bytes) {
    void* const start = base_ == nullptr ? nullptr : base_ + used_;
    used_ += (bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes;
    return start;
  }

  [[nodiscard]] std::size_t used_bytes() const noexcept { return used_; }

 private:
  std::byte* base_;
  std::size_t used_ = 0;
};

}  // namespace penstock
