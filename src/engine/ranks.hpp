#pragma once

/// The rank rule: commits that count on all ranks or on none (io/store_global.hpp).
///
/// With one rank everything is the identity. All ranks make the same calls in the same order.
/// Threads: one call at a time; the communicator is used for nothing else meanwhile.
/// Errors:  a rank's own failure is returned to it, the others get kCancelled; kTimeout when a rank
///          does not come. None of them may go on: the commit counts nowhere, or on the next start.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "comm/communicator.hpp"
#include "io/store_global.hpp"

namespace penstock {

class Ranks {
 public:
  Ranks(Communicator& communicator, std::function<std::uint64_t()> now_ns)
      : communicator_(communicator), now_ns_(std::move(now_ns)) {}

  /// What the ranks return to: the options to open their stores with, or nothing: create them.
  /// kState when some have commits and rank 0 knows of none.
  Result<std::optional<RankOptions>> find(Storage& storage, const StoreDirectories& directories);
  /// The options to create a store with; `uuid_seed` as in StoreOptions.
  Result<RankOptions> begin(std::uint64_t uuid_seed);

  /// After the store was created, or opened for writing: what the record of a commit needs.
  Status reserve(Storage& storage, const StoreDirectories& directories,
                 const ProtocolFaults& faults);

  /// Makes the commit durable on all ranks, then says so, then lets it count.
  Status commit(Store& store, const CommitRecord& record, std::span<const SlotEntry> entries);

  /// kState when rank 0 has another value.
  Status same(std::uint64_t value, const char* what);
  /// Whether all ranks are well: what failed here, or kCancelled when another one failed.
  Status agree(Status mine, const char* what);

 private:
  [[nodiscard]] bool alone() const { return communicator_.size() == 1; }
  [[nodiscard]] std::uint32_t rank() const {
    return static_cast<std::uint32_t>(communicator_.rank());
  }
  [[nodiscard]] std::uint64_t deadline() const;

  Communicator& communicator_;
  std::function<std::uint64_t()> now_ns_;
  StoreUuid run_;
  std::unique_ptr<GlobalRecords> records_;  // of rank 0
};

}  // namespace penstock
