#pragma once

/// What to do after the system answered one transfer: the single retry policy of every queue.
///
///   EINTR                        again at once        \ at most kRetryLimit in a row
///   EAGAIN, ENOMEM               again after a pause  / without progress
///   short, remainder aligned     continue behind what was transferred
///   short, unaligned, or zero    read: the file ended early; write: no space
///   EIO, ENODATA, EILSEQ         read: once more; write: fail
///   ENOSPC, EDQUOT, EFBIG        fail with kNoSpace
///   EFAULT, EBADF                fail with kInternal: memory or file is gone, which is our fault
///   anything else                fail with kIo

#include <cstdint>

#include "io/storage_queue.hpp"

namespace penstock {

inline constexpr std::uint32_t kRetryLimit = 16;

/// How far one contiguous transfer has come.
struct Transfer {
  IoOp op = IoOp::kRead;
  std::uint64_t bytes = 0;
  std::uint64_t done = 0;
  std::uint32_t retries = 0;      ///< all of them, for the completion
  std::uint32_t stalled = 0;      ///< retries since the last progress
  std::uint32_t read_errors = 0;  ///< media errors so far
  std::uint32_t shorts = 0;       ///< short transfers so far
};

enum class NextMove : std::uint8_t { kDone, kContinue, kRetryNow, kRetryLater, kFail };

struct Verdict {
  NextMove move = NextMove::kDone;
  Errc code = Errc::kOk;  ///< with kFail
  int sys_errno = 0;      ///< with kFail; 0 when a read met the end of the file
};

/// Books `result` (bytes, or a negated errno) into `transfer`. `alignment_bytes` is 1 for buffered
/// files.
Verdict judge(Transfer& transfer, std::int64_t result, std::uint32_t alignment_bytes) noexcept;

/// Pause before retry number `stalled` (from 1): 0.1 ms doubling up to 10 ms.
[[nodiscard]] constexpr std::uint64_t retry_pause_ns(std::uint32_t stalled) noexcept {
  const std::uint64_t pause = std::uint64_t{100'000} << (stalled < 8 ? stalled - 1 : 7);
  return pause < 10'000'000 ? pause : 10'000'000;
}

}  // namespace penstock
