#pragma once

/// Counts bytes and operations by link, tensor class and reason, per step and in total.
///
/// "Bytes are the product": these counters are what a plan's predictions are compared with, so
/// every transfer is counted once, where its completion is seen, with the reason it was needed.
///
/// Threads: add() from any thread, lock-free. begin_step(), snapshot() and total() from any
///          thread. An add() that races begin_step() counts in one of the two steps; totals never
///          lose it.
/// Memory:  about 150 KiB, all at construction; add() and begin_step() allocate nothing.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <vector>

namespace penstock {

enum class Link : std::uint8_t {
  kDriveRead,
  kDriveWrite,
  kHostToDevice,
  kDeviceToHost,
  kRankSend,
  kRankReceive,
};
inline constexpr std::size_t kLinks = 6;

enum class TensorClass : std::uint8_t {
  kHi,     ///< what forward and backward read
  kState,  ///< lo, m, v
  kGradient,
  kOther,  ///< activations, manifests, trainer blobs
};
inline constexpr std::size_t kTensorClasses = 4;

enum class TrafficKind : std::uint8_t {
  kDemand,            ///< the normal course of a training step
  kFinalFlush,        ///< a wait for everything at the end of a run or an explicit commit
  kCommitOfRamHomed,  ///< written only so that a commit holds what is at home in RAM
  kSpill,             ///< did not fit: out to a lower tier and back within the step
  kTiedReuse,         ///< further uses of a tied tensor
  kInitial,           ///< the first version of a store, and measuring its drive
  kTee,               ///< a copy of a commit in another store
};
inline constexpr std::size_t kTrafficKinds = 7;

[[nodiscard]] std::string_view name_of(Link link) noexcept;
[[nodiscard]] std::string_view name_of(TensorClass tensor_class) noexcept;
[[nodiscard]] std::string_view name_of(TrafficKind kind) noexcept;

struct Traffic {
  std::uint64_t bytes = 0;
  std::uint64_t operations = 0;
  friend bool operator==(const Traffic&, const Traffic&) = default;
};

/// One Traffic for every (link, class, kind): plain numbers.
class TrafficTable {
 public:
  static constexpr std::size_t kCells = kLinks * kTensorClasses * kTrafficKinds;

  [[nodiscard]] static constexpr std::size_t index_of(Link link, TensorClass tensor_class,
                                                      TrafficKind kind) noexcept {
    return (static_cast<std::size_t>(link) * kTensorClasses +
            static_cast<std::size_t>(tensor_class)) *
               kTrafficKinds +
           static_cast<std::size_t>(kind);
  }
  [[nodiscard]] const Traffic& at(Link link, TensorClass tensor_class,
                                  TrafficKind kind) const noexcept {
    return cells_[index_of(link, tensor_class, kind)];
  }
  [[nodiscard]] Traffic& cell(std::size_t index) noexcept { return cells_[index]; }
  [[nodiscard]] Traffic of(Link link) const noexcept;
  [[nodiscard]] Traffic of(Link link, TensorClass tensor_class) const noexcept;
  [[nodiscard]] Traffic of(Link link, TrafficKind kind) const noexcept;

 private:
  std::array<Traffic, kCells> cells_{};
};

struct StepTraffic {
  std::uint64_t step = 0;
  TrafficTable traffic;
};

struct CounterSnapshot {
  StepTraffic current;              ///< the step under way, so far
  TrafficTable total;               ///< since construction, current included
  std::vector<StepTraffic> recent;  ///< finished steps, oldest first, at most kRecentSteps
};

class Counters {
 public:
  static constexpr std::size_t kRecentSteps = 64;

  Counters();
  Counters(const Counters&) = delete;
  Counters& operator=(const Counters&) = delete;

  void add(Link link, TensorClass tensor_class, TrafficKind kind, std::uint64_t bytes,
           std::uint64_t operations = 1) noexcept;

  /// Closes the current step (the first is 0) and starts counting for `step`.
  void begin_step(std::uint64_t step) noexcept;

  [[nodiscard]] CounterSnapshot snapshot() const;

  /// Since construction; allocates nothing.
  [[nodiscard]] TrafficTable total() const noexcept;

 private:
  struct Cell {
    std::atomic<std::uint64_t> bytes{0};
    std::atomic<std::uint64_t> operations{0};
  };

  std::array<Cell, TrafficTable::kCells> current_;

  mutable std::mutex mutex_;  // guards all below; total = closed_ + current_ at any moment
  TrafficTable closed_;       // sum of all finished steps
  std::uint64_t step_ = 0;
  std::uint64_t finished_ = 0;       // finished steps since construction
  std::vector<StepTraffic> recent_;  // ring of kRecentSteps; finished step i is at i % kRecentSteps
};

}  // namespace penstock
