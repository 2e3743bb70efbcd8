// Tasks: the fused pass over a block (check, update, sum), checks of weights. What does not
// match its sums goes to engine_heal.cpp.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>

#include "base/checksum.hpp"
#include "engine/engine_impl.hpp"
#include "engine/tiles.hpp"
#include "io/section_sums.hpp"

namespace penstock {

// --- where bytes are -------------------------------------------------------------------------

std::byte* EngineImpl::section_data(std::uint32_t block, std::size_t section) const {
  const GroupPlan& group = group_of(block);
  if (section == kHiSection) {
    if (group.lent) return state_base(block) + staging_offset_;
    return frames_.hi[group.hi_frame].data + plan_.blocks[block].first_element * kHiBytes;
  }
  const auto& extents = store_->extents(block);
  return state_base(block) + (extents[section].data_offset - extents[kLoSection].data_offset);
}

std::uint64_t* EngineImpl::section_sums(std::uint32_t block, std::size_t section) const {
  const GroupPlan& group = group_of(block);
  const auto& extents = store_->extents(block);
  std::byte* place = nullptr;
  if (section == kHiSection && !group.lent) {
    place = frames_.hi[group.hi_frame].data + round_up(group.elements * kHiBytes, kPageBytes) +
            std::uint64_t{block - group.first_block} * kPageBytes;
  } else {
    place = section_data(block, section) + extents[section].padded_bytes;
  }
  return reinterpret_cast<std::uint64_t*>(place);
}

const std::uint16_t* EngineImpl::gradient_data(std::uint32_t block) const {
  const BlockPlan& plan = plan_.blocks[block];
  const std::byte* data = plan.spill_index == kNone ? frames_.gradient[plan.gradient_frame].data
                                                    : state_base(block) + rest_bytes_;
  return reinterpret_cast<const std::uint16_t*>(data);
}

// --- sums ------------------------------------------------------------------------------------

bool EngineImpl::verify_tile(std::uint32_t block, std::size_t section, std::uint64_t version,
                             std::uint32_t tile) const {
  if (options_.faults.skip_sums) return true;
  const TileSpan span = tile_span(plan_.blocks[block].elements, tile);
  const std::uint32_t bytes = element_bytes(section);
  const std::byte* data = section_data(block, section) + std::uint64_t{span.first} * bytes;
  return hash64(store_->tile_seed(block, version, section, tile),
                {data, std::size_t{span.elements} * bytes}) == section_sums(block, section)[tile];
}

void EngineImpl::sum_tile(std::uint32_t block, std::uint64_t version, std::size_t section,
                          std::uint32_t tile) {
  if (options_.faults.skip_sums) return;
  const TileSpan span = tile_span(plan_.blocks[block].elements, tile);
  const std::uint32_t bytes = element_bytes(section);
  const std::byte* data = section_data(block, section) + std::uint64_t{span.first} * bytes;
  section_sums(block, section)[tile] = hash64(store_->tile_seed(block, version, section, tile),
                                              {data, std::size_t{span.elements} * bytes});
}

/// The root of a section whose tiles are summed; both paddings become zero first.
std::uint64_t EngineImpl::root_of(std::uint32_t block, std::uint64_t version,
                                  std::size_t section) const {
  const SectionExtent& extent = store_->extents(block)[section];
  std::memset(section_data(block, section) + extent.data_bytes, 0,
              extent.padded_bytes - extent.data_bytes);
  std::uint64_t* sums = section_sums(block, section);
  std::memset(sums + extent.tiles, 0, extent.sums_bytes - extent.tiles * sizeof *sums);
  return store_->root_of(block, version, section, {sums, extent.tiles});
}

bool EngineImpl::roots_hold(std::uint32_t block, const SlotEntry& entry) const {
  const auto& extents = store_->extents(block);
  for (std::size_t s = kLoSection; s < kSectionCount; ++s) {
    if (store_->root_of(block, entry.version, s, {section_sums(block, s), extents[s].tiles}) !=
        entry.roots[s]) {
      return false;
    }
  }
  return true;
}

void EngineImpl::sum_spill(std::uint32_t block) {
  if (options_.faults.skip_sums) return;
  const std::uint32_t elements = plan_.blocks[block].elements;
  const std::byte* data = frames_.gradient[scheduler_->held_gradient_frame(block)].data;
  for (std::uint32_t tile = 0; tile < tiles_of(elements); ++tile) {
    const TileSpan span = tile_span(elements, tile);
    spill_sums_[first_tile_[block] + tile] =
        hash64(tile, {data + std::uint64_t{span.first} * 2, std::size_t{span.elements} * 2});
  }
}

bool EngineImpl::gradient_holds(std::uint32_t block, std::uint32_t tile,
                                const std::byte* data) const {
  if (options_.faults.skip_sums) return true;
  const TileSpan span = tile_span(plan_.blocks[block].elements, tile);
  return hash64(tile, {data + std::uint64_t{span.first} * 2, std::size_t{span.elements} * 2}) ==
         spill_sums_[first_tile_[block] + tile];
}

bool EngineImpl::spill_holds(std::uint32_t block, const std::byte* data) const {
  for (std::uint32_t tile = 0; tile < tiles_of(plan_.blocks[block].elements); ++tile) {
    if (!gradient_holds(block, tile, data)) return false;
  }
  return true;
}

// --- the fused pass --------------------------------------------------------------------------

/// Copies the tile's weights between the trainer's own arrays and the staging area.
void EngineImpl::move_lent(std::uint32_t block, std::uint32_t tile, bool gather) {
  const TileSpan span = tile_span(plan_.blocks[block].elements, tile);
  auto* staging = reinterpret_cast<std::uint16_t*>(section_data(block, kHiSection));
  if (gather) std::memset(staging + span.first, 0, std::size_t{span.elements} * kHiBytes);
  for (const Range& range : layout_.block_ranges(block)) {
    const std::uint32_t first = std::max(range.first_in_block, span.first);
    const std::uint32_t last =
        std::min(range.first_in_block + range.elements, span.first + span.elements);
    if (first >= last) continue;
    auto* weights = static_cast<std::uint16_t*>(model_.tensors[range.tensor].weights) +
                    range.first_in_tensor + (first - range.first_in_block);
    const std::size_t bytes = std::size_t{last - first} * kHiBytes;
    if (gather) {
      std::memcpy(staging + first, weights, bytes);
    } else {
      std::memcpy(weights, staging + first, bytes);
    }
  }
}

/// Level 1: the trainer's copies of what this tile's update changed.
void EngineImpl::write_outputs(std::uint32_t block, std::uint32_t tile) {
  constexpr std::uint32_t kPiece = 1024;
  const TileSpan span = tile_span(plan_.blocks[block].elements, tile);
  const auto* hi = reinterpret_cast<const std::uint16_t*>(section_data(block, kHiSection));
  const auto* lo = reinterpret_cast<const std::uint16_t*>(section_data(block, kLoSection));
  for (const Range& range : layout_.block_ranges(block)) {
    const TensorSpec& tensor = model_.tensors[range.tensor];
    if (tensor.weights == nullptr || tensor.lent) continue;
    const std::uint32_t first = std::max(range.first_in_block, span.first);
    const std::uint32_t last =
        std::min(range.first_in_block + range.elements, span.first + span.elements);
    for (std::uint32_t at = first; at < last; at += kPiece) {
      const std::uint32_t n = std::min(kPiece, last - at);
      const std::uint64_t out = range.first_in_tensor + (at - range.first_in_block);
      if (tensor.weight_type == WeightType::kBf16) {
        std::memcpy(static_cast<std::uint16_t*>(tensor.weights) + out, hi + at, n * 2U);
      } else if (tensor.weight_type == WeightType::kF32) {
        kernels_.join(n, hi + at, lo + at, static_cast<float*>(tensor.weights) + out);
      } else {
        float master[kPiece];
        kernels_.join(n, hi + at, lo + at, master);
        kernels_.f32_to_f16(n, master, static_cast<std::uint16_t*>(tensor.weights) + out);
      }
    }
  }
}

/// One tile: check what was read, update in cache, sum what will be written. False, with the tile
/// untouched, when an input does not match its sum.
bool EngineImpl::update_tile(const Operation& operation, std::uint32_t tile, bool verify) {
  const std::uint32_t block = operation.command.block;
  if (verify) {
    for (std::size_t s = kLoSection; s < kSectionCount; ++s) {
      if (!verify_tile(block, s, operation.entry.version, tile)) return false;
    }
  }
  const bool spilled = plan_.blocks[block].spill_index != kNone;
  if (spilled && !gradient_holds(block, tile, state_base(block) + rest_bytes_)) return false;
  const bool lent = group_of(block).lent;
  if (lent) move_lent(block, tile, /*gather=*/true);
  const TileSpan span = tile_span(plan_.blocks[block].elements, tile);
  TileRange view;
  for (const Range& range : layout_.block_ranges(block)) {
    const std::uint32_t first = std::max(range.first_in_block, span.first);
    const std::uint32_t last =
        std::min(range.first_in_block + range.elements, span.first + span.elements);
    if (first >= last || record_gradient_[range.tensor] == 0) continue;
    view.hi = reinterpret_cast<std::uint16_t*>(section_data(block, kHiSection)) + first;
    view.lo = reinterpret_cast<std::uint16_t*>(section_data(block, kLoSection)) + first;
    view.m = reinterpret_cast<float*>(section_data(block, kMSection)) + first;
    view.v = reinterpret_cast<float*>(section_data(block, kVSection)) + first;
    view.gradient = gradient_data(block) + first;
    view.elements = last - first;
    view.decay = model_.tensors[range.tensor].decay;
    policy_.update(view);
  }
  for (std::size_t s = 0; s < kSectionCount; ++s) {
    sum_tile(block, operation.command.version, s, tile);
  }
  if (lent) move_lent(block, tile, /*gather=*/false);
  if (plan_.level == Level::kStates) write_outputs(block, tile);
  return true;
}

void EngineImpl::run_update(std::uint32_t id) {
  Operation& operation = operations_[id];
  const std::uint32_t block = operation.command.block;
  const std::uint32_t tiles = tiles_of(plan_.blocks[block].elements);
  std::uint8_t* failed = tile_failed_.data() + first_tile_[block];
  const bool verify = rest_unverified_[block] != 0;
  const bool readable = !verify || roots_hold(block, operation.entry);
  std::atomic<bool> all_good{readable};
  if (readable) {
    const auto body = [&](std::size_t tile) {
      const auto t = static_cast<std::uint32_t>(tile);
      failed[t] = update_tile(operation, t, verify) ? 0 : 1;
      if (failed[t] != 0) all_good.store(false, std::memory_order_relaxed);
    };
    parts_.executor.parallel_for(tiles, std::cref(body));
  } else {
    std::memset(failed, 1, tiles);
  }
  if (!all_good.load()) {
    const Lock lock(mutex_);
    post({&EngineImpl::heal_task, this, id}, true);
    --tasks_in_flight_;
    return;
  }
  for (std::size_t s = 0; s < kSectionCount; ++s) {
    operation.roots[s] = root_of(block, operation.command.version, s);
  }
  const Lock lock(mutex_);
  task_over();
  rest_unverified_[block] = 0;
  finish(id, operation.roots);
}

void EngineImpl::update_task(void* engine, std::uint64_t operation) {
  static_cast<EngineImpl*>(engine)->run_update(static_cast<std::uint32_t>(operation));
}

void EngineImpl::verify_task(void* self, std::uint64_t operation_id) {
  EngineImpl& engine = *static_cast<EngineImpl*>(self);
  const auto id = static_cast<std::uint32_t>(operation_id);
  const Operation& operation = engine.operations_[id];
  const std::uint32_t block = operation.command.block;
  const SectionExtent& extent = engine.store_->extents(block)[kHiSection];
  std::atomic<bool> holds{
      engine.store_->root_of(block, operation.entry.version, kHiSection,
                             {engine.section_sums(block, kHiSection), extent.tiles}) ==
      operation.entry.roots[kHiSection]};
  const auto body = [&](std::size_t tile) {
    if (!engine.verify_tile(block, kHiSection, operation.entry.version,
                            static_cast<std::uint32_t>(tile))) {
      holds.store(false, std::memory_order_relaxed);
    }
  };
  engine.parts_.executor.parallel_for(extent.tiles, std::cref(body));
  const Lock lock(engine.mutex_);
  engine.task_over();
  if (holds.load()) {
    engine.finish(id);
  } else {
    engine.post({&EngineImpl::heal_task, self, id}, true);
  }
}

void EngineImpl::gather_task(void* self, std::uint64_t operation_id) {
  EngineImpl& engine = *static_cast<EngineImpl*>(self);
  const auto id = static_cast<std::uint32_t>(operation_id);
  Operation& operation = engine.operations_[id];
  const std::uint32_t block = operation.command.block;
  const std::uint64_t version = operation.command.version;
  const auto body = [&](std::size_t tile) {
    const auto t = static_cast<std::uint32_t>(tile);
    engine.move_lent(block, t, /*gather=*/true);
    engine.sum_tile(block, version, kHiSection, t);
  };
  engine.parts_.executor.parallel_for(engine.store_->extents(block)[kHiSection].tiles,
                                      std::cref(body));
  operation.roots[kHiSection] = engine.root_of(block, version, kHiSection);
  const Lock lock(engine.mutex_);
  engine.task_over();
  engine.finish(id, operation.roots);
}

}  // namespace penstock
