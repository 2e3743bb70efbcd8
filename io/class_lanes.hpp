#pragma once

/// Which waiting request goes next: classes in falling urgency, with ageing.
///
/// Invariants
///   1. An index is in at most one lane of at most one ClassLanes, in arrival order.
///   2. A lane that has been passed over kPatience times in a row while it had work goes next, so
///      no class starves, whatever the others submit.
/// No allocation: the links live in a table of the owner, which has a place for every index and may
/// be shared by several ClassLanes. No threads: the owner locks.

#include <array>
#include <cstdint>
#include <vector>

#include "io/storage_queue.hpp"

namespace penstock {

inline constexpr std::uint32_t kNoIndex = ~std::uint32_t{0};

class ClassLanes {
 public:
  static constexpr std::uint32_t kPatience = 16;

  /// `links` outlives this; it may grow.
  explicit ClassLanes(std::vector<std::uint32_t>& links) : links_(&links) {}

  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  [[nodiscard]] std::uint32_t size() const noexcept { return count_; }

  void push(IoClass io_class, std::uint32_t index) noexcept {
    Lane& lane = lanes_[static_cast<std::size_t>(io_class)];
    next(index) = kNoIndex;
    if (lane.head == kNoIndex) {
      lane.head = index;
    } else {
      next(lane.tail) = index;
    }
    lane.tail = index;
    ++count_;
  }

  /// The index whose turn it is, or kNoIndex; it stays where it is until pop().
  [[nodiscard]] std::uint32_t front() const noexcept {
    const std::size_t lane = choose();
    return lane == lanes_.size() ? kNoIndex : lanes_[lane].head;
  }

  /// The class of front(); there is one.
  [[nodiscard]] IoClass front_class() const noexcept { return static_cast<IoClass>(choose()); }

  /// Records that front() was served once; it keeps its place (a request of many pieces).
  void served() noexcept { age(choose()); }

  /// Takes an index out wherever it waits (rare: a request that failed half-way).
  void remove(IoClass io_class, std::uint32_t index) noexcept {
    Lane& lane = lanes_[static_cast<std::size_t>(io_class)];
    std::uint32_t before = kNoIndex;
    for (std::uint32_t i = lane.head; i != kNoIndex; before = i, i = next(i)) {
      if (i != index) continue;
      (before == kNoIndex ? lane.head : next(before)) = next(i);
      if (lane.tail == i) lane.tail = before;
      --count_;
      return;
    }
  }

  /// Removes front().
  void pop() noexcept {
    const std::size_t chosen = choose();
    if (chosen == lanes_.size()) return;
    age(chosen);
    Lane& lane = lanes_[chosen];
    lane.head = next(lane.head);
    if (lane.head == kNoIndex) lane.tail = kNoIndex;
    --count_;
  }

 private:
  struct Lane {
    std::uint32_t head = kNoIndex, tail = kNoIndex;
    std::uint32_t passed_over = 0;
  };

  [[nodiscard]] std::uint32_t& next(std::uint32_t index) const noexcept { return (*links_)[index]; }

  [[nodiscard]] std::size_t choose() const noexcept {
    std::size_t first = lanes_.size(), starved = lanes_.size();
    for (std::size_t i = lanes_.size(); i-- > 0;) {
      if (lanes_[i].head == kNoIndex) continue;
      first = i;
      if (lanes_[i].passed_over >= kPatience &&
          (starved == lanes_.size() || lanes_[i].passed_over > lanes_[starved].passed_over)) {
        starved = i;
      }
    }
    return starved != lanes_.size() ? starved : first;
  }

  void age(std::size_t chosen) noexcept {
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      Lane& lane = lanes_[i];
      lane.passed_over = i == chosen || lane.head == kNoIndex ? 0 : lane.passed_over + 1;
    }
  }

  std::array<Lane, kIoClassCount> lanes_;
  std::vector<std::uint32_t>* links_;
  std::uint32_t count_ = 0;
};

}  // namespace penstock
