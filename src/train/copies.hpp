#pragma once

/// Copies of a training's state in other stores, two by turns: `train --copy-to`.
///
/// In each of the places there are, once made, copy-1 and copy-2: a directory each of two ordinary
/// stores. The older one is given up and made anew while the other stays, so a kill at any moment
/// leaves a whole copy, once there has been one.
/// Invariant: the store that newest_ names is never touched.
/// Threads:   the engine's trainer thread.
/// Errors:    of open() kArgument and kState, before anything is written; later ones are in
///            CopyLine::failure, for a copy that fails leaves the training alone.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.hpp"
#include "io/storage.hpp"
#include "io/store.hpp"
#include "train/run.hpp"

namespace penstock {

class Copies {
 public:
  /// `places`: one for each drive of the copies; `store`: what is trained on. `sums_uuid`: of its
  /// sums; nothing where it is still to be made, so that no copy can be one of it.
  static Result<Copies> open(Storage& storage, std::vector<std::string> places,
                             const StoreDirectories& store,
                             const std::optional<StoreUuid>& sums_uuid);
  /// Once the store is made.
  void belong_to(const StoreUuid& sums_uuid) { sums_uuid_ = sums_uuid; }

  [[nodiscard]] bool under_way() const { return under_way_.has_value(); }
  /// Begins a copy of the engine's last step, between steps, while none is under way. What is wrong
  /// with it, if anything is.
  std::optional<CopyLine> begin(Engine& engine);
  /// The copy that was begun last, once it has ended.
  std::optional<CopyLine> ended(const Engine& engine);

 private:
  struct Slot {
    StoreDirectories directories;
    std::optional<std::uint64_t> step;  // of a whole copy
  };
  Copies(Storage& storage, std::vector<std::string> places, std::array<Slot, 2> slots)
      : storage_(&storage), places_(std::move(places)), slots_(std::move(slots)) {}
  Status prepare(Slot& slot);

  Storage* storage_;
  std::vector<std::string> places_;
  StoreUuid sums_uuid_;
  std::array<Slot, 2> slots_;
  std::optional<std::size_t> newest_;     // of slots_; none: there is no whole copy
  std::optional<std::size_t> under_way_;  // likewise
};

}  // namespace penstock
