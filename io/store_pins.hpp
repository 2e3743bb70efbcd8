#pragma once

/// Checkpoints inside a store: kept, listed, dropped, gone back to; and their rotation.
///
/// A checkpoint ("pin") is a commit whose manifest was copied under a name, pin.<name>.a and .b.
/// The slots it names are never written until it is dropped, so it costs no transfer, only room:
/// the store is made with slots for so many checkpoints (StoreGeometry::pins). A block that did not
/// change between two checkpoints lies in one slot for both.
///
/// Crash safety: a checkpoint exists once make_pin() or Store::pin() has returned, or does not; a
/// dropped one is whole until it is gone. In an exchange (rotation) the new one is durable before
/// the old one goes, so there is never less than before.
/// Threads: one call at a time per store. The functions on directories open the store themselves,
///          for writing where they change it: kState while another process has it open.
/// Errors:  kArgument (a name that cannot be one), kState (no checkpoint of that name, or one
///          already), kNoSpace (no room), and those of open_store(). Messages name the store.

#include <cstdint>
#include <string>
#include <vector>

#include "io/store.hpp"

namespace penstock {

struct PinSummary {
  std::string name;
  std::uint64_t sequence = 0;  ///< rises with age
  std::uint64_t step = 0, updates = 0;
  std::uint64_t own_bytes = 0;  ///< of slots that only it holds: free once it is dropped
  bool rotating = false;        ///< made by a rotation, which may drop it
  bool is_latest = false;       ///< the state the store itself is in
};

/// Oldest first. Takes no lock, so it may be asked while a run has the store open.
Result<std::vector<PinSummary>> list_pins(Storage& storage, const StoreDirectories& directories);
[[nodiscard]] std::vector<PinSummary> summarize_pins(const Store& store);

/// Keeps the last commit of a store that nobody has open.
Status make_pin(Storage& storage, const StoreDirectories& directories, const std::string& name,
                const StoreOptions& options = {});
Status drop_pin(Storage& storage, const StoreDirectories& directories, const std::string& name,
                const StoreOptions& options = {});
/// Makes the checkpoint's state that of the store, by one more commit; what was committed since is
/// given up, other checkpoints stay. Works also when the last commit itself is damaged.
Status restore_pin(Storage& storage, const StoreDirectories& directories, const std::string& name,
                   const StoreOptions& options = {});

/// Names that rotations give: "step-<n>", and "step-<n>-<k>" for a step that was reached again
/// after going back.
[[nodiscard]] bool is_rotating(const std::string& name);

/// Whether begin_rotation() would be refused once `step` is the last commit; looks at nothing but
/// memory.
[[nodiscard]] Status check_rotation(const Store& store, std::uint64_t step);
/// Keeps the last commit of an open store under the next rotating name.
Result<PinChange> begin_rotation(Store& store);
/// Drops the oldest rotating checkpoints until `keep` (at least 1), and no more than there is room
/// for, are left; before the next commit.
Result<PinChange> finish_rotation(Store& store, std::uint32_t keep);

/// Drops what an exchange that was cut short has left over. kNoSpace: there are more checkpoints
/// than room, and none of them is a rotation's.
Status finish_exchange(Store& store);

}  // namespace penstock
