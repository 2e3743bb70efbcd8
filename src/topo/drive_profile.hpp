#pragma once

/// Settings of the storage queue that were measured to be better on one drive, as text.
///
/// The text is TOML in ASCII, with a table [[drive]] for each drive and filesystem; a byte of a
/// path beyond ASCII is written as \u00XX.
///
///   schema = "penstock.profile/1"         # first; another number is another format
///   [[drive]]
///   device = "nvme.144d-53:3840755982336" # DriveIdentity::id
///   filesystem = "ext4"
///   path = "/mnt/nvme0"                   # where it was measured, for people
///   penstock = "0.1.0"                    # the version that measured
///   measured = 2026-01-31T12:00:00Z
///   queue = "threads"                     # this and the next four: only what leaves its default
///   piece_bytes = 2097152
///   read_credit_bytes = 8388608
///   write_credit_bytes = 4194304
///   register_memory = false
///   default_read_bytes_per_second = 1     # and the other three: what was measured
///
/// The rates are required and come last, and a text ends with a line end, so that one that was cut
/// is told from a whole one. Keys that are not known are passed over.
/// Threads: pure functions.
/// Errors:  kCorrupt, with the line; kUnsupported for another schema.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "topo/drive_identity.hpp"

namespace penstock {

inline constexpr std::string_view kProfileSchema = "penstock.profile/1";

/// What leaves the engine's own default; 0, and false of `threads`: it stays.
struct QueueTuning {
  bool threads = false;  ///< instead of io_uring
  std::uint32_t piece_bytes = 0;
  std::uint32_t read_credit_bytes = 0;
  std::uint32_t write_credit_bytes = 0;
  bool plain_memory = false;  ///< not registered with the kernel

  [[nodiscard]] bool is_default() const { return *this == QueueTuning{}; }
  [[nodiscard]] bool operator==(const QueueTuning&) const = default;
};

/// Limits of what a profile may ask for: powers of two between them.
inline constexpr std::uint32_t kLeastProfilePiece = 1U << 16, kMostProfilePiece = 1U << 21;
inline constexpr std::uint32_t kLeastProfileCredit = 1U << 18, kMostProfileCredit = 1U << 26;

/// Bytes a second, reads alone and reads and writes in turn.
struct ProfileRates {
  std::uint64_t read = 0, mixed = 0;
};

struct DriveProfile {
  std::string device, filesystem;  ///< of DriveIdentity
  std::string path{};
  std::string version{};
  std::uint64_t unix_seconds = 0;
  QueueTuning tuning{};
  ProfileRates by_default{}, tuned{};

  [[nodiscard]] bool is_of(const DriveIdentity& drive) const {
    return device == drive.id && filesystem == drive.filesystem;
  }
};

[[nodiscard]] Result<std::vector<DriveProfile>> parse_profiles(std::string_view text);
[[nodiscard]] std::string format_profiles(const std::vector<DriveProfile>& profiles);

/// "2026-01-31T12:00:00Z"
[[nodiscard]] std::string format_time(std::uint64_t unix_seconds);

/// "pieces of 2 MiB, 8 MiB of reads in flight", or "the defaults".
[[nodiscard]] std::string words_of(const QueueTuning& tuning);

}  // namespace penstock
