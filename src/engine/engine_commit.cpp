// What outlives the process: commits, the flush that waits for one, checkpoints.

#include <fmt/format.h>

#include "base/with_memory.hpp"
#include "engine/engine_impl.hpp"

namespace penstock {
namespace {

constexpr std::uint64_t kLongestCommitIntervalNs = 30ULL * 60 * 1'000'000'000;

}  // namespace

bool EngineImpl::commit_due() const {
  if (options_.scratch) return false;
  const std::uint32_t every = plan_.commit_every;
  return (every > 0 && step_ % every == 0) || commit_overdue_;
}

bool EngineImpl::is_overdue() const {
  return parts_.now_ns() - last_commit_ns_ >= kLongestCommitIntervalNs;
}

void EngineImpl::begin_commit() {
  commit_record_.step = step_;
  commit_record_.updates = updates_;
  commit_record_.blob.assign(last_blob_.begin(), last_blob_.end());
  checkpoint_.reset();
  scheduler_->commit_begin();
}

/// On the blocking task. Whatever fails is final for the store.
Status EngineImpl::commit_and_pin(const std::optional<CheckpointRequest>& request,
                                  PinChange& change) {
  PENSTOCK_CHECK_OK(ranks_->commit(*store_, commit_record_, table_->commit_entries()));
  if (!request) return ok();
  auto made = make_checkpoint(*request);
  if (!made) return std::move(made).error();
  change = std::move(made).value();
  return ok();
}

void EngineImpl::commit_task(void* self, std::uint64_t operation_id) {
  EngineImpl& engine = *static_cast<EngineImpl*>(self);
  std::optional<CheckpointRequest> request;
  bool copies = false;
  {
    const Lock lock(engine.mutex_);
    if (engine.failure_ || engine.closing_) {  // failed, or went away, since it was asked for
      --engine.tasks_in_flight_;
      return;
    }
    if (engine.options_.faults.late_blob) engine.commit_record_.blob = engine.last_blob_;
    engine.commit_running_ = true;
    request = engine.checkpoint_;
    copies = engine.teeing() && engine.tee_.failure.empty();
  }
  // The record and the entries stay as they are until the commit has finished.
  PinChange change;
  Status status = with_memory([&] { return engine.commit_and_pin(request, change); });
  Status copied = ok();
  if (status && copies) {
    copied = with_memory(
        [&] { return engine.commit_copy(engine.commit_record_, engine.table_->commit_entries()); });
  }
  const Lock lock(engine.mutex_);
  engine.commit_running_ = false;
  if (!engine.task_over(std::move(status))) return;
  if (engine.teeing() && engine.tee_.step == engine.commit_record_.step) {
    engine.finish_tee(std::move(copied));
  }
  engine.committed_step_ = engine.commit_record_.step;
  engine.last_commit_ns_ = engine.parts_.now_ns();
  // Before the commit is finished: slots of the checkpoint must not go back to the pool with it.
  if (request) engine.pins_changed(change);
  engine.finish(static_cast<std::uint32_t>(operation_id));
}

Status EngineImpl::flush() {
  PENSTOCK_CHECK_OK(home_.check(kEngine));
  Lock lock(mutex_);
  PENSTOCK_CHECK_OK(sticky());
  flushing_ = true;
  scheduler_->set_sweep(true);
  Status status = wait_until(lock, "finishing updates and the last commit", [&] {
    return scheduler_->settled() && !scheduler_->commit_in_progress();
  });
  if (status && !options_.scratch && committed_step_ < step_) {
    begin_commit();
    status = wait_until(lock, "committing", [&] { return committed_step_ == step_; });
  }
  if (status) {
    status = wait_until(lock, "finishing writes",
                        [&] { return scheduler_->commands_in_flight() == 0 || options_.scratch; });
  }
  if (model_.level == Level::kWeights) scheduler_->set_sweep(false);
  flushing_ = false;
  return status;
}

// --- checkpoints -----------------------------------------------------------------------------

void EngineImpl::pins_changed(const PinChange& change) {
  table_->change_pins(change.kept, change.dropped);
  pins_ = summarize_pins(*store_);
}

std::vector<PinSummary> EngineImpl::checkpoints() const {
  const Lock lock = lock_for_facts();
  return pins_;
}

/// Only while no commit runs in the store.
Status EngineImpl::check_checkpoint(const CheckpointRequest& request) const {
  return request.name.empty() ? check_rotation(*store_, step_)
                              : store_->check_pin(request.name, false);
}

/// The new one is durable before an old one goes, on all ranks.
Result<PinChange> EngineImpl::make_checkpoint(const CheckpointRequest& request) {
  const bool rotates = request.name.empty();
  auto made = rotates ? begin_rotation(*store_) : store_->pin(request.name, false);
  Status done = made ? ok() : Status(made.error());
  PENSTOCK_CHECK_OK(ranks_->agree(std::move(done), "a checkpoint"));
  if (!rotates) return made;
  auto dropped = finish_rotation(*store_, request.keep);
  if (!dropped) return dropped;
  made.value().dropped = std::move(dropped.value().dropped);
  return made;
}

Status EngineImpl::check_between_steps() const {
  PENSTOCK_CHECK_OK(sticky());
  if (options_.scratch) {
    return make_error(Errc::kState, "a scratch store has no commits; create one without scratch");
  }
  if (options_.mode == OpenMode::kRead) {
    return make_error(Errc::kState, "the store was opened for reading; resume it to keep states");
  }
  if (!in_step_ && !in_eval_) return ok();
  return make_error(Errc::kState, "a step or an evaluation is under way; end it first");
}

/// Whether the commit in progress is of the last step and its task has not begun.
bool EngineImpl::can_join() const {
  return scheduler_->commit_in_progress() && commit_record_.step == step_ && !commit_running_;
}

Status EngineImpl::checkpoint(const CheckpointRequest& request) {
  PENSTOCK_CHECK_OK(home_.check(kEngine));
  Lock lock(mutex_);
  PENSTOCK_CHECK_OK(check_between_steps());
  // One checkpoint goes with a commit; a second one of the same step follows it.
  PENSTOCK_CHECK_OK(wait_until(lock, "finishing the last commit", [&] {
    return (can_join() && !checkpoint_) || !scheduler_->commit_in_progress();
  }));
  PENSTOCK_CHECK_OK(check_checkpoint(request));
  if (scheduler_->commit_in_progress() || committed_step_ != step_) {
    if (!scheduler_->commit_in_progress()) begin_commit();
    checkpoint_ = request;
    run_commands();
    return sticky();
  }
  // Committed already. No commit begins meanwhile: that is this thread's to ask for.
  lock.unlock();
  auto change = make_checkpoint(request);
  lock.lock();
  if (!change) {
    fail(std::move(change).error());
    return sticky();
  }
  pins_changed(change.value());
  return ok();
}

Status EngineImpl::drop_checkpoint(const std::string& name) {
  PENSTOCK_CHECK_OK(home_.check(kEngine));
  Lock lock(mutex_);
  PENSTOCK_CHECK_OK(sticky());
  PENSTOCK_CHECK_OK(wait_until(lock, "finishing the last commit",
                               [&] { return !scheduler_->commit_in_progress(); }));
  lock.unlock();
  auto change = store_->drop(name);
  lock.lock();
  if (!change && change.error().code == Errc::kState) return std::move(change).error();
  if (!change) {
    fail(std::move(change).error());
    return sticky();
  }
  pins_changed(change.value());
  run_commands();
  return ok();
}

}  // namespace penstock
