#pragma once

/// What a directory really does: looked at, and written to and read from past the page cache.
///
/// All of it happens in a child process with a limit (measure/child.hpp), on a file without a name
/// (or whose name is removed at once), so nothing is left behind and nothing hangs.
/// Threads: any.

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace penstock {

inline constexpr std::uint64_t kTrialLimitNs = 10'000'000'000;

/// How far a trial came.
enum class TrialStage : std::uint8_t {
  kLook,
  kFilesystem,
  kCreate,
  kWrite,
  kSync,
  kRead,
  kDone,
  kNotStarted
};

/// Plain values. An errno is 0 where the call worked or was not made; what comes after `stage` was
/// not tried.
struct PlaceTrial {
  TrialStage stage = TrialStage::kNotStarted;
  bool is_late = false;  ///< it had no answer within the limit; `stage` is where it waits

  // kLook
  int look_errno = 0;
  bool is_link = false, is_directory = false;
  std::uint32_t mode = 0;
  uid_t owner = 0;
  std::uint64_t inode = 0;
  std::uint32_t device_major = 0, device_minor = 0;
  std::uint64_t mount_id = 0;  ///< as in /proc/self/mountinfo; 0: unknown

  // kFilesystem
  int filesystem_errno = 0;
  bool is_read_only = false;
  std::uint64_t total_bytes = 0, free_bytes = 0;
  std::uint64_t total_files = 0, free_files = 0;        ///< 0 in total: the filesystem has no limit
  std::uint64_t quota_bytes = 0, quota_used_bytes = 0;  ///< 0: no quota, or not readable

  // kCreate
  int create_errno = 0;
  bool is_direct = false;        ///< O_DIRECT was taken when the file was opened
  bool writes_in_place = false;  ///< btrfs: the file has FS_NOCOW_FL, as a store's files have
  std::uint32_t offset_alignment = 0, memory_alignment = 0;  ///< 0: not reported

  // kWrite, kSync, kRead
  int write_errno = 0, sync_errno = 0, read_errno = 0;
  bool is_same = false;           ///< what was read is what was written
  bool takes_misaligned = false;  ///< a transfer that cannot be direct was taken all the same
};

[[nodiscard]] PlaceTrial try_place(const std::string& path, std::uint64_t limit_ns = kTrialLimitNs);

}  // namespace penstock
