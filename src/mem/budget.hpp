#pragma once

/// A hard limit on the bytes of one tier, and who holds them.
///
/// Everything of a size that matters is taken from a budget before it is allocated, so a plan that
/// does not fit is refused early, with the numbers, instead of by the kernel's memory killer.
///
/// Owner:   the budget outlives its reservations.
/// Threads: any.
/// Errors:  kNoMemory names the tier, what was asked, what is in use and the limit.

#include <cstdint>
#include <list>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace penstock {

class ByteBudget;

/// Bytes taken from a budget until this dies.
class Reservation {
 public:
  Reservation() = default;
  // Move-only: the same bytes must not be returned twice.
  Reservation(Reservation&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)), take_(other.take_) {}
  Reservation& operator=(Reservation&& other) noexcept {
    if (this != &other) {
      release();
      budget_ = std::exchange(other.budget_, nullptr);
      take_ = other.take_;
    }
    return *this;
  }
  ~Reservation() { release(); }

  void release() noexcept;
  [[nodiscard]] std::uint64_t bytes() const noexcept;
  explicit operator bool() const noexcept { return budget_ != nullptr; }

 private:
  friend class ByteBudget;
  struct Take {
    std::string what;
    std::uint64_t bytes;
  };
  using Position = std::list<Take>::iterator;
  Reservation(ByteBudget& budget, Position take) : budget_(&budget), take_(take) {}

  ByteBudget* budget_ = nullptr;
  Position take_{};
};

class ByteBudget {
 public:
  /// `tier` appears in messages: "host", "device".
  ByteBudget(std::string tier, std::uint64_t limit_bytes)
      : tier_(std::move(tier)), limit_bytes_(limit_bytes) {}
  ByteBudget(const ByteBudget&) = delete;  // reservations point here
  ByteBudget& operator=(const ByteBudget&) = delete;

  /// All of `bytes` or nothing. `what` is kept for messages and used_by().
  [[nodiscard]] Result<Reservation> take(std::string_view what, std::uint64_t bytes);

  [[nodiscard]] const std::string& tier() const noexcept { return tier_; }
  [[nodiscard]] std::uint64_t limit_bytes() const noexcept { return limit_bytes_; }
  [[nodiscard]] std::uint64_t used_bytes() const noexcept;
  [[nodiscard]] std::uint64_t free_bytes() const noexcept;
  [[nodiscard]] std::uint64_t peak_bytes() const noexcept;

  /// The live takes, oldest first.
  [[nodiscard]] std::vector<std::pair<std::string, std::uint64_t>> used_by() const;

 private:
  friend class Reservation;
  void give_back(Reservation::Position take) noexcept;

  const std::string tier_;
  const std::uint64_t limit_bytes_;
  mutable std::mutex mutex_;  // guards all below; used_bytes_ = sum over takes_ <= limit_bytes_
  std::list<Reservation::Take> takes_;
  std::uint64_t used_bytes_ = 0;
  std::uint64_t peak_bytes_ = 0;
};

}  // namespace penstock
