#include "io/request_book.hpp"

#include <algorithm>
#include <ctime>

#include <fmt/format.h>

#include "io/section.hpp"

namespace penstock {

namespace {

constexpr std::uint64_t kFramePageBytes = 2U << 20;

}  // namespace

std::uint64_t steady_now_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

RequestBook::RequestBook(const QueueOptions& options, std::uint32_t pieces)
    : piece_bytes_(std::max<std::uint64_t>(options.piece_bytes, kPageBytes)),
      slots_(kRequests + kReserve),
      links_(slots_.size(), kNoIndex),
      lanes_(kDrives, DriveLanes(links_, options, pieces)) {
  drives_.reserve(kDrives);
  free_.reserve(slots_.size());
  for (std::size_t i = slots_.size(); i-- > 0;) free_.push_back(static_cast<std::uint32_t>(i));
}

std::uint32_t RequestBook::lanes_of(std::uint64_t drive) noexcept {
  const auto known = std::find(drives_.begin(), drives_.end(), drive);
  if (known != drives_.end()) return static_cast<std::uint32_t>(known - drives_.begin());
  if (drives_.size() == kDrives) return kDrives - 1;
  drives_.push_back(drive);
  return static_cast<std::uint32_t>(drives_.size() - 1);
}

void RequestBook::add(const IoRequest& request, PosixFilePtr file, std::uint64_t now_ns) noexcept {
  const std::uint32_t index = free_.back();
  free_.pop_back();
  Slot& slot = slots_[index];
  slot = Slot{};
  slot.request = request;
  slot.file = std::move(file);
  slot.drive = lanes_of(slot.file->drive());
  slot.submitted_ns = now_ns;
  slot.older = newest_;
  (newest_ == kNoIndex ? oldest_ : slots_[newest_].newer) = index;
  newest_ = index;
  ++in_flight_;
  lanes_[slot.drive].push(request.op, request.io_class, index);
}

std::uint64_t RequestBook::piece_length(const Slot& slot) const noexcept {
  const std::uint64_t align = slot.file->alignment_bytes();
  const std::uint64_t unit = std::max(piece_bytes_ / align * align, align);
  const auto address = reinterpret_cast<std::uintptr_t>(slot.request.memory) + slot.handed_out;
  const std::uint64_t to_boundary = kFramePageBytes - address % kFramePageBytes;
  return std::min({unit, to_boundary, slot.request.bytes - slot.handed_out});
}

std::optional<Piece> RequestBook::next_piece() noexcept {
  const auto length = [this](std::uint32_t index) { return piece_length(slots_[index]); };
  for (std::size_t i = 0; i < drives_.size(); ++i) {
    const std::size_t drive = (turn_ + i) % drives_.size();
    DriveLanes& lanes = lanes_[drive];
    const std::optional<IoOp> op = lanes.choose(length);
    if (!op) continue;
    // A drive keeps its turn for a while, so that adjacent pieces reach the kernel together.
    if (i != 0) turn_ = drive;
    return hand_out(lanes, *op);
  }
  return std::nullopt;
}

Piece RequestBook::hand_out(DriveLanes& lanes, IoOp op) noexcept {
  const std::uint32_t index = lanes.front(op);
  Slot& slot = slots_[index];
  const std::uint64_t bytes = piece_length(slot);
  const Piece piece{index,
                    slot.file.get(),
                    slot.request.io_class,
                    slot.request.memory + slot.handed_out,
                    slot.request.offset_bytes + slot.handed_out,
                    slot.handed_out,
                    Transfer{op, bytes}};
  slot.handed_out += bytes;
  ++slot.pieces;
  lanes.sent(op, bytes, slot.handed_out == slot.request.bytes, steady_now_ns());
  return piece;
}

void RequestBook::take_from_lane(std::uint32_t index) noexcept {
  const Slot& slot = slots_[index];
  lanes_[slot.drive].remove(slot.request.op, slot.request.io_class, index);
}

std::optional<IoCompletion> RequestBook::finish(const Piece& piece, TransferEnd end) noexcept {
  Slot& slot = slots_[piece.slot];
  lanes_[slot.drive].landed(slot.request.op, piece.transfer.bytes, steady_now_ns());
  --slot.pieces;
  slot.retries += piece.transfer.retries;
  stats_.retries += piece.transfer.retries;
  stats_.short_transfers += piece.transfer.shorts;
  stats_.direct_refused += end.direct_refused;
  if (end.code != Errc::kOk) {
    const bool waiting = slot.code == Errc::kOk && slot.handed_out < slot.request.bytes;
    if (waiting) take_from_lane(piece.slot);
    const std::uint64_t at = piece.request_offset + piece.transfer.done;
    if (slot.code == Errc::kOk || at < slot.fail_at) {  // the first failure by place is reported
      slot.code = end.code;
      slot.sys_errno = end.sys_errno;
      slot.fail_at = at;
    }
  }
  const bool waits = slot.code == Errc::kOk && slot.handed_out < slot.request.bytes;
  if (slot.pieces != 0 || waits) return std::nullopt;
  return this->end(piece.slot);
}

std::optional<IoCompletion> RequestBook::drop_one(Errc code, int sys_errno) noexcept {
  // Rare and bounded by the table: walk from the oldest.
  for (std::uint32_t index = oldest_; index != kNoIndex; index = slots_[index].newer) {
    Slot& slot = slots_[index];
    if (slot.handed_out != 0 || slot.code != Errc::kOk) continue;
    take_from_lane(index);
    slot.code = code;
    slot.sys_errno = sys_errno;
    return end(index);
  }
  return std::nullopt;
}

IoCompletion RequestBook::end(std::uint32_t index) noexcept {
  Slot& slot = slots_[index];
  const IoRequest& request = slot.request;
  const bool good = slot.code == Errc::kOk;
  const IoCompletion completion{request.cookie, slot.code, slot.sys_errno,
                                good ? request.bytes : slot.fail_at, slot.retries};
  if (good) {
    (request.op == IoOp::kRead ? stats_.reads : stats_.writes) += 1;
    (request.op == IoOp::kRead ? stats_.read_bytes : stats_.write_bytes) += request.bytes;
  } else if (slot.code != Errc::kCancelled) {
    ++stats_.errors;
  }
  (slot.older == kNoIndex ? oldest_ : slots_[slot.older].newer) = slot.newer;
  (slot.newer == kNoIndex ? newest_ : slots_[slot.newer].older) = slot.older;
  slot.file = nullptr;
  free_.push_back(index);
  return completion;
}

IoStats RequestBook::stats(std::uint64_t now_ns) const noexcept {
  IoStats stats = stats_;
  stats.in_flight_requests = in_flight_;
  if (oldest_ != kNoIndex) stats.oldest_in_flight_ns = now_ns - slots_[oldest_].submitted_ns;
  return stats;
}

std::size_t RequestBook::drive_stats(std::span<DriveStats> into,
                                     std::uint64_t now_ns) const noexcept {
  const std::size_t count = std::min(into.size(), drives_.size());
  for (std::size_t i = 0; i < count; ++i) {
    into[i] = lanes_[i].stats(now_ns);
    into[i].drive = drives_[i];
  }
  // Newest first, so that the oldest of each drive is what stays.
  for (std::uint32_t index = newest_; index != kNoIndex; index = slots_[index].older) {
    const Slot& slot = slots_[index];
    if (slot.drive < count) into[slot.drive].oldest_in_flight_ns = now_ns - slot.submitted_ns;
  }
  return drives_.size();
}

std::string RequestBook::describe(std::uint64_t now_ns) const {
  return fmt::format("{} requests are still in flight, the oldest for {} ms", in_flight_,
                     stats(now_ns).oldest_in_flight_ns / 1'000'000);
}

}  // namespace penstock
