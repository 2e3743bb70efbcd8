#pragma once

/// What waits for one drive, and what may go to it next.
///
/// A drive has a credit of bytes in flight for each direction: a few MiB fill it, more only makes
/// everything wait. Within a direction classes decide (class_lanes.hpp). Between the directions the
/// planned share of reads does: elevators prefer reads, and more of them in flight starve writes.
/// Invariants
///   1. in_flight_bytes of a direction is the sum of its pieces in flight; at most the credit (with
///      demands one piece more), except for a lone piece larger than that.
///   2. With a share, while both directions have work, neither gets ahead of it by more than the
///      lead (a demand by more than the urgent lead). The one that is behind is never held back for
///      it, so something can always go once nothing is in flight.
/// No allocation. Threads: none; the owner locks.

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "io/class_lanes.hpp"
#include "io/storage.hpp"

namespace penstock {

class DriveLanes {
 public:
  static constexpr std::uint64_t kLeadBytes = 2U << 20;
  static constexpr std::uint64_t kUrgentLeadBytes = 64U << 20;

  /// `pieces`: most that may be in flight; 0: as many as the credits allow.
  DriveLanes(std::vector<std::uint32_t>& links, const QueueOptions& options, std::uint32_t pieces)
      : lanes_{ClassLanes(links), ClassLanes(links)},
        credit_bytes_{options.read_credit_bytes, options.write_credit_bytes},
        read_share_(options.read_share <= 0.0 ? 0.0 : std::clamp(options.read_share, 0.05, 0.95)),
        pieces_left_(pieces == 0 ? ~std::uint32_t{0} : pieces) {}

  void push(IoOp op, IoClass io_class, std::uint32_t index) noexcept {
    lanes(op).push(io_class, index);
  }
  void remove(IoOp op, IoClass io_class, std::uint32_t index) noexcept {
    lanes(op).remove(io_class, index);
  }

  /// Offers the front request of each direction, the one whose turn it is first, to
  /// `bytes_of(index)`, which says how long its next piece is. Returns the direction that may send
  /// that piece now, or nothing.
  template <class BytesOf>
  [[nodiscard]] std::optional<IoOp> choose(BytesOf bytes_of) const noexcept {
    if (pieces_left_ == 0) return std::nullopt;
    const IoOp first = turn();
    for (const IoOp op : {first, other(first)}) {
      const std::uint32_t index = lanes(op).front();
      if (index == kNoIndex || is_ahead(op)) continue;
      const std::uint64_t flying = in_flight_bytes_[at(op)];
      // A demand may go one piece beyond, so that it does not wait until a prefetch has landed.
      const bool urgent = lanes(op).front_class() == IoClass::kDemand;
      const std::uint64_t after = flying + (urgent ? 0 : bytes_of(index));
      if (flying == 0 || after <= credit_bytes_[at(op)]) return op;
    }
    return std::nullopt;
  }
  [[nodiscard]] std::uint32_t front(IoOp op) const noexcept { return lanes(op).front(); }

  /// A piece of front(op) goes to the drive; `last`: nothing of its request is left to send.
  void sent(IoOp op, std::uint64_t bytes, bool last, std::uint64_t now_ns = 0) noexcept {
    if (in_flight_bytes_[0] + in_flight_bytes_[1] == 0) busy_since_ns_ = now_ns;
    in_flight_bytes_[at(op)] += bytes;
    --pieces_left_;
    const bool contended = !lanes(other(op)).empty();
    last ? lanes(op).pop() : lanes(op).served();
    last_ = op;
    const auto length = static_cast<double>(bytes);
    lead_ += op == IoOp::kRead ? length * (1.0 - read_share_) : -length * read_share_;
    if (!contended) lead_ = std::clamp(lead_, -kLead, kLead);  // nobody was kept waiting
  }
  void landed(IoOp op, std::uint64_t bytes, std::uint64_t now_ns = 0) noexcept {
    in_flight_bytes_[at(op)] -= bytes;
    ++pieces_left_;
    (op == IoOp::kRead ? stats_.read_bytes : stats_.write_bytes) += bytes;
    if (in_flight_bytes_[0] + in_flight_bytes_[1] == 0) stats_.busy_ns += now_ns - busy_since_ns_;
  }
  /// Without number and age, which the owner knows.
  [[nodiscard]] DriveStats stats(std::uint64_t now_ns) const noexcept {
    DriveStats stats = stats_;
    if (in_flight_bytes_[0] + in_flight_bytes_[1] != 0) stats.busy_ns += now_ns - busy_since_ns_;
    return stats;
  }

 private:
  static constexpr auto kLead = static_cast<double>(kLeadBytes);
  static constexpr auto kUrgentLead = static_cast<double>(kUrgentLeadBytes);

  static constexpr std::size_t at(IoOp op) noexcept { return static_cast<std::size_t>(op); }
  static constexpr IoOp other(IoOp op) noexcept {
    return op == IoOp::kRead ? IoOp::kWrite : IoOp::kRead;
  }
  [[nodiscard]] ClassLanes& lanes(IoOp op) noexcept { return lanes_[at(op)]; }
  [[nodiscard]] const ClassLanes& lanes(IoOp op) const noexcept { return lanes_[at(op)]; }
  [[nodiscard]] bool shared() const noexcept { return read_share_ > 0.0; }

  [[nodiscard]] IoOp turn() const noexcept {
    if (!shared()) return other(last_);
    return lead_ > 0.0 ? IoOp::kWrite : IoOp::kRead;
  }
  [[nodiscard]] bool is_ahead(IoOp op) const noexcept {
    if (!shared() || lanes(other(op)).empty()) return false;
    const double lead = op == IoOp::kRead ? lead_ : -lead_;
    return lead > (lanes(op).front_class() == IoClass::kDemand ? kUrgentLead : kLead);
  }

  std::array<ClassLanes, 2> lanes_;  // by IoOp
  std::array<std::uint64_t, 2> credit_bytes_;
  std::array<std::uint64_t, 2> in_flight_bytes_{0, 0};
  double read_share_;  // 0: reads and writes take turns
  double lead_ = 0.0;  // bytes by which reads are ahead of their share
  std::uint32_t pieces_left_;
  std::uint64_t busy_since_ns_ = 0;
  DriveStats stats_;
  IoOp last_ = IoOp::kWrite;
};

}  // namespace penstock
