#pragma once

/// The bookkeeping of a queue over real files: requests, their pieces, credits, statistics.
///
/// A request is cut into pieces of at most piece_bytes that do not cross a 2 MiB boundary of
/// memory (physically contiguous pieces are what a drive likes), in order, as the lanes of its
/// drive allow (drive_lanes.hpp). Drives take turns.
/// Invariants
///   1. A request is waiting (in a lane) exactly while it has bytes that were not handed out and no
///      piece of it has failed.
///   2. It ends exactly once: when it waits no more and none of its pieces is in flight.
///   3. Ordinary threads never take the last kReserve free slots: those are for requests submitted
///      from inside completions, which must not wait for the queue they run on.
/// No allocation after construction. Threads: none; the owner holds its lock around every call.

#include <cstdint>
#include <optional>
#include <vector>

#include "io/drive_lanes.hpp"
#include "io/posix_file.hpp"

namespace penstock {

/// A contiguous part of a request, on its way to the kernel.
struct Piece {
  std::uint32_t slot = 0;
  PosixFile* file = nullptr;  // kept open by the request
  IoClass io_class = IoClass::kDemand;
  std::byte* memory = nullptr;
  std::uint64_t offset_bytes = 0;    ///< in the file
  std::uint64_t request_offset = 0;  ///< in the request
  Transfer transfer;
};

class RequestBook {
 public:
  static constexpr std::uint32_t kRequests = 16384;
  static constexpr std::uint32_t kReserve = 4096;
  /// Drives beyond these share the lanes of the last.
  static constexpr std::size_t kDrives = 64;

  /// `pieces`: most that may be on their way to one drive; 0: as many as the credits allow.
  explicit RequestBook(const QueueOptions& options, std::uint32_t pieces = 0);

  /// How many requests may be added now, by an ordinary thread or from inside a completion.
  [[nodiscard]] std::size_t room(bool from_completion) const noexcept {
    const std::size_t kept = from_completion ? 0 : kReserve;
    return free_.size() > kept ? free_.size() - kept : 0;
  }
  void add(const IoRequest& request, PosixFilePtr file, std::uint64_t now_ns) noexcept;

  /// The next piece to hand out, or nothing: no work, or no credit.
  std::optional<Piece> next_piece() noexcept;
  /// Books the end of a piece; the completion when that ends its request. The slot is free again,
  /// but the request counts as in flight until delivered().
  std::optional<IoCompletion> finish(const Piece& piece, TransferEnd end) noexcept;
  /// Ends one request the kernel has been given nothing of; nothing when there is none left.
  std::optional<IoCompletion> drop_one(Errc code, int sys_errno) noexcept;
  /// The sink has returned from a completion.
  void delivered() noexcept { --in_flight_; }

  /// An error that belongs to no request.
  void count_error() noexcept { ++stats_.errors; }
  /// A file whose piece goes on; those whose piece ends come with it.
  void count_direct_refused() noexcept { ++stats_.direct_refused; }

  [[nodiscard]] std::uint64_t in_flight() const noexcept { return in_flight_; }
  [[nodiscard]] IoStats stats(std::uint64_t now_ns) const noexcept;
  std::size_t drive_stats(std::span<DriveStats> into, std::uint64_t now_ns) const noexcept;
  /// "3 requests are still in flight, the oldest for 12 ms".
  [[nodiscard]] std::string describe(std::uint64_t now_ns) const;

 private:
  struct Slot {
    IoRequest request;
    PosixFilePtr file;
    std::uint32_t drive = 0;  // index of its lanes
    std::uint64_t submitted_ns = 0;
    std::uint64_t handed_out = 0;  // bytes
    std::uint64_t fail_at = 0;     // with code: where the first failed piece stopped
    std::uint32_t pieces = 0;      // in flight
    std::uint32_t retries = 0;
    Errc code = Errc::kOk;
    int sys_errno = 0;
    std::uint32_t older = kNoIndex, newer = kNoIndex;  // in order of submission
  };

  [[nodiscard]] std::uint32_t lanes_of(std::uint64_t drive) noexcept;
  [[nodiscard]] std::uint64_t piece_length(const Slot& slot) const noexcept;
  Piece hand_out(DriveLanes& lanes, IoOp op) noexcept;
  void take_from_lane(std::uint32_t index) noexcept;
  IoCompletion end(std::uint32_t index) noexcept;

  std::uint64_t piece_bytes_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
  std::vector<std::uint32_t> links_;   // of the lanes, by slot
  std::vector<DriveLanes> lanes_;      // as many as drives may be
  std::vector<std::uint64_t> drives_;  // whose lanes these are, in order of their first request
  std::uint32_t oldest_ = kNoIndex, newest_ = kNoIndex;
  std::uint64_t in_flight_ = 0;
  std::size_t turn_ = 0;  // which drive is asked first
  IoStats stats_;
};

/// Steady time, for the ages of requests.
std::uint64_t steady_now_ns() noexcept;

}  // namespace penstock
