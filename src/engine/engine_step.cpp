// Steps as the trainer sees them: begin, acquire, end, evaluation, waiting, export.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/engine_impl.hpp"
#include "io/page_buffer.hpp"

namespace penstock {
namespace {

constexpr std::size_t kMaxBlob = 1 << 20;
constexpr std::uint64_t kRankDeadlineNs = 120'000'000'000;

}  // namespace

Status EngineImpl::step_begin() {
  PENSTOCK_CHECK_OK(home_.check(kEngine));
  const Lock lock(mutex_);
  PENSTOCK_CHECK_OK(sticky());
  if (options_.mode == OpenMode::kRead) {
    return make_error(Errc::kState, "the store was opened for reading; resume it to train");
  }
  if (in_step_ || in_eval_) {
    return make_error(Errc::kState,
                      in_step_ ? "the last step has not ended; end or skip it first"
                               : "an evaluation is under way; end it before the next step");
  }
  in_step_ = true;
  counters_.begin_step(step_ + 1);
  std::fill(has_gradient_.begin(), has_gradient_.end(), std::uint8_t{0});
  std::fill(contributions_.begin(), contributions_.end(), 0U);
  for (std::uint32_t b = 0; b < plan_.blocks.size(); ++b) {
    ranges_left_[b] = static_cast<std::uint32_t>(layout_.block_ranges(b).size());
  }
  return ok();
}

Result<GroupLease> EngineImpl::acquire(GroupId group) {
  PENSTOCK_CHECK_OK(home_.check(kEngine));
  Lock lock(mutex_);
  PENSTOCK_CHECK_OK(sticky());
  if (group >= plan_.groups.size()) {
    return make_error(Errc::kArgument, fmt::format("there is no group {}", group));
  }
  if (model_.level != Level::kWeights) {
    return make_error(Errc::kState, "at level 1 the trainer keeps its own weights; use them");
  }
  scheduler_->want(group);
  std::uint32_t holder = kNone;
  Status status = wait_until(lock, "reading a group", [&] {
    if (scheduler_->ready(group)) return true;
    holder = scheduler_->blocking_group(group);
    return holder != kNone;
  });
  if (status && holder != kNone) {
    status =
        make_error(Errc::kState,
                   fmt::format("group \"{}\" needs the memory that a lease on group \"{}\" holds; "
                               "release that first, or grant more host memory",
                               model_.groups[group], model_.groups[holder]));
  }
  if (!status) {
    scheduler_->unwant(group);
    return std::move(status).error();
  }
  scheduler_->lease(group);
  if (in_step_) acquired_step_[group] = step_ + 1;
  run_commands();
  return make_lease(
      group, updates_,
      reinterpret_cast<const std::uint16_t*>(frames_.hi[plan_.groups[group].hi_frame].data));
}

void EngineImpl::release(GroupId group) noexcept {
  if (!home_.is_here()) return;
  const Lock lock(mutex_);
  scheduler_->release(group);
  run_commands();
  changed_.notify_all();
}

// --- the end of a step -----------------------------------------------------------------------

/// Norm over tensors in name order, over ranks in rank order; then the clip factor.
Status EngineImpl::judge(const StepInput& input, StepReport& report) {
  double sum = 0.0;
  std::uint64_t flags = 0;  // bit 0: some gradient; 1: not finite; 2: time for a commit
  for (const TensorId tensor : layout_.by_name()) {
    if (has_gradient_[tensor] == 0) continue;
    flags |= 1U;
    sum += tensor_norm_[tensor].sum_of_squares;
    if (!tensor_norm_[tensor].finite) flags |= 2U;
  }
  if (is_overdue()) flags |= 4U;
  const std::uint64_t deadline = parts_.now_ns() + kRankDeadlineNs;
  PENSTOCK_CHECK_OK(parts_.communicator.all_reduce_sum_fp64({&sum, 1}, deadline));
  PENSTOCK_CHECK_OK(parts_.communicator.all_reduce_or({&flags, 1}, deadline));
  report.norm = std::sqrt(sum) * std::fabs(input.gradient_scale);
  report.clip = input.max_norm > 0.0 ? std::min(1.0, input.max_norm / (report.norm + 1e-6)) : 1.0;
  commit_overdue_ = (flags & 4U) != 0;
  if (options_.faults.skip_finite_check) {
    report.applied = (flags & 1U) != 0;
    return ok();
  }
  report.applied = (flags & 3U) == 1U && std::isfinite(report.norm) && std::isfinite(report.clip);
  return ok();
}

Result<StepReport> EngineImpl::step_end(const StepInput& input, std::span<const std::byte> blob) {
  PENSTOCK_CHECK_OK(home_.check(kEngine));
  return end_step(&input, blob);
}

Result<StepReport> EngineImpl::step_skip(std::span<const std::byte> blob) {
  PENSTOCK_CHECK_OK(home_.check(kEngine));
  return end_step(nullptr, blob);
}

Result<StepReport> EngineImpl::end_step(const StepInput* input, std::span<const std::byte> blob) {
  Lock lock(mutex_);
  PENSTOCK_CHECK_OK(sticky());
  if (!in_step_) return make_error(Errc::kState, "no step is under way; begin one first");
  if (blob.size() > kMaxBlob) {
    return make_error(Errc::kArgument, fmt::format("the blob has {} bytes, at most {} are kept",
                                                   blob.size(), kMaxBlob));
  }
  for (GroupId g = 0; g < plan_.groups.size(); ++g) {
    if (scheduler_->leases(g) > 0) {
      return make_error(Errc::kState, fmt::format("group \"{}\" is still leased; release it first",
                                                  model_.groups[g]));
    }
  }
  for (TensorId t = 0; t < model_.tensors.size() && input != nullptr; ++t) {
    if (contributions_[t] != 0 && has_gradient_[t] == 0) {
      return make_error(
          Errc::kState,
          fmt::format("only some of the {} contributions to the gradient of \"{}\" were "
                      "given; give all, or skip the step",
                      model_.tensors[t].contributions, model_.tensors[t].name));
    }
  }
  StepReport report;
  commit_overdue_ = parts_.communicator.size() == 1 && is_overdue();  // several agree in judge()
  if (input != nullptr) PENSTOCK_CHECK_OK(judge(*input, report));

  // What earlier steps left undone (groups nobody visited since) comes first.
  scheduler_->set_sweep(true);
  PENSTOCK_CHECK_OK(wait_until(lock, "finishing the updates of the last step",
                               [&] { return scheduler_->settled(); }));
  if (model_.level == Level::kWeights) scheduler_->set_sweep(false);

  ++step_;
  if (report.applied) {
    ++updates_;
    record_ = {step_, updates_, input->hyper, report.clip * input->gradient_scale};
    policy_.on_step(record_);
    record_gradient_ = has_gradient_;
    for (TensorId t = 0; t < model_.tensors.size(); ++t) {
      if (has_gradient_[t] != 0) tensor_updates_[t] = updates_;
    }
  }
  last_blob_.assign(blob.begin(), blob.end());
  in_step_ = false;
  report.step = step_;
  report.updates = updates_;
  report.commits = commit_due();
  if (report.commits) {
    // The commit before has had the whole backward to finish; normally this waits for nothing.
    PENSTOCK_CHECK_OK(wait_until(lock, "finishing the last commit",
                                 [&] { return !scheduler_->commit_in_progress(); }));
  }
  scheduler_->step_ended(report.applied, updates_);
  if (report.commits) begin_commit();
  run_commands();
  look_at_drives();
  changed_.notify_all();
  PENSTOCK_CHECK_OK(sticky());
  return report;
}

// --- evaluation ------------------------------------------------------------------------------

Status EngineImpl::eval_begin() {
  PENSTOCK_CHECK_OK(home_.check(kEngine));
  const Lock lock(mutex_);
  PENSTOCK_CHECK_OK(sticky());
  if (in_step_ || in_eval_) {
    return make_error(Errc::kState, "a step or an evaluation is under way; end it first");
  }
  in_eval_ = true;
  scheduler_->set_forward_only(true);
  run_commands();
  return ok();
}

Status EngineImpl::eval_end() {
  PENSTOCK_CHECK_OK(home_.check(kEngine));
  const Lock lock(mutex_);
  PENSTOCK_CHECK_OK(sticky());
  if (!in_eval_) return make_error(Errc::kState, "no evaluation is under way; begin one first");
  in_eval_ = false;
  scheduler_->set_forward_only(false);
  run_commands();
  return ok();
}

// --- level 1 ---------------------------------------------------------------------------------

Status EngineImpl::wait(TensorId tensor, std::uint64_t updates) {
  PENSTOCK_CHECK_OK(home_.check(kEngine));
  Lock lock(mutex_);
  PENSTOCK_CHECK_OK(sticky());
  if (tensor >= model_.tensors.size() || updates > updates_) {
    return make_error(
        Errc::kArgument,
        fmt::format("tensor {} at update {} cannot come: there are {} tensors and {} updates",
                    tensor, updates, model_.tensors.size(), updates_));
  }
  scheduler_->set_sweep(true);
  PENSTOCK_CHECK_OK(wait_until(lock, "updating a tensor", [&] {
    return std::all_of(
        layout_.tensor_ranges(tensor).begin(), layout_.tensor_ranges(tensor).end(),
        [&](const Range& range) { return scheduler_->state(range.block) == BlockState::kBase; });
  }));
  waited_updates_[tensor] = updates_;
  return ok();
}

Result<bool> EngineImpl::query(TensorId tensor, std::uint64_t updates) {
  PENSTOCK_CHECK_OK(home_.check(kEngine));
  const Lock lock(mutex_);
  PENSTOCK_CHECK_OK(sticky());
  if (tensor >= model_.tensors.size() || updates > updates_) {
    return make_error(Errc::kArgument,
                      fmt::format("tensor {} at update {} is not known", tensor, updates));
  }
  for (const Range& range : layout_.tensor_ranges(tensor)) {
    if (scheduler_->state(range.block) != BlockState::kBase) return false;
  }
  waited_updates_[tensor] = updates_;
  return true;
}

// --- export ----------------------------------------------------------------------------------

Status EngineImpl::export_master(TensorId tensor, float* out) {
  PENSTOCK_CHECK_OK(home_.check(kEngine));
  if (tensor >= model_.tensors.size()) {
    return make_error(Errc::kArgument, fmt::format("there is no tensor {}", tensor));
  }
  if (out == nullptr) {
    return make_error(Errc::kArgument,
                      fmt::format("\"{}\" cannot be exported to NULL; give an array",
                                  model_.tensors[tensor].name));
  }
  const GroupId group = model_.tensors[tensor].group;
  const bool trainable = plan_.groups[group].trainable;
  for (const Range& range : layout_.tensor_ranges(tensor)) {
    const std::uint32_t b = range.block;
    Lock lock(mutex_);
    PENSTOCK_CHECK_OK(sticky());
    scheduler_->want(group);
    Status status = wait_until(lock, "exporting a tensor",
                               [&] { return scheduler_->ready(group) && scheduler_->at_rest(b); });
    scheduler_->unwant(group);
    PENSTOCK_CHECK_OK(std::move(status));
    const SlotEntry entry = table_->entry(b);
    const bool in_frame = scheduler_->rest_in_frame(b);
    scheduler_->hold(group);
    lock.unlock();
    PageBuffer memory(trainable && !in_frame ? store_->extents(b)[kLoSection].total_bytes() : 0);
    const std::uint16_t* lo = nullptr;
    if (trainable && in_frame) {
      lo = reinterpret_cast<const std::uint16_t*>(section_data(b, kLoSection));
    } else if (trainable) {
      status = store_->read_section(b, kLoSection, entry, memory.span());
      lo = reinterpret_cast<const std::uint16_t*>(memory.span().data());
    }
    if (status) {
      std::vector<std::uint16_t> zeros(trainable ? 0 : range.elements);
      const bool lent = plan_.groups[group].lent;
      const std::uint16_t* hi =
          lent ? static_cast<const std::uint16_t*>(model_.tensors[tensor].weights) +
                     range.first_in_tensor
               : reinterpret_cast<const std::uint16_t*>(section_data(b, kHiSection)) +
                     range.first_in_block;
      kernels_.join(range.elements, hi, trainable ? lo + range.first_in_block : zeros.data(),
                    out + range.first_in_tensor);
    }
    lock.lock();
    scheduler_->release(group);
    run_commands();
    PENSTOCK_CHECK_OK(std::move(status));
  }
  return ok();
}

}  // namespace penstock
