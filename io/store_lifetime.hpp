#pragma once

/// Counts what is written to a store's directories, over all processes that ever had it open.
///
/// What earlier ones wrote is known from the records behind the manifests (io/store_format.hpp);
/// what this one writes is the storage's own count since it opened the store.
/// Invariants
///   1. read() never falls: the largest known counts are what it begins with.
///   2. Where somebody wrote without counting, the sum is marked as incomplete for good.
/// Owner:   the store; the storage outlives it. Threads: const members concurrently, as the
///          storage's counts. Errors: none; what is not known is missing.

#include <optional>
#include <string>
#include <vector>

#include "io/storage.hpp"
#include "io/store.hpp"

namespace penstock {

class LifetimeCounter {
 public:
  /// Counts nothing: what is known is all there is.
  LifetimeCounter() = default;
  /// Counts from now on.
  LifetimeCounter(const Storage& storage, const StoreDirectories& directories);

  /// The store is new, so that nothing was written before; where nobody counts, nothing is known.
  void begin_life();
  /// What some record says; the largest counts stay.
  void know(const LifetimeBytes& record);
  /// The newest commit has no record: whoever made it did not count.
  void know_gap() { has_gap_ = true; }

  [[nodiscard]] std::optional<LifetimeBytes> read() const;

 private:
  const Storage* storage_ = nullptr;
  std::vector<std::string> directories_;
  std::vector<std::optional<std::uint64_t>> start_;  // the storage's counts
  std::optional<LifetimeBytes> known_;
  bool has_gap_ = false;
};

}  // namespace penstock
