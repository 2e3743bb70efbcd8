#pragma once

/// The right to touch the bytes of a frame, given back once, when the lease dies.
///
/// Owner:   whoever hands leases out; it must outlive them and knows each by its token.
/// Threads: a lease is used by one thread at a time and may die on another than it was born on.

#include <cstdint>
#include <utility>

#include "mem/frame.hpp"

namespace penstock {

enum class Access : std::uint8_t { kShared, kExclusive };

class Lease {
 public:
  /// Called exactly once for every non-empty lease.
  using Release = void (*)(void* owner, std::uint64_t token, Access access) noexcept;

  Lease() = default;  // empty: gives no right and releases nothing
  Lease(Frame frame, Access access, void* owner, std::uint64_t token, Release release) noexcept
      : frame_(frame), owner_(owner), token_(token), release_(release), access_(access) {}

  // Move-only: two leases with one token would be released twice.
  Lease(Lease&& other) noexcept
      : frame_(std::exchange(other.frame_, Frame{})),
        owner_(other.owner_),
        token_(other.token_),
        release_(std::exchange(other.release_, nullptr)),
        access_(other.access_) {}
  Lease& operator=(Lease&& other) noexcept {
    if (this != &other) {
      release();
      frame_ = std::exchange(other.frame_, Frame{});
      owner_ = other.owner_;
      token_ = other.token_;
      release_ = std::exchange(other.release_, nullptr);
      access_ = other.access_;
    }
    return *this;
  }
  ~Lease() { release(); }

  /// Gives the right back now; the lease is empty afterwards.
  void release() noexcept {
    frame_ = Frame{};
    if (const Release release = std::exchange(release_, nullptr)) release(owner_, token_, access_);
  }

  explicit operator bool() const noexcept { return release_ != nullptr; }
  [[nodiscard]] const Frame& frame() const noexcept { return frame_; }
  [[nodiscard]] std::uint64_t token() const noexcept { return token_; }
  [[nodiscard]] Access access() const noexcept { return access_; }

 private:
  Frame frame_;
  void* owner_ = nullptr;
  std::uint64_t token_ = 0;
  Release release_ = nullptr;
  Access access_ = Access::kShared;
};

}  // namespace penstock
