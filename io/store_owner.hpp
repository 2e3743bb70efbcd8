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
};

[[nodiscard]] StoreOwner this_process();

/// True when that process runs on this machine now: same host, boot and start time, not a zombie.
[[nodiscard]] bool is_running(const StoreOwner& owner);

Status write_owner(Storage& storage, const std::string& directory, const StoreOwner& owner);
/// kState when there is none, kCorrupt when owner.json is not one of Penstock's.
Result<StoreOwner> read_owner(Storage& storage, const std::string& directory);

}  // namespace penstock
