#pragma once

/// The pieces an io_uring has been given, named by index and generation.
///
/// A completion carries only 64 bits. The generation tells a completion of the piece that is in a
/// place now from a late or invented one of an earlier piece, which must never end it.
/// Threads: one (the I/O thread).

#include <cstdint>
#include <vector>

#include "io/request_book.hpp"

namespace penstock {

class PieceTable {
 public:
  explicit PieceTable(std::uint32_t capacity) : places_(capacity) {
    for (std::uint32_t i = capacity; i-- > 0;) free_.push_back(i);
  }

  [[nodiscard]] bool full() const noexcept { return free_.empty(); }
  [[nodiscard]] std::size_t used() const noexcept { return places_.size() - free_.size(); }

  /// The name of the piece, for a submission's user data; never 0.
  std::uint64_t put(const Piece& piece) noexcept {
    const std::uint32_t index = free_.back();
    free_.pop_back();
    places_[index].piece = piece;
    places_[index].used = true;
    return name(index);
  }

  /// The piece of a name, or null when the name is unknown or out of date.
  [[nodiscard]] Piece* find(std::uint64_t name) noexcept {
    const auto index = static_cast<std::uint32_t>(name);
    if (index >= places_.size() || !places_[index].used || this->name(index) != name) {
      return nullptr;
    }
    return &places_[index].piece;
  }

  void release(std::uint64_t name) noexcept {
    const auto index = static_cast<std::uint32_t>(name);
    places_[index].used = false;
    // Generations stay below 2^31, so no name collides with the reserved user data of the ring.
    places_[index].generation = places_[index].generation % 0x7FFFFFFF + 1;
    free_.push_back(index);
  }

 private:
  struct Place {
    Piece piece;
    std::uint32_t generation = 1;
    bool used = false;
  };
  [[nodiscard]] std::uint64_t name(std::uint32_t index) const noexcept {
    return std::uint64_t{places_[index].generation} << 32 | index;
  }

  std::vector<Place> places_;
  std::vector<std::uint32_t> free_;
};

}  // namespace penstock
