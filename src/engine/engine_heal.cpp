// The rare second reading of tiles that did not match their sums.

#include <fmt/format.h>

#include <cstring>

#include "base/with_memory.hpp"
#include "engine/engine_impl.hpp"
#include "engine/tiles.hpp"
#include "io/page_buffer.hpp"

namespace penstock {

/// Reads a section again and puts back the tiles that did not match, with their sums.
Status EngineImpl::heal_section(std::uint32_t block, std::size_t section, const SlotEntry& entry) {
  const SectionExtent& extent = store_->extents(block)[section];
  // A rare path, and the frame may hold tiles that are updated already: other memory.
  PageBuffer memory(extent.total_bytes());
  if (memory.empty()) {
    return make_error(Errc::kNoMemory,
                      fmt::format("{} bytes for a second reading of {} are not to be had",
                                  extent.total_bytes(), block_name(block)));
  }
  PENSTOCK_CHECK_OK(store_->read_section(block, section, entry, memory.span()));
  const std::byte* bounce = memory.span().data();
  const auto* sums = reinterpret_cast<const std::uint64_t*>(bounce + extent.padded_bytes);
  const bool all = section == kHiSection;
  const std::uint32_t bytes = element_bytes(section);
  for (std::uint32_t tile = 0; tile < extent.tiles; ++tile) {
    if (!all && tile_failed_[first_tile_[block] + tile] == 0) continue;
    const TileSpan span = tile_span(plan_.blocks[block].elements, tile);
    const std::uint64_t offset = std::uint64_t{span.first} * bytes;
    std::memcpy(section_data(block, section) + offset, bounce + offset,
                std::size_t{span.elements} * bytes);
    section_sums(block, section)[tile] = sums[tile];
  }
  return ok();
}

Status EngineImpl::heal_gradient(std::uint32_t block) {
  const BlockPlan& plan = plan_.blocks[block];
  if (plan.spill_index == kNone) return ok();
  const DriveExtent where = store_->spill(plan.spill_index);
  const std::uint64_t bytes = round_up(std::uint64_t{plan.elements} * 2, kPageBytes);
  std::byte* into = state_base(block) + rest_bytes_;
  for (int attempt = 0; attempt < 2; ++attempt) {
    PENSTOCK_CHECK_OK(parts_.storage.read_at(where.file, where.offset_bytes, {into, bytes}));
    if (spill_holds(block, into)) return ok();
  }
  return make_error(
      Errc::kCorrupt,
      fmt::format("spilled gradient of {} at byte {} of {} does not match its sum after two more "
                  "reads; the last commit is safe: check the drive, then resume",
                  block_name(block), where.offset_bytes, store_->path_of(where.file)));
}

Status EngineImpl::heal(Operation& operation) {
  const std::uint32_t block = operation.command.block;
  if (operation.command.kind == Command::Kind::kVerifyHi) {
    return heal_section(block, kHiSection, operation.entry);
  }
  const bool verify = rest_unverified_[block] != 0;
  for (std::size_t s = kLoSection; s < kSectionCount && verify; ++s) {
    PENSTOCK_CHECK_OK(heal_section(block, s, operation.entry));
  }
  PENSTOCK_CHECK_OK(heal_gradient(block));
  for (std::uint32_t tile = 0; tile < tiles_of(plan_.blocks[block].elements); ++tile) {
    if (tile_failed_[first_tile_[block] + tile] == 0) continue;
    if (update_tile(operation, tile, verify)) continue;
    return make_error(Errc::kCorrupt,
                      fmt::format("tile {} of {} does not match its sum in memory; suspect the "
                                  "memory of this machine",
                                  tile, block_name(block)));
  }
  for (std::size_t s = 0; s < kSectionCount; ++s) {
    operation.roots[s] = root_of(block, operation.command.version, s);
  }
  return ok();
}

void EngineImpl::heal_task(void* self, std::uint64_t operation_id) {
  EngineImpl& engine = *static_cast<EngineImpl*>(self);
  const auto id = static_cast<std::uint32_t>(operation_id);
  Operation& operation = engine.operations_[id];
  const std::uint32_t block = operation.command.block;
  Status status = with_memory([&] { return engine.heal(operation); });
  const Lock lock(engine.mutex_);
  if (!engine.task_over(std::move(status))) return;
  PENSTOCK_LOG(engine.parts_.logger, LogLevel::kWarning,
               "block {} in {}: what was read did not match its sum; a second read did", block,
               engine.options_.directory);
  if (operation.command.kind == Command::Kind::kUpdate) engine.rest_unverified_[block] = 0;
  engine.finish(id, operation.roots);
}

}  // namespace penstock
