#pragma once

/// Who uses a store, for the messages of a busy lock. The lock itself is on the data file.
///
/// owner.json is always replaced as a whole (temp, fsync, rename). Made durable before data.0
/// exists, it also marks a directory whose creation was begun by Penstock.

#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "io/storage.hpp"

namespace penstock {

struct StoreOwner {
  std::int64_t pid = 0;
  std::string host;
  std::string boot_id;           ///< of the machine's kernel run; a reboot ends all owners
  std::uint64_t start_time = 0;  ///< of the process, in clock ticks since boot; 0: unknown
  std::uint64_t since_s = 0;     ///< when it opened the store, seconds since 1970; 0: unknown
};

/// "pid 7 on host, since 2025-11-30 10:41:05 UTC"
[[nodiscard]] std::string describe(const StoreOwner& owner);

[[nodiscard]] StoreOwner this_process();

/// True when that process runs on this machine now: same host, boot and start time, and neither a
/// zombie nor about to end. One that was killed may stay for as long as a drive keeps its last I/O.
[[nodiscard]] bool is_running(const StoreOwner& owner);

/// `owner` with the storage's time as since_s, where that is 0. kState when owner.json, or its
/// temporary file, is not one of Penstock's.
Status write_owner(Storage& storage, const std::string& directory, const StoreOwner& owner);
/// kState when there is none, kCorrupt when owner.json is not one of Penstock's.
Result<StoreOwner> read_owner(Storage& storage, const std::string& directory);

}  // namespace penstock
