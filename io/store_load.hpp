#pragma once

/// Manifests and checkpoints of an opened store, read and checked. Internal to io/.

#include <memory>
#include <string>
#include <vector>

#include "io/store_impl.hpp"

namespace penstock {

/// A manifest that fits its files, with everything open() needs.
struct Candidate {
  Manifest manifest;
  StoreLayout layout;
  std::optional<LifetimeBytes> lifetime = {};
};

/// Either copy of a commit or checkpoint; `copies` are those that are there. A copy that the drive
/// does not return may well be right, so kIo is not taken for damage (kCorrupt): falling back to an
/// older step then would lose a commit. sys_errno ENOENT: there is none (any more). What was worked
/// around is added to `note`.
Result<Candidate> load_copies(Storage& storage, const OpenedFiles& opened, const ManifestName& name,
                              const std::vector<char>& copies, std::string& note);

/// The copies of one checkpoint that are there; empty: none.
[[nodiscard]] std::vector<char> copies_of(const OpenedFiles& opened, const std::string& pin);
/// The names of all checkpoints, in order.
[[nodiscard]] std::vector<std::string> pin_names(const OpenedFiles& opened);

/// What a checkpoint's manifest says.
[[nodiscard]] Pin pin_of(const std::string& name, const Manifest& manifest);
/// All checkpoints, oldest first. One with no right copy can never come back, so it is left out,
/// with a note.
Result<std::vector<Pin>> load_pins(Storage& storage, const OpenedFiles& opened, std::string& note);

/// Tells opened.lifetime what the manifests say. `chosen` is the state that is opened; a commit, or
/// a checkpoint, which may be older than others. What cannot be read is not known.
void find_lifetimes(Storage& storage, OpenedFiles& opened, const Candidate& chosen,
                    bool is_checkpoint);

/// A store in the state of the candidate, which takes over the files.
std::unique_ptr<StoreImpl> make_store(Storage& storage, OpenedFiles opened, Candidate candidate,
                                      std::string note, const StoreOptions& options, bool writable);

/// open_store(), checkpoints beyond the room left as they are, for dropping one.
Result<std::unique_ptr<StoreImpl>> open_for_tools(Storage& storage,
                                                  const StoreDirectories& directories,
                                                  const StoreOptions& options, bool writable);

}  // namespace penstock
