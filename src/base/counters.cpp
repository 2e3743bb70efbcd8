#include "base/counters.hpp"

#include <algorithm>

namespace penstock {
namespace {

template <std::size_t count>
std::string_view name_at(const std::array<std::string_view, count>& names, std::size_t index) {
  return index < count ? names[index] : "unknown";
}

void accumulate(Traffic& sum, const Traffic& part) noexcept {
  sum.bytes += part.bytes;
  sum.operations += part.operations;
}

}  // namespace

std::string_view name_of(Link link) noexcept {
  static constexpr std::array<std::string_view, kLinks> kNames = {
      "drive_read", "drive_write", "host_to_device", "device_to_host", "rank_send", "rank_receive"};
  return name_at(kNames, static_cast<std::size_t>(link));
}

std::string_view name_of(TensorClass tensor_class) noexcept {
  static constexpr std::array<std::string_view, kTensorClasses> kNames = {"hi", "state", "gradient",
                                                                          "other"};
  return name_at(kNames, static_cast<std::size_t>(tensor_class));
}

std::string_view name_of(TrafficKind kind) noexcept {
  static constexpr std::array<std::string_view, kTrafficKinds> kNames = {
      "demand", "final_flush", "commit_of_ram_homed", "spill", "tied_reuse", "initial", "tee"};
  return name_at(kNames, static_cast<std::size_t>(kind));
}

Traffic TrafficTable::of(Link link) const noexcept {
  Traffic sum;
  const std::size_t first = index_of(link, TensorClass{}, TrafficKind{});
  for (std::size_t i = 0; i < kTensorClasses * kTrafficKinds; ++i) {
    accumulate(sum, cells_[first + i]);
  }
  return sum;
}

Traffic TrafficTable::of(Link link, TensorClass tensor_class) const noexcept {
  Traffic sum;
  const std::size_t first = index_of(link, tensor_class, TrafficKind{});
  for (std::size_t i = 0; i < kTrafficKinds; ++i) accumulate(sum, cells_[first + i]);
  return sum;
}

Traffic TrafficTable::of(Link link, TrafficKind kind) const noexcept {
  Traffic sum;
  for (std::size_t i = 0; i < kTensorClasses; ++i) {
    accumulate(sum, at(link, static_cast<TensorClass>(i), kind));
  }
  return sum;
}

Counters::Counters() : recent_(kRecentSteps) {}

void Counters::add(Link link, TensorClass tensor_class, TrafficKind kind, std::uint64_t bytes,
                   std::uint64_t operations) noexcept {
  // Relaxed: these are sums, nothing is published through them.
  Cell& cell = current_[TrafficTable::index_of(link, tensor_class, kind)];
  cell.bytes.fetch_add(bytes, std::memory_order_relaxed);
  cell.operations.fetch_add(operations, std::memory_order_relaxed);
}

void Counters::begin_step(std::uint64_t step) noexcept {
  const std::lock_guard lock(mutex_);
  StepTraffic& finished = recent_[finished_ % kRecentSteps];
  finished.step = step_;
  for (std::size_t i = 0; i < TrafficTable::kCells; ++i) {
    Traffic& cell = finished.traffic.cell(i);
    cell.bytes = current_[i].bytes.exchange(0, std::memory_order_relaxed);
    cell.operations = current_[i].operations.exchange(0, std::memory_order_relaxed);
    accumulate(closed_.cell(i), cell);
  }
  ++finished_;
  step_ = step;
}

CounterSnapshot Counters::snapshot() const {
  CounterSnapshot result;
  const std::lock_guard lock(mutex_);
  result.current.step = step_;
  result.total = closed_;
  for (std::size_t i = 0; i < TrafficTable::kCells; ++i) {
    Traffic& cell = result.current.traffic.cell(i);
    cell.bytes = current_[i].bytes.load(std::memory_order_relaxed);
    cell.operations = current_[i].operations.load(std::memory_order_relaxed);
    accumulate(result.total.cell(i), cell);
  }
  const std::uint64_t kept = std::min<std::uint64_t>(finished_, kRecentSteps);
  result.recent.reserve(kept);
  for (std::uint64_t i = finished_ - kept; i < finished_; ++i) {
    result.recent.push_back(recent_[i % kRecentSteps]);
  }
  return result;
}

TrafficTable Counters::total() const noexcept {
  const std::lock_guard lock(mutex_);
  TrafficTable result = closed_;
  for (std::size_t i = 0; i < TrafficTable::kCells; ++i) {
    accumulate(result.cell(i), Traffic{current_[i].bytes.load(std::memory_order_relaxed),
                                       current_[i].operations.load(std::memory_order_relaxed)});
  }
  return result;
}

}  // namespace penstock
