// A copy of a commit in another store, written beside the commit itself.
//
// The copy has the geometry of the store but data files of its own, block i in slot i, and the id
// that seeds the store's sums, so sections go over as they are. It is committed after the store's
// own commit; whatever fails on its way ends the copy, not the training.

#include <fmt/format.h>

#include <algorithm>

#include "engine/engine_impl.hpp"

namespace penstock {

Result<std::unique_ptr<Store>> EngineImpl::create_copy(const StoreDirectories& directories) {
  StoreGeometry geometry = store_->geometry();
  geometry.drives.assign(directories.size(), 1);
  geometry.pins = 0;
  StoreOptions options;
  options.copy = {true, store_->sums_uuid()};
  options.uuid_seed = options_.uuid_seed == 0 ? 0 : options_.uuid_seed + step_ + 1;
  return create_store(parts_.storage, directories, geometry, options);
}

Status EngineImpl::tee(const StoreDirectories& directories) {
  PENSTOCK_CHECK_OK(home_.check(kEngine));
  Lock lock(mutex_);
  PENSTOCK_CHECK_OK(check_between_steps());
  if (parts_.communicator.size() > 1) {
    return make_error(Errc::kUnsupported,
                      "a store of several ranks is not copied as one; use checkpoints");
  }
  // One copy at a time, and none with a commit that may not wait for it any more.
  PENSTOCK_CHECK_OK(wait_until(lock, "finishing the last commit", [&] {
    const bool joins = can_join() && !scheduler_->commit_issued();
    return !teeing() && (joins || !scheduler_->commit_in_progress());
  }));
  PENSTOCK_TAKE(copy, create_copy(directories));
  std::uint64_t largest = 0;
  for (std::size_t b = 0; b < plan_.blocks.size(); ++b) {
    for (const SectionExtent& extent : store_->extents(b)) {
      largest = std::max(largest, extent.total_bytes());
    }
  }
  tee_buffer_ = std::make_unique<PageBuffer>(largest);
  if (tee_buffer_->empty()) {
    return make_error(Errc::kNoMemory,
                      fmt::format("the copy in {} needs {} bytes of memory; give the program more",
                                  directories.text(), largest));
  }
  tee_store_ = std::move(copy);
  tee_ = {TeeReport::State::kCopying, directories.text(), step_, 0, {}};
  if (!scheduler_->commit_in_progress() && committed_step_ == step_) {
    lock.unlock();  // no commit begins meanwhile: that is this thread's to ask for
    Status status = copy_committed();
    lock.lock();
    for (std::uint32_t b = 0; b < plan_.blocks.size(); ++b) tee_.read_bytes += data_bytes(b);
    finish_tee(std::move(status));
    return ok();
  }
  if (!scheduler_->commit_in_progress()) begin_commit();
  scheduler_->tee_begin();
  run_commands();
  return sticky();
}

TeeReport EngineImpl::last_tee() const {
  const Lock lock = lock_for_facts();
  return tee_;
}

void EngineImpl::tee_failed(Error error) {
  if (tee_.failure.empty()) {
    tee_.failure = std::move(error).in(fmt::format("copy to {}", tee_.directory)).message;
  }
}

/// Needs the lock. The copy is closed before anybody hears that it is done.
void EngineImpl::finish_tee(Status status) {
  if (!status) tee_failed(std::move(status).error());
  tee_store_.reset();
  tee_buffer_.reset();
  const bool done = tee_.failure.empty();
  tee_.state = done ? TeeReport::State::kDone : TeeReport::State::kFailed;
  if (done) return;
  PENSTOCK_LOG(parts_.logger, LogLevel::kWarning, "{}; training goes on", tee_.failure);
}

std::uint64_t EngineImpl::data_bytes(std::uint32_t block) const {
  std::uint64_t bytes = 0;
  for (const SectionExtent& extent : store_->extents(block)) bytes += extent.data_bytes;
  return bytes;
}

/// Reads a block's sections, checked, and writes them to the copy.
Status EngineImpl::copy_block(std::uint32_t block, const SlotEntry& entry) {
  const DriveExtent to = tee_store_->slot(block);
  for (std::size_t s = 0; s < kSectionCount; ++s) {
    const SectionExtent& extent = store_->extents(block)[s];
    if (extent.total_bytes() == 0) continue;
    const auto bytes = tee_buffer_->first(extent.total_bytes());
    PENSTOCK_CHECK_OK(store_->read_section(block, s, entry, bytes));
    PENSTOCK_CHECK_OK(
        parts_.storage.write_at(to.file, to.offset_bytes + extent.data_offset, bytes));
    counters_.add(Link::kDriveRead, TensorClass::kOther, TrafficKind::kTee, extent.data_bytes);
    counters_.add(Link::kDriveWrite, TensorClass::kOther, TrafficKind::kTee, extent.data_bytes);
  }
  return ok();
}

Status EngineImpl::copy_committed() {
  std::vector<SlotEntry> entries;
  for (std::uint32_t block = 0; block < plan_.blocks.size(); ++block) {
    entries.push_back(table_->entry(block));
    PENSTOCK_CHECK_OK(copy_block(block, entries.back()));
  }
  return commit_copy(store_->committed(), entries);
}

/// The same table, in the copy's slots.
Status EngineImpl::commit_copy(const CommitRecord& record, std::span<const SlotEntry> entries) {
  std::vector<SlotEntry> copied(entries.begin(), entries.end());
  for (std::size_t block = 0; block < copied.size(); ++block) {
    copied[block].slot = static_cast<SlotIndex>(block);
  }
  return tee_store_->commit(record, copied);
}

void EngineImpl::tee_task(void* self, std::uint64_t operation_id) {
  EngineImpl& engine = *static_cast<EngineImpl*>(self);
  const auto id = static_cast<std::uint32_t>(operation_id);
  const Operation& operation = engine.operations_[id];
  const std::uint32_t block = operation.command.block;
  bool wanted = false;
  {
    const Lock lock(engine.mutex_);
    wanted = !engine.failure_ && !engine.closing_ && engine.tee_.failure.empty();
  }
  Status status = wanted ? engine.copy_block(block, operation.entry) : ok();
  const Lock lock(engine.mutex_);
  ++engine.progress_;
  --engine.tasks_in_flight_;
  if (wanted) engine.tee_.read_bytes += engine.data_bytes(block);
  // What the store itself does not return will fail the training where it needs it.
  if (!status) engine.tee_failed(std::move(status).error());
  engine.finish(id);
}

}  // namespace penstock
