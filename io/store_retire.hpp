#pragma once

/// Giving a store up, so that another one can be made over its files.
///
/// Crash safety: whatever moment ends it, what opens afterwards is the last commit, or nothing at
/// all; commits and checkpoints before the last are taken away first.
/// Threads: one. Errors: kState (in use, or not the state that was expected: nothing was changed),
/// and those of opening.

#include "io/store.hpp"

namespace penstock {

/// What a caller remembers of a store that it made.
struct KnownState {
  StoreUuid sums_uuid;
  std::uint64_t step = 0;
};

/// Takes the manifests of the store away, durably. Data files stay, for create_store() to use.
Status retire_store(Storage& storage, const StoreDirectories& directories, const KnownState& known);

}  // namespace penstock
