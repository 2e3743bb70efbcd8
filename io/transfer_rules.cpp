#include "io/transfer_rules.hpp"

#include <cerrno>

namespace penstock {

namespace {

Verdict fail(Errc code, int sys_errno) {
  return {NextMove::kFail, code, sys_errno};
}

Verdict judge_error(Transfer& transfer, int error) {
  switch (error) {
    case EINTR:
    case EAGAIN:
    case ENOMEM:
      if (++transfer.stalled > kRetryLimit) return fail(Errc::kIo, error);
      ++transfer.retries;
      return {error == EINTR ? NextMove::kRetryNow : NextMove::kRetryLater};
    case EIO:
    case ENODATA:
    case EILSEQ:
      if (transfer.op == IoOp::kWrite || ++transfer.read_errors > 1) return fail(Errc::kIo, error);
      ++transfer.retries;
      return {NextMove::kRetryNow};
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return fail(Errc::kNoSpace, error);
    case EFAULT:
    case EBADF:
      return fail(Errc::kInternal, error);
    default:
      return fail(Errc::kIo, error);
  }
}

}  // namespace

Verdict judge(Transfer& transfer, std::int64_t result, std::uint32_t alignment_bytes) noexcept {
  if (result < 0) return judge_error(transfer, static_cast<int>(-result));
  const std::uint64_t moved = static_cast<std::uint64_t>(result);
  if (moved > transfer.bytes - transfer.done) return fail(Errc::kInternal, 0);
  transfer.done += moved;
  if (transfer.done == transfer.bytes) return {NextMove::kDone};
  ++transfer.shorts;
  if (moved == 0 || transfer.done % alignment_bytes != 0) {
    return transfer.op == IoOp::kRead ? fail(Errc::kIo, 0) : fail(Errc::kNoSpace, ENOSPC);
  }
  transfer.stalled = 0;
  return {NextMove::kContinue};
}

}  // namespace penstock
