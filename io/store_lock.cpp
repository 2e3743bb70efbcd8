// The lock of a data file, and whose it is when it is taken.
//
// The lock is on the open file that carries the I/O, so it holds for as long as any of that is in
// flight: the requests of a process that was killed keep its file, and the lock, until they have
// landed. It follows the file under any name (a renamed directory, a hard link), and two openings
// exclude each other in one process, too.

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include "io/store_impl.hpp"
#include "io/store_owner.hpp"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLockPoll{20};
constexpr std::uint64_t kLongestWaitNs = 3'600'000'000'000;

Error still_locked(const std::string& directory, std::chrono::nanoseconds waited,
                   const Result<StoreOwner>& owner) {
  const std::string who =
      owner ? describe(owner.value()) + ", which has ended or runs on another machine"
            : std::string("an unknown process");
  return make_error(Errc::kState,
                    fmt::format("{} is still locked after {} ms by the last writes of {}, or by a "
                                "process it forked; wait for the drive and open it again",
                                directory, waited.count() / 1'000'000, who),
                    EWOULDBLOCK);
}

Error in_use(const std::string& directory, const StoreOwner& owner) {
  return make_error(Errc::kState,
                    fmt::format("{} is in use by {}; end that process or use another directory",
                                directory, describe(owner)),
                    EWOULDBLOCK);
}

/// An exchange while we waited for the lock would leave us with a file that nobody else sees.
Status check_name(Storage& storage, FileId file, const std::string& path) {
  auto named = storage.is_named(file, path);
  if (!named) return std::move(named).error();
  if (named.value()) return ok();
  return make_error(Errc::kState,
                    fmt::format("{} was moved or exchanged while it was being opened; open the "
                                "store where it is now",
                                path));
}

}  // namespace

Status lock_data_file(Storage& storage, FileId file, const std::string& path,
                      const StoreOptions& options) {
  const std::string directory = path.substr(0, path.rfind('/'));
  const std::chrono::nanoseconds wait(std::min(options.lock_wait_ns, kLongestWaitNs));
  const Clock::time_point end = Clock::now() + wait;
  bool told = false;
  for (;;) {
    Status locked = storage.lock(file);
    if (locked) return check_name(storage, file, path);
    if (locked.error().sys_errno != EWOULDBLOCK) return locked;
    const auto owner = read_owner(storage, directory);
    if (owner && is_running(owner.value())) {
      return in_use(directory, owner.value());
    }
    const Clock::time_point now = Clock::now();
    if (now >= end) return still_locked(directory, wait, owner);
    if (!told && options.notice) {
      told = true;
      options.notice(
          fmt::format("{} is locked by {}, which has ended: waiting up to {} s for its "
                      "last writes to land",
                      directory, owner ? describe(owner.value()) : std::string("an owner"),
                      (wait.count() + 999'999'999) / 1'000'000'000));
    }
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(kLockPoll, end - now));
  }
}

Status check_unused(Storage& storage, const std::string& path) {
  OpenOptions how;
  how.write = false;
  PENSTOCK_TAKE(id, storage.open(path, how));
  const OpenFile file(storage, id);  // an opening of its own, whose lock goes with it
  const Status locked = storage.lock(file.id());
  // Where locks cannot be asked for, the sums still tell what was written over.
  if (locked || locked.error().sys_errno != EWOULDBLOCK) return ok();
  const std::string directory = path.substr(0, path.rfind('/'));
  const auto owner = read_owner(storage, directory);
  // The last writes of a dead owner go to slots that no commit names.
  if (owner && is_running(owner.value())) return in_use(directory, owner.value());
  return ok();
}

}  // namespace penstock
