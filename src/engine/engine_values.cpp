// Weights at opening: first versions into a new store, and level 1's arrays out of it.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/checksum.hpp"
#include "base/random.hpp"
#include "engine/engine_impl.hpp"
#include "io/page_buffer.hpp"

namespace penstock {
namespace {

/// First values are made in pieces of this many elements, each a function of its elements only.
constexpr std::uint32_t kFillPiece = 4096;

}  // namespace

// --- first versions --------------------------------------------------------------------------

void EngineImpl::fill_piece(const Range& range, std::uint32_t at, std::uint32_t count,
                            float* out) const {
  const TensorSpec& tensor = model_.tensors[range.tensor];
  const std::uint64_t first = range.first_in_tensor + at;
  const auto* bytes = static_cast<const std::byte*>(tensor.weights);
  switch (tensor.init.kind) {
    case Init::Kind::kZeros:
      std::fill(out, out + count, 0.0F);
      break;
    case Init::Kind::kConstant:
      std::fill(out, out + count, tensor.init.constant);
      break;
    case Init::Kind::kNormal: {
      const std::uint64_t stream = hash_name(tensor.name);
      for (std::uint32_t i = 0; i < count; ++i) {
        out[i] = tensor.init.deviation * approximately_normal(options_.seed, stream, first + i);
      }
      break;
    }
    case Init::Kind::kValues:
      tensor.init.values(first, count, out);
      break;
    case Init::Kind::kWeights:
      if (tensor.weight_type == WeightType::kF32) {
        std::memcpy(out, bytes + first * 4, std::size_t{count} * 4);
      } else {
        const auto* half = reinterpret_cast<const std::uint16_t*>(bytes) + first;
        const bool bf16 = tensor.weight_type == WeightType::kBf16;
        (bf16 ? kernels_.bf16_to_f32 : kernels_.f16_to_f32)(count, half, out);
      }
      break;
  }
}

/// hi and lo of a block's first version; between tensors everything is zero.
void EngineImpl::fill_block(std::uint32_t block) {
  const bool trainable = group_of(block).trainable;
  auto* hi = reinterpret_cast<std::uint16_t*>(section_data(block, kHiSection));
  std::memset(hi, 0, std::size_t{plan_.blocks[block].elements} * kHiBytes);
  auto* lo =
      trainable ? reinterpret_cast<std::uint16_t*>(section_data(block, kLoSection)) : nullptr;
  if (trainable) {
    for (std::size_t s = kLoSection; s < kSectionCount; ++s) {
      std::memset(section_data(block, s), 0, store_->extents(block)[s].data_bytes);
    }
  }
  for (const Range& range : layout_.block_ranges(block)) {
    const auto fill = [&](std::size_t piece) {
      float master[kFillPiece];
      std::uint16_t dropped[kFillPiece];
      const auto at = static_cast<std::uint32_t>(piece) * kFillPiece;
      const std::uint32_t count = std::min(kFillPiece, range.elements - at);
      fill_piece(range, at, count, master);
      const std::size_t to = range.first_in_block + at;
      kernels_.split(count, master, hi + to, lo != nullptr ? lo + to : dropped);
    };
    const std::size_t pieces = (range.elements + kFillPiece - 1) / kFillPiece;
    if (model_.tensors[range.tensor].init.kind == Init::Kind::kValues) {
      for (std::size_t i = 0; i < pieces; ++i) fill(i);  // the caller's function: one thread
    } else {
      parts_.executor.parallel_for(pieces, fill);
    }
  }
}

Status EngineImpl::write_first_version(std::uint32_t block) {
  const BlockPlan& plan = plan_.blocks[block];
  const GroupPlan& group = group_of(block);
  state_frame_of_[block] = plan.state_pinned ? plan.state_frame : 0;
  fill_block(block);
  const auto& extents = store_->extents(block);
  const std::size_t sections = group.trainable ? kSectionCount : 1;
  parts_.executor.parallel_for(extents[kHiSection].tiles, [&](std::size_t tile) {
    for (std::size_t s = 0; s < sections; ++s) {
      sum_tile(block, 0, s, static_cast<std::uint32_t>(tile));
    }
  });
  const SlotIndex slot = table_->choose_target(block, 0);
  const DriveExtent where = store_->slot(slot);
  std::uint64_t roots[kSectionCount] = {};
  for (std::size_t s = 0; s < sections; ++s) roots[s] = root_of(block, 0, s);
  const auto write = [&](std::uint64_t offset, const void* memory, std::uint64_t bytes) {
    counters_.add(Link::kDriveWrite, TensorClass::kOther, TrafficKind::kInitial, bytes);
    return parts_.storage.write_at(where.file, where.offset_bytes + offset,
                                   {static_cast<const std::byte*>(memory), bytes});
  };
  const SectionExtent& hi = extents[kHiSection];
  PENSTOCK_CHECK_OK(write(hi.data_offset, section_data(block, kHiSection), hi.padded_bytes));
  PENSTOCK_CHECK_OK(write(hi.sums_offset, section_sums(block, kHiSection), hi.sums_bytes));
  if (group.trainable) {
    const SectionExtent& last = extents[kVSection];
    const std::uint64_t first = extents[kLoSection].data_offset;
    PENSTOCK_CHECK_OK(write(first, state_base(block), last.sums_offset + last.sums_bytes - first));
  }
  for (std::size_t s = 0; s < sections; ++s) table_->landed(block, 0, slot, s, roots[s]);
  return ok();
}

Status EngineImpl::write_first_versions() {
  for (std::uint32_t b = 0; b < plan_.blocks.size(); ++b) {
    PENSTOCK_CHECK_OK(write_first_version(b));
  }
  if (options_.scratch) return ok();
  table_->commit_begin();
  for (std::uint32_t b = 0; b < plan_.blocks.size(); ++b) table_->commit_record(b);
  PENSTOCK_CHECK_OK(ranks_->commit(*store_, CommitRecord{}, table_->commit_entries()));
  table_->commit_finished();
  return ok();
}

// --- level 1: the trainer's arrays -----------------------------------------------------------

Status EngineImpl::hand_out(const Range& range, std::span<std::byte> bounce) {
  const TensorSpec& tensor = model_.tensors[range.tensor];
  const auto& extents = store_->extents(range.block);
  const SlotEntry& entry = table_->entry(range.block);
  const std::uint64_t hi_bytes = extents[kHiSection].total_bytes();
  PENSTOCK_CHECK_OK(store_->read_section(range.block, kHiSection, entry, bounce.first(hi_bytes)));
  const auto* hi = reinterpret_cast<const std::uint16_t*>(bounce.data()) + range.first_in_block;
  if (tensor.weight_type == WeightType::kBf16) {
    std::memcpy(static_cast<std::uint16_t*>(tensor.weights) + range.first_in_tensor, hi,
                std::size_t{range.elements} * kHiBytes);
    return ok();
  }
  const std::uint16_t zeros[kFillPiece] = {};
  const std::uint16_t* lo = nullptr;
  if (tensor.trainable) {
    const auto rest = bounce.subspan(hi_bytes, extents[kLoSection].total_bytes());
    PENSTOCK_CHECK_OK(store_->read_section(range.block, kLoSection, entry, rest));
    lo = reinterpret_cast<const std::uint16_t*>(rest.data()) + range.first_in_block;
  }
  for (std::uint32_t at = 0; at < range.elements; at += kFillPiece) {
    const std::uint32_t count = std::min(kFillPiece, range.elements - at);
    const std::uint64_t to = range.first_in_tensor + at;
    const std::uint16_t* rest = lo != nullptr ? lo + at : zeros;
    if (tensor.weight_type == WeightType::kF32) {
      kernels_.join(count, hi + at, rest, static_cast<float*>(tensor.weights) + to);
    } else {
      float master[kFillPiece];
      kernels_.join(count, hi + at, rest, master);
      kernels_.f32_to_f16(count, master, static_cast<std::uint16_t*>(tensor.weights) + to);
    }
  }
  return ok();
}

Status EngineImpl::hand_out_weights() {
  if (model_.level != Level::kStates) return ok();
  std::uint64_t largest = 0;
  for (std::uint32_t b = 0; b < plan_.blocks.size(); ++b) {
    const auto& extents = store_->extents(b);
    largest =
        std::max(largest, extents[kHiSection].total_bytes() + extents[kLoSection].total_bytes());
  }
  PageBuffer bounce(largest);
  if (bounce.empty()) {
    return make_error(Errc::kNoMemory,
                      fmt::format("{} bytes to hand out the weights of {} are not to be had",
                                  largest, options_.directory));
  }
  for (TensorId t = 0; t < model_.tensors.size(); ++t) {
    const TensorSpec& tensor = model_.tensors[t];
    const bool has_them = !resumed_ && tensor.init.kind == Init::Kind::kWeights;
    if (tensor.weights == nullptr || has_them) continue;
    for (const Range& range : layout_.tensor_ranges(t)) {
      PENSTOCK_CHECK_OK(hand_out(range, bounce.span()));
    }
  }
  return ok();
}

}  // namespace penstock
