// The monitor: events in, commands out, waiting.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <system_error>

#include "engine/engine_impl.hpp"

namespace penstock {
namespace {

constexpr std::uint64_t kStallWarningNs = 30'000'000'000;
constexpr std::uint8_t kReadRetries = 2;
constexpr std::uint64_t kPartBits = 1;

}  // namespace

// --- facts -----------------------------------------------------------------------------------

std::uint64_t EngineImpl::step() const {
  const Lock lock = lock_for_facts();
  return step_;
}
std::uint64_t EngineImpl::updates() const {
  const Lock lock = lock_for_facts();
  return updates_;
}
std::uint64_t EngineImpl::committed_step() const {
  const Lock lock = lock_for_facts();
  return committed_step_;
}
std::uint64_t EngineImpl::waited_ns() const {
  const Lock lock = lock_for_facts();
  return waited_ns_;
}
Status EngineImpl::error() const {
  PENSTOCK_CHECK_OK(home_.check(kEngine));
  const Lock lock(mutex_);
  return sticky();
}
std::string EngineImpl::queue_backend() const {
  return queue_->backend();
}

Status EngineImpl::sticky() const {
  if (!failure_) return ok();
  return Error{failure_->code, failure_->sys_errno, failure_->message};
}

std::string EngineImpl::block_name(std::size_t block) const {
  const BlockPlan& plan = plan_.blocks[block];
  const auto& ranges = layout_.block_ranges(static_cast<std::uint32_t>(block));
  const std::string tensor = ranges.empty() ? "" : model_.tensors[ranges.front().tensor].name;
  return fmt::format("tensor \"{}\" (group \"{}\", elements from {})", tensor,
                     model_.groups[plan.group], plan.first_element);
}

bool EngineImpl::task_over(Status status) {
  ++progress_;
  --tasks_in_flight_;
  if (status) return true;
  fail(std::move(status).error());
  return false;
}

void EngineImpl::fail(Error error) {
  if (failure_) return;
  failure_ = std::make_unique<Error>(std::move(error));
  // Names of tensors are the user's business: errors are returned with them, logs keep them out.
  PENSTOCK_LOG(parts_.logger, LogLevel::kError,
               "the engine of {} stopped; every call now returns the reason", options_.directory);
  PENSTOCK_LOG(parts_.logger, LogLevel::kDebug, "the engine stopped: {}", failure_->message);
  changed_.notify_all();
}

// --- waiting ---------------------------------------------------------------------------------

/// One wait for the next event. Time without any event is what the deadline limits.
Status EngineImpl::wait_step(Lock& lock, const char* what, std::uint64_t& last,
                             std::uint64_t& since, bool& warned) {
  if (parts_.executor.driven_by_caller()) {
    lock.unlock();
    const bool ran = parts_.executor.run_one();
    lock.lock();
    if (!ran && progress_ == last) {
      fail(make_error(
          Errc::kTimeout,
          fmt::format(
              "the drive of {} lost a completion ({} commands in flight) while {}; the last "
              "commit (step {}) is safe: restart once the drive answers",
              options_.directory, scheduler_->commands_in_flight(), what, committed_step_)));
      return sticky();
    }
  } else {
    changed_.wait_for(lock, std::chrono::milliseconds(500));
  }
  const std::uint64_t now = parts_.now_ns();
  PENSTOCK_CHECK_OK(check_drives(now));
  if (progress_ != last) {
    last = progress_;
    since = now;
    warned = false;
    return ok();
  }
  const std::uint64_t waited = now - since;
  if (waited > kStallWarningNs && !warned) {
    warned = true;
    PENSTOCK_LOG(parts_.logger, LogLevel::kWarning,
                 "no I/O completed on the drive of {} for {} s while {} (oldest request {} s old)",
                 options_.directory, waited / 1'000'000'000, what,
                 queue_->stats().oldest_in_flight_ns / 1'000'000'000);
  }
  if (waited > options_.deadline_ns) {
    fail(make_error(
        Errc::kTimeout,
        fmt::format("nothing moved on the drive of {} for {} s while {}; the last commit (step "
                    "{}) is safe: restart once the drive answers",
                    options_.directory, waited / 1'000'000'000, what, committed_step_)));
    return sticky();
  }
  return ok();
}

// --- commands --------------------------------------------------------------------------------

void EngineImpl::run_commands() {
  Command command;
  while (!failure_ && !closing_ && scheduler_->next(command)) {
    if (Status status = execute(command); !status) fail(std::move(status).error());
  }
  if (const char* broken = scheduler_->broken(); broken != nullptr && !failure_) {
    fail(make_error(
        Errc::kInternal,
        fmt::format("a scheduling rule is broken ({}); this is a bug, please report it", broken)));
  }
}

std::uint32_t EngineImpl::take_operation(const Command& command) {
  const std::uint32_t id = free_operations_.back();
  free_operations_.pop_back();
  Operation& operation = operations_[id];
  operation.command = command;
  operation.retries = 0;
  if (command.block != kNone) operation.entry = table_->entry(command.block);
  return id;
}

void EngineImpl::post(Task task, bool blocking) {
  ++tasks_in_flight_;
  if (blocking) {
    parts_.executor.submit_blocking(task);
  } else {
    parts_.executor.submit(task);
  }
}

/// The slot of a command, in the store or in its copy.
DriveExtent EngineImpl::place_of(const Command& command) const {
  const bool copy =
      command.kind == Command::Kind::kTeeHi || command.kind == Command::Kind::kTeeState;
  return copy ? tee_store_->slot(command.block) : store_->slot(command.slot);
}

/// Fills the requests of an I/O command: what of the block goes where.
void EngineImpl::describe_requests(Operation& operation, std::size_t& parts) {
  const Command& command = operation.command;
  const auto& extents = store_->extents(command.block);
  const bool is_write =
      command.kind == Command::Kind::kWriteHi || command.kind == Command::Kind::kWriteState ||
      command.kind == Command::Kind::kTeeHi || command.kind == Command::Kind::kTeeState ||
      command.kind == Command::Kind::kSpillGradient;
  const auto add = [&](DriveExtent where, std::uint64_t offset, std::byte* memory,
                       std::uint64_t bytes) {
    operation.requests[parts++] = {is_write ? IoOp::kWrite : IoOp::kRead,
                                   command.io_class,
                                   where.file,
                                   where.offset_bytes + offset,
                                   memory,
                                   bytes,
                                   0};
  };
  const std::uint64_t gradient_bytes =
      round_up(std::uint64_t{plan_.blocks[command.block].elements} * 2, kPageBytes);
  switch (command.kind) {
    case Command::Kind::kReadHi:
    case Command::Kind::kWriteHi:
    case Command::Kind::kTeeHi: {
      const SectionExtent& hi = extents[kHiSection];
      const DriveExtent slot = place_of(command);
      add(slot, hi.data_offset, section_data(command.block, kHiSection), hi.padded_bytes);
      add(slot, hi.sums_offset,
          reinterpret_cast<std::byte*>(section_sums(command.block, kHiSection)), hi.sums_bytes);
      break;
    }
    case Command::Kind::kReadState:
    case Command::Kind::kWriteState:
    case Command::Kind::kTeeState: {
      const std::uint64_t first = extents[kLoSection].data_offset;
      const SectionExtent& last = extents[kVSection];
      add(place_of(command), first, state_base(command.block),
          last.sums_offset + last.sums_bytes - first);
      break;
    }
    case Command::Kind::kReadGradient:
      add(store_->spill(plan_.blocks[command.block].spill_index), 0,
          state_base(command.block) + rest_bytes_, gradient_bytes);
      break;
    case Command::Kind::kSpillGradient:
    case Command::Kind::kReopenGradient:
      add(store_->spill(plan_.blocks[command.block].spill_index), 0,
          frames_.gradient[command.frame].data, gradient_bytes);
      break;
    default:
      break;
  }
}

Status EngineImpl::issue_io(std::uint32_t id, std::size_t parts) {
  Operation& operation = operations_[id];
  operation.parts = static_cast<std::uint8_t>(parts);
  for (std::size_t i = 0; i < parts; ++i) {
    operation.requests[i].cookie = (std::uint64_t{id} << kPartBits) | i;
  }
  return queue_->submit({operation.requests, parts});
}

Status EngineImpl::execute(const Command& command) {
  const bool uses_state_frame =
      command.kind == Command::Kind::kReadState || command.kind == Command::Kind::kReadGradient ||
      command.kind == Command::Kind::kUpdate || command.kind == Command::Kind::kGatherHi;
  if (uses_state_frame) state_frame_of_[command.block] = command.frame;
  const std::uint32_t id = take_operation(command);
  switch (command.kind) {
    case Command::Kind::kVerifyHi:
      post({&EngineImpl::verify_task, this, id}, false);
      return ok();
    case Command::Kind::kUpdate:
      post({&EngineImpl::update_task, this, id}, false);
      return ok();
    case Command::Kind::kGatherHi:
      post({&EngineImpl::gather_task, this, id}, false);
      return ok();
    case Command::Kind::kCommit:
      post({&EngineImpl::commit_task, this, id}, true);
      return ok();
    case Command::Kind::kTeeBlock:
      operations_[id].entry = table_->commit_entry(command.block);
      post({&EngineImpl::tee_task, this, id}, true);
      return ok();
    case Command::Kind::kSpillGradient:
      sum_spill(command.block);
      break;
    default:
      break;
  }
  std::size_t parts = 0;
  describe_requests(operations_[id], parts);
  return issue_io(id, parts);
}

void EngineImpl::count_traffic(const Operation& operation) {
  const Command& command = operation.command;
  const std::uint64_t elements = plan_.blocks[command.block].elements;
  const TrafficKind usual = flushing_ ? TrafficKind::kFinalFlush : TrafficKind::kDemand;
  const auto homed = [&](bool in_ram) {
    return in_ram && !flushing_ ? TrafficKind::kCommitOfRamHomed : usual;
  };
  const GroupPlan& group = group_of(command.block);
  switch (command.kind) {
    case Command::Kind::kReadHi:
      counters_.add(Link::kDriveRead, TensorClass::kHi,
                    command.reuse ? TrafficKind::kTiedReuse : usual, elements * kHiBytes);
      break;
    case Command::Kind::kWriteHi:
      counters_.add(Link::kDriveWrite, TensorClass::kHi, homed(group.hi_pinned || group.lent),
                    elements * kHiBytes);
      break;
    case Command::Kind::kReadState:
      counters_.add(Link::kDriveRead, TensorClass::kState, usual, elements * kStateBytes);
      break;
    case Command::Kind::kWriteState:
      counters_.add(Link::kDriveWrite, TensorClass::kState,
                    homed(plan_.blocks[command.block].state_pinned), elements * kStateBytes);
      break;
    case Command::Kind::kReadGradient:
    case Command::Kind::kReopenGradient:
      counters_.add(Link::kDriveRead, TensorClass::kGradient, TrafficKind::kSpill, elements * 2);
      break;
    case Command::Kind::kSpillGradient:
      counters_.add(Link::kDriveWrite, TensorClass::kGradient, TrafficKind::kSpill, elements * 2);
      break;
    case Command::Kind::kTeeHi:
      counters_.add(Link::kDriveWrite, TensorClass::kHi, TrafficKind::kTee, elements * kHiBytes);
      break;
    case Command::Kind::kTeeState:
      counters_.add(Link::kDriveWrite, TensorClass::kState, TrafficKind::kTee,
                    elements * kStateBytes);
      break;
    default:
      break;
  }
}

void EngineImpl::io_complete(const IoCompletion& completion) noexcept {
  const Lock lock(mutex_);
  ++progress_;
  const auto id = static_cast<std::uint32_t>(completion.cookie >> kPartBits);
  if (closing_) return;
  Operation& operation = operations_[id];
  const std::size_t part = completion.cookie & ((1U << kPartBits) - 1);
  if (completion.code != Errc::kOk) {
    const IoRequest& request = operation.requests[part];
    if (request.op == IoOp::kRead && operation.retries < kReadRetries) {
      ++operation.retries;  // a transient error of the path heals on a second read
      if (Status status = queue_->submit({&request, 1}); !status) fail(std::move(status).error());
      return;
    }
    const std::uint32_t block = operation.command.block;
    const bool copy = operation.command.kind == Command::Kind::kTeeHi ||
                      operation.command.kind == Command::Kind::kTeeState;
    if (copy) {
      tee_failed(
          make_error(completion.code,
                     fmt::format("write {} at byte {}: {}", block_name(block), request.offset_bytes,
                                 std::generic_category().message(completion.sys_errno)),
                     completion.sys_errno));
      if (--operation.parts == 0) finish(id);
      return;
    }
    const char* remedy = completion.code == Errc::kNoSpace
                             ? "free space, or raise the quota or file size limit"
                             : "check the drive";
    fail(make_error(
        completion.code,
        fmt::format("{} {} at byte {} of {}: {}; the last commit (step {}) is safe: {}, then "
                    "resume",
                    request.op == IoOp::kRead ? "read" : "write", block_name(block),
                    request.offset_bytes, store_->path_of(request.file),
                    completion.sys_errno == 0
                        ? std::string("the file ends early")
                        : std::generic_category().message(completion.sys_errno),
                    committed_step_, remedy) +
            (options_.further_directories.empty()
                 ? std::string()
                 : " (on that drive: " + tensors_on(request.file) + ")"),
        completion.sys_errno));
    return;
  }
  if (--operation.parts > 0) return;
  count_traffic(operation);
  if (operation.command.kind == Command::Kind::kReadState) {
    rest_unverified_[operation.command.block] = 1;
  }
  if (operation.command.kind == Command::Kind::kReopenGradient &&
      !spill_holds(operation.command.block, frames_.gradient[operation.command.frame].data)) {
    fail(make_error(Errc::kCorrupt,
                    fmt::format("spilled gradient of {} does not match its sum; the last commit "
                                "(step {}) is safe: check the drive, then resume",
                                block_name(operation.command.block), committed_step_)));
    return;
  }
  finish(id);
}

/// A command is done: feed the scheduler, run what follows. Needs the lock.
void EngineImpl::finish(std::uint32_t id, std::span<const std::uint64_t> roots) {
  const Command command = operations_[id].command;
  free_operations_.push_back(id);
  if (!failure_) scheduler_->done(command, roots);
  run_commands();
  changed_.notify_all();
}

}  // namespace penstock
