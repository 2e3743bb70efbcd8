// Gradients on their way in: contributions, rounding, norm, frames.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "engine/engine_impl.hpp"

namespace penstock {
namespace {

/// Norm blocks per task: 64 Ki elements.
constexpr std::size_t kNormBlocksPerTask = 16;

std::size_t size_of(WeightType type) {
  return type == WeightType::kF32 ? 4 : 2;
}

}  // namespace

Status EngineImpl::check_gradient(TensorId tensor, WeightType type, std::uint32_t k,
                                  std::uint32_t n, const void* values) {
  if (tensor >= model_.tensors.size()) {
    return make_error(Errc::kArgument, fmt::format("there is no tensor {}", tensor));
  }
  const TensorSpec& spec = model_.tensors[tensor];
  const auto bad = [&](Errc code, const std::string& why) {
    return make_error(code, fmt::format("gradient of \"{}\": {}", spec.name, why));
  };
  if (values == nullptr || type == WeightType::kNone) {
    return bad(Errc::kArgument, "needs an array of f32, bf16 or f16");
  }
  if (!spec.trainable) return bad(Errc::kArgument, "the tensor is frozen");
  if (n != spec.contributions || k >= n) {
    return bad(Errc::kArgument, fmt::format("contribution {} of {}: it was registered with {} per "
                                            "step, counted from 0",
                                            k, n, spec.contributions));
  }
  if (!in_step_ || in_eval_)
    return bad(Errc::kState, "no step is under way; call step_begin first");
  if (has_gradient_[tensor] != 0) return bad(Errc::kState, "given twice in one step");
  const std::uint32_t seen = contributions_[tensor];
  const bool in_order = n == 2 ? ((seen >> k) & 1U) == 0 : seen == k;
  if (!in_order) {
    return bad(Errc::kState,
               fmt::format("contribution {} of {} is out of order or came twice", k, n));
  }
  if (model_.level == Level::kWeights && acquired_step_[spec.group] != step_ + 1) {
    return bad(Errc::kState,
               "its group was not acquired in this step, so the gradient was computed "
               "from old weights");
  }
  if (model_.level == Level::kStates && waited_updates_[tensor] < tensor_updates_[tensor]) {
    return bad(Errc::kState,
               fmt::format("computed from old weights: wait for update {} of the tensor first",
                           tensor_updates_[tensor]));
  }
  for (const Range& range : layout_.tensor_ranges(tensor)) {
    if (!scheduler_->accepts_gradient(range.block)) {
      return bad(Errc::kState, "computed from old weights: its last update is not done");
    }
  }
  return ok();
}

Status EngineImpl::gradient(TensorId tensor, const void* values, WeightType type, std::uint32_t k,
                            std::uint32_t n) {
  PENSTOCK_CHECK_OK(home_.check(kEngine));
  {
    const Lock lock(mutex_);
    PENSTOCK_CHECK_OK(sticky());
    PENSTOCK_CHECK_OK(check_gradient(tensor, type, k, n, values));
  }
  if (n == 1) {
    PENSTOCK_CHECK_OK(take_gradient(tensor, values, type));
  } else {
    const std::uint32_t seen = contributions_[tensor];
    PENSTOCK_CHECK_OK(accumulate(tensor, values, type, seen == 0));
    // Two contributions in either order (a bit each), more in ascending order (a count).
    contributions_[tensor] = n == 2 ? seen | (1U << k) : seen + 1;
    const bool last = n == 2 ? contributions_[tensor] == 3U : contributions_[tensor] == n;
    if (!last) return ok();
    PENSTOCK_CHECK_OK(take_gradient(tensor, frames_.accumulators[tensor].data, WeightType::kF32));
  }
  has_gradient_[tensor] = 1;
  return ok();
}

Status EngineImpl::accumulate(TensorId tensor, const void* values, WeightType type, bool first) {
  const std::uint64_t elements = tensor_elements(tensor);
  auto* sum = reinterpret_cast<float*>(frames_.accumulators[tensor].data);
  constexpr std::uint64_t kPiece = kNormBlock * kNormBlocksPerTask;
  const auto body = [&](std::size_t piece) {
    const std::uint64_t at = piece * kPiece;
    const std::size_t count = std::min(kPiece, elements - at);
    const auto* in = static_cast<const std::byte*>(values) + at * size_of(type);
    const auto* half = reinterpret_cast<const std::uint16_t*>(in);
    float* out = sum + at;
    if (type == WeightType::kF32) {
      const auto* full = reinterpret_cast<const float*>(in);
      if (first) {
        std::memcpy(out, full, count * sizeof(float));
      } else {
        kernels_.add_f32(count, full, out);
      }
    } else if (type == WeightType::kBf16) {
      (first ? kernels_.bf16_to_f32 : kernels_.add_bf16)(count, half, out);
    } else {
      (first ? kernels_.f16_to_f32 : kernels_.add_f16)(count, half, out);
    }
  };
  parts_.executor.parallel_for((elements + kPiece - 1) / kPiece, std::cref(body));
  return ok();
}

/// Waits for the frame that takes the block's gradient.
Result<std::uint16_t*> EngineImpl::gradient_memory(std::uint32_t block) {
  Lock lock(mutex_);
  std::uint32_t frame = kNone;
  PENSTOCK_CHECK_OK(wait_until(lock, "making room for a gradient", [&] {
    frame = scheduler_->gradient_frame(block);
    return frame != kNone;
  }));
  return reinterpret_cast<std::uint16_t*>(frames_.gradient[frame].data);
}

/// Rounds one range into its frame and takes the norm of what was rounded.
void EngineImpl::convert(const void* values, WeightType type, const Range& range,
                         std::uint16_t* frame) {
  const std::size_t blocks = (range.elements + kNormBlock - 1) / kNormBlock;
  const std::size_t tasks = (blocks + kNormBlocksPerTask - 1) / kNormBlocksPerTask;
  const std::size_t first_norm = range.first_in_tensor / kNormBlock;
  const auto body = [&](std::size_t task) {
    const std::size_t end = std::min(blocks, (task + 1) * kNormBlocksPerTask);
    for (std::size_t i = task * kNormBlocksPerTask; i < end; ++i) {
      const std::size_t at = i * kNormBlock;
      const std::size_t count = std::min(kNormBlock, range.elements - at);
      const auto* in =
          static_cast<const std::byte*>(values) + (range.first_in_tensor + at) * size_of(type);
      std::uint16_t* out = frame + range.first_in_block + at;
      if (type == WeightType::kF32) {
        kernels_.f32_to_bf16(count, reinterpret_cast<const float*>(in), out);
      } else if (type == WeightType::kBf16) {
        std::memcpy(out, in, count * 2);
      } else {
        float wide[kNormBlock];
        kernels_.f16_to_f32(count, reinterpret_cast<const std::uint16_t*>(in), wide);
        kernels_.f32_to_bf16(count, wide, out);
      }
      norm_parts_[first_norm + i] = kernels_.norm_bf16(count, out);
    }
  };
  parts_.executor.parallel_for(tasks, std::cref(body));
}

/// A tensor smaller than a norm block may lie across two blocks: rounded aside, then copied.
Status EngineImpl::take_small(TensorId tensor, const void* values, WeightType type) {
  std::uint16_t rounded[kNormBlock];
  const auto elements = static_cast<std::uint32_t>(tensor_elements(tensor));
  const Range whole{tensor, 0, 0, elements, 0};
  convert(values, type, whole, rounded);
  for (const Range& range : layout_.tensor_ranges(tensor)) {
    PENSTOCK_TAKE(frame, gradient_memory(range.block));
    std::memcpy(frame + range.first_in_block, rounded + range.first_in_tensor,
                std::size_t{range.elements} * 2);
    range_filled(range.block);
  }
  return ok();
}

void EngineImpl::range_filled(std::uint32_t block) {
  const Lock lock(mutex_);
  if (--ranges_left_[block] > 0) return;
  scheduler_->gradient_filled(block);
  run_commands();
}

Status EngineImpl::take_gradient(TensorId tensor, const void* values, WeightType type) {
  const std::uint64_t elements = tensor_elements(tensor);
  if (elements < kNormBlock) {
    PENSTOCK_CHECK_OK(take_small(tensor, values, type));
  } else {
    for (const Range& range : layout_.tensor_ranges(tensor)) {
      PENSTOCK_TAKE(frame, gradient_memory(range.block));
      convert(values, type, range, frame);
      range_filled(range.block);
    }
  }
  NormPart total;
  for (std::size_t i = 0; i < (elements + kNormBlock - 1) / kNormBlock; ++i) {
    total.sum_of_squares += norm_parts_[i].sum_of_squares;
    total.finite = total.finite && norm_parts_[i].finite;
  }
  tensor_norm_[tensor] = total;
  return ok();
}

}  // namespace penstock
