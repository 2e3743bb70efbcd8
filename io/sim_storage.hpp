#pragma once

/// A seeded simulation of a drive and its filesystem.
///
/// Model. Every file has durable bytes and a volatile write cache. sync_data/sync_file move the
/// cache of that file to durable. Directory operations (create, rename, remove) form a log;
/// sync_directory makes the log of that directory durable. power_loss() keeps, for every file, a
/// seeded random subset of the cached 4 KiB pages (torn and reordered writes; requests that are
/// still in flight may land in part) and, for every directory, a seeded prefix of its log; files
/// whose names are not durable vanish; locks are released.
/// Requests complete in an order and after delays drawn from the timeline's seed.
/// Threads: one, that of the timeline. Determinism: same seed, same calls, same world.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/timeline.hpp"
#include "io/storage.hpp"

namespace penstock {

/// Some attempts of the queues to transfer in one direction end with another result than their own.
struct ChosenAttempts {
  IoOp op = IoOp::kRead;
  std::uint64_t first = 0;  ///< the n-th of this direction; 0: none
  std::uint64_t count = 1;  ///< so many in a row
  std::int64_t result = 0;  ///< bytes, cut to what was asked for, or a negated errno
};

/// Faults per request, as probabilities in 1/65536; all drawn from the timeline's seed.
struct SimFaults {
  std::uint32_t short_transfer = 0;   ///< transfer a part first; the queue must finish it
  std::uint32_t transient = 0;        ///< EAGAIN/EINTR; the queue must retry
  std::uint32_t read_error = 0;       ///< EIO
  std::uint32_t write_error = 0;      ///< EIO
  std::uint32_t no_space = 0;         ///< ENOSPC on a write
  std::uint32_t lost_completion = 0;  ///< the request never completes
  std::uint32_t corrupt_read = 0;     ///< one flipped bit in what a read returns (heals on re-read)
  std::uint32_t lost_write = 0;       ///< reported as done, never stored
  std::uint32_t misdirected_write = 0;  ///< lands one page further on
  std::uint64_t delay_ns_max = 2'000'000;
  std::uint64_t capacity_bytes = ~std::uint64_t{0};  ///< preallocate beyond it: kNoSpace
  bool full = false;  ///< whole small files cannot be written, unless over one that is as long
  std::uint64_t fail_sync_at = 0;  ///< the n-th sync_data/sync_file fails with EIO; 0: none
  /// Errors, lost and misdirected writes of open files strike only those whose path begins so.
  std::string only_in{};
  ChosenAttempts chosen = {};
};

class SimStorage : public Storage {
 public:
  /// Called after every operation that changes the simulated drive (a write landing in the cache,
  /// a sync, a directory operation), in order, with the number of operations so far.
  using Observer = std::function<void(std::uint64_t operation)>;

  /// What the drive holds after a power loss at this moment; draws come from `seed` alone.
  [[nodiscard]] virtual std::unique_ptr<SimStorage> after_power_loss(Timeline& timeline,
                                                                     std::uint64_t seed) const = 0;
  /// What another process finds after this one was killed at this moment: all that was completed is
  /// there, and writes in flight still land, after delays from the timeline. Locks end with the
  /// process, but that of a file with writes in flight only with the last of them.
  [[nodiscard]] virtual std::unique_ptr<SimStorage> after_kill(Timeline& timeline) const = 0;
  /// Writes of a killed process that have not landed yet.
  [[nodiscard]] virtual std::size_t orphans() const = 0;
  virtual void set_faults(const SimFaults& faults) = 0;
  virtual void set_observer(Observer observer) = 0;
  /// Flips one bit of a file's content, durable and cached.
  virtual Status flip_bit(const std::string& path, std::uint64_t bit) = 0;
  /// Operations so far: for loops that let the n-th one fail until a run does not reach it.
  struct Totals {
    std::uint64_t syncs = 0;
    std::uint64_t attempts[2] = {};  ///< of queues to transfer, by IoOp
  };
  [[nodiscard]] virtual Totals totals() const = 0;
  /// Digest of all durable and cached content: equal worlds have equal digests.
  [[nodiscard]] virtual std::uint64_t digest() const = 0;
};

std::unique_ptr<SimStorage> make_sim_storage(Timeline& timeline, const SimFaults& faults = {});

}  // namespace penstock
