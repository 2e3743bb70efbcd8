#pragma once

/// Exit codes of the program: 0 ok, 1 failed, 2 usage or configuration, 3 the machine is not
/// capable, 77 skipped, 130 stopped by the user.

#include "base/result.hpp"

namespace penstock {

enum class ExitCode : int {
  kOk = 0,
  kFailed = 1,
  kUsage = 2,
  kEnvironment = 3,
  kSkipped = 77,
  kStopped = 130,
};

/// A budget below the minimum is the user's to change; a full drive or a missing feature is not.
[[nodiscard]] constexpr ExitCode exit_code_of(Errc code) {
  switch (code) {
    case Errc::kOk:
      return ExitCode::kOk;
    case Errc::kArgument:
    case Errc::kNoMemory:
      return ExitCode::kUsage;
    case Errc::kNoSpace:
    case Errc::kUnsupported:
    case Errc::kDevice:
      return ExitCode::kEnvironment;
    case Errc::kCancelled:
      return ExitCode::kStopped;
    case Errc::kState:
    case Errc::kIo:
    case Errc::kCorrupt:
    case Errc::kTimeout:
    case Errc::kInternal:
      return ExitCode::kFailed;
  }
  return ExitCode::kFailed;
}

/// For commands whose memory no flag changes: there it is the machine that lacks some.
[[nodiscard]] inline Error without_flags(Error error) {
  if (error.code == Errc::kNoMemory) error.code = Errc::kUnsupported;
  return error;
}

}  // namespace penstock
