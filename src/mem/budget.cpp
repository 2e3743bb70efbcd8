#include "mem/budget.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "base/units.hpp"

namespace penstock {

void Reservation::release() noexcept {
  if (ByteBudget* budget = std::exchange(budget_, nullptr)) budget->give_back(take_);
}

std::uint64_t Reservation::bytes() const noexcept {
  return budget_ == nullptr ? 0 : take_->bytes;
}

Result<Reservation> ByteBudget::take(std::string_view what, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t free = limit_bytes_ - used_bytes_;
  if (bytes > free) {
    return make_error(
        Errc::kNoMemory,
        fmt::format("{} bytes ({}) of {} memory for \"{}\": {} of the limit of {} ({}) are in use, "
                    "so {} ({}) are missing; raise the {} limit or ask for less",
                    bytes, format_bytes(bytes), tier_, what, used_bytes_, limit_bytes_,
                    format_bytes(limit_bytes_), bytes - free, format_bytes(bytes - free), tier_));
  }
  takes_.push_back(Reservation::Take{std::string(what), bytes});
  used_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, used_bytes_);
  return Reservation(*this, std::prev(takes_.end()));
}

void ByteBudget::give_back(Reservation::Position take) noexcept {
  const std::lock_guard lock(mutex_);
  used_bytes_ -= take->bytes;
  takes_.erase(take);
}

std::uint64_t ByteBudget::used_bytes() const noexcept {
  const std::lock_guard lock(mutex_);
  return used_bytes_;
}

std::uint64_t ByteBudget::free_bytes() const noexcept {
  const std::lock_guard lock(mutex_);
  return limit_bytes_ - used_bytes_;
}

std::uint64_t ByteBudget::peak_bytes() const noexcept {
  const std::lock_guard lock(mutex_);
  return peak_bytes_;
}

std::vector<std::pair<std::string, std::uint64_t>> ByteBudget::used_by() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<std::string, std::uint64_t>> result;
  for (const Reservation::Take& take : takes_) result.emplace_back(take.what, take.bytes);
  return result;
}

}  // namespace penstock
