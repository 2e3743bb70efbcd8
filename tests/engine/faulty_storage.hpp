#pragma once

/// A storage that fails, delays or reorders one chosen call, for loops over every call of a run.
///
/// Calls that block fail with an errno, before their effect or after it; requests of a queue are
/// held back, never completed, or completed after the next one. (Short transfers and errors of a
/// queue's own attempts are SimFaults: the retry rules lie below the seam.)
/// Once the fault has been reported, every call that changes the drive is counted.
/// Threads: one, that of the timeline.

#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>

#include "base/timeline.hpp"
#include "io/forwarding_storage.hpp"

namespace penstock::testing {

enum class Call : std::uint8_t {
  kNone,
  kOpen,
  kCreate,
  kSize,
  kPreallocate,
  kExtend,
  kSync,  ///< of a file's data or a whole file
  kLock,
  kReadAt,
  kWriteAt,
  kReadFile,
  kWriteFile,
  kOverwriteFile,
  kRename,
  kRemove,
  kSyncDirectory,
  kMakeDirectory,
  kExists,
  kList,
  kFreeBytes,
  kCheckPrivate,
  kIsNamed,
  kMakeQueue,
  kSubmit,      ///< a queue refuses requests
  kQueueRead,   ///< one request
  kQueueWrite,  ///< one request
};

enum class Effect : std::uint8_t {
  kFails,           ///< with `error`, and nothing has happened
  kFailsDone,       ///< with `error`, although it has happened (or, of a write, half of it)
  kLate,            ///< queue: starts after `delay_ns`
  kLost,            ///< queue: never completes
  kAfterSuccessor,  ///< queue: completes after the request that completes next
};

struct CallFault {
  Call call = Call::kNone;
  Effect effect = Effect::kFails;
  int error = EIO;
  std::uint64_t at = 1;       ///< the n-th call of this kind
  std::uint64_t repeats = 1;  ///< so many in a row
  std::uint64_t delay_ns = 0;
};

class FaultyStorage : public ForwardingStorage {
 public:
  using ForwardingStorage::ForwardingStorage;
  /// Whether the fault has struck.
  [[nodiscard]] virtual bool struck() const = 0;
  /// Calls that change the drive (submitted writes too) since the caller was told of the fault.
  [[nodiscard]] virtual std::uint64_t changes_after() const = 0;
};

/// `storage` and `timeline` outlive it.
std::unique_ptr<FaultyStorage> make_faulty_storage(Storage& storage, Timeline& timeline,
                                                   const CallFault& fault);

}  // namespace penstock::testing
