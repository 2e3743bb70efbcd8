// Virtual time advances only in Simulation::run_event(): the part that finishes first gets its
// event, ties in the order drive, processor, commit. The trainer is a plain function that calls
// run_event() until what it waits for is there.
// lint: long because it is one class, whose parts share the clock

#include "plan/simulator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <limits>

#include "io/slot_table.hpp"
#include "plan/scheduler.hpp"

namespace penstock {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// A part that serves one command at a time, the lowest class first.
struct Server {
  std::array<std::deque<Command>, kIoClassCount> waiting;
  Command current;
  double started = 0.0;
  double finishes = kNever;

  void start_next(double now, auto&& seconds_of) {
    if (finishes != kNever) return;
    for (auto& queue : waiting) {
      if (queue.empty()) continue;
      current = queue.front();
      queue.pop_front();
      started = now;
      finishes = now + seconds_of(current);
      return;
    }
  }
};

SlotTable committed_table(const Plan& plan) {
  std::size_t slots = 0;
  std::vector<SlotEntry> entries(plan.blocks.size());
  for (std::uint32_t b = 0; b < entries.size(); ++b) {
    const bool trainable = plan.groups[plan.blocks[b].group].trainable;
    entries[b].slot = b;
    entries[b].written = trainable ? (1U << kSectionCount) - 1 : 1U << kHiSection;
    slots += trainable ? 2 : 1;
  }
  SlotTable table(entries.size(), slots, kSectionCount, false);
  table.load_durable(entries);
  return table;
}

class Simulation {
 public:
  Simulation(const Plan& plan, const SimRates& rates)
      : plan_(plan),
        rates_(rates),
        table_(committed_table(plan)),
        scheduler_(plan, table_, std::vector<std::uint64_t>(plan.blocks.size(), 0)) {
    scheduler_.set_sweep(plan.level == Level::kStates);
    last_backward_.assign(plan.groups.size(), kNone);
    for (std::uint32_t i = 0; i < plan.backward.size(); ++i) last_backward_[plan.backward[i]] = i;
  }

  Status run_step(const SimStep& step, SimStepReport& report) {
    report_ = &report;
    report.peak_in_flight = scheduler_.commands_in_flight();
    const double begin = now_;
    PENSTOCK_CHECK_OK(plan_.level == Level::kWeights ? level2(step) : level1(step));
    PENSTOCK_CHECK_OK(end_step(step.applied));
    if (step.evaluate && plan_.level == Level::kWeights) PENSTOCK_CHECK_OK(evaluate());
    if (step.flush) PENSTOCK_CHECK_OK(flush());
    report.seconds = now_ - begin;
    return ok();
  }

 private:
  // --- parts

  [[nodiscard]] double seconds_of(const Command& command) const {
    const double bytes = static_cast<double>(bytes_of(command));
    switch (command.kind) {
      case Command::Kind::kWriteHi:
      case Command::Kind::kWriteState:
      case Command::Kind::kSpillGradient:
        return bytes / rates_.write_bytes_per_second;
      case Command::Kind::kUpdate:
        return rates_.update_seconds * elements_of(command) / plan_.block_elements;
      case Command::Kind::kCommit:
        return rates_.commit_seconds;
      default:  // reads; a check or a copy in memory moves no bytes of the drive
        return bytes / rates_.read_bytes_per_second;
    }
  }

  [[nodiscard]] double elements_of(const Command& command) const {
    return plan_.blocks[command.block].elements;
  }

  [[nodiscard]] std::uint64_t bytes_of(const Command& command) const {
    if (command.block == kNone) return 0;
    const std::uint64_t elements = plan_.blocks[command.block].elements;
    switch (command.kind) {
      case Command::Kind::kReadHi:
      case Command::Kind::kWriteHi:
        return elements * kHiBytes;
      case Command::Kind::kReadState:
      case Command::Kind::kWriteState:
        return elements * kStateBytes;
      case Command::Kind::kReadGradient:
      case Command::Kind::kSpillGradient:
      case Command::Kind::kReopenGradient:
        return elements * 2;
      default:
        return 0;
    }
  }

  void count(const Command& command) {
    SimBytes& bytes = report_->bytes;
    const std::uint64_t moved = bytes_of(command);
    const auto homed = [&](bool in_ram, std::uint64_t& usual) -> std::uint64_t& {
      return in_ram ? bytes.ram_homed : usual;
    };
    switch (command.kind) {
      case Command::Kind::kReadHi:
        bytes.hi_read += moved;
        break;
      case Command::Kind::kWriteHi: {
        const GroupPlan& group = plan_.groups[plan_.blocks[command.block].group];
        homed(group.hi_pinned || group.lent, bytes.hi_write) += moved;
        break;
      }
      case Command::Kind::kReadState:
        bytes.state_read += moved;
        break;
      case Command::Kind::kWriteState:
        homed(plan_.blocks[command.block].state_pinned, bytes.state_write) += moved;
        break;
      case Command::Kind::kReadGradient:
        bytes.spill_read += moved;
        break;
      case Command::Kind::kSpillGradient:
        bytes.spill_write += moved;
        break;
      case Command::Kind::kReopenGradient:
        bytes.spill_reopened += moved;
        break;
      case Command::Kind::kUpdate:
        ++report_->updates;
        break;
      case Command::Kind::kCommit:
        ++report_->commits;
        break;
      default:
        break;
    }
  }

  void finish(const Command& command) {
    static constexpr std::uint64_t kNoRoots[kSectionCount] = {};
    count(command);
    if (command.kind == Command::Kind::kCommit) committed_step_ = commit_step_;
    scheduler_.done(command, kNoRoots);
  }

  /// Hands out commands until the scheduler has none left to give.
  void run_commands() {
    Command command;
    while (scheduler_.next(command)) {
      report_->peak_in_flight = std::max(report_->peak_in_flight, scheduler_.commands_in_flight());
      switch (command.kind) {
        case Command::Kind::kVerifyHi:
        case Command::Kind::kGatherHi:
          finish(command);  // in memory, beside the transfers
          break;
        case Command::Kind::kUpdate:
          processor_.waiting[static_cast<std::size_t>(command.io_class)].push_back(command);
          break;
        case Command::Kind::kCommit:
          commit_.waiting[0].push_back(command);
          break;
        default:
          drive_.waiting[static_cast<std::size_t>(command.io_class)].push_back(command);
          break;
      }
    }
    const auto seconds = [&](const Command& c) { return seconds_of(c); };
    for (Server* part : {&drive_, &processor_, &commit_}) part->start_next(now_, seconds);
  }

  [[nodiscard]] double next_event() const {
    return std::min({drive_.finishes, processor_.finishes, commit_.finishes});
  }

  void run_event() {
    for (Server* part : {&drive_, &processor_, &commit_}) {
      if (part->finishes != next_event()) continue;
      now_ = std::max(now_, part->finishes);
      const double busy = part->finishes - part->started;
      if (part == &drive_) report_->drive_seconds += busy;
      if (part == &processor_) report_->update_seconds += busy;
      part->finishes = kNever;
      finish(part->current);
      break;
    }
    run_commands();
  }

  // --- the trainer

  Status wait_until(const char* what, double& wait, auto&& ready) {
    const double begin = now_;
    while (true) {
      run_commands();
      if (scheduler_.broken() != nullptr) {
        return make_error(Errc::kInternal,
                          fmt::format("simulate: {}: scheduler: {}", what, scheduler_.broken()));
      }
      if (ready()) break;
      run_commands();  // of what ready() asked for
      if (next_event() == kNever) {
        return make_error(Errc::kInternal,
                          fmt::format("simulate: {}: the trainer waits and nothing is left to "
                                      "happen; this is a bug, please report it",
                                      what));
      }
      run_event();
    }
    wait += now_ - begin;
    return ok();
  }

  void compute(double seconds) {
    const double end = now_ + seconds;
    run_commands();
    while (next_event() <= end) run_event();
    now_ = end;
    report_->compute_seconds += seconds;
  }

  Status visit(std::uint32_t group, double seconds) {
    scheduler_.want(group);
    run_commands();
    const bool updates = unsettled(group);
    PENSTOCK_CHECK_OK(wait_until("acquire",
                                 updates ? report_->waits.updates : report_->waits.weights,
                                 [&] { return scheduler_.ready(group); }));
    scheduler_.lease(group);
    compute(seconds);
    return ok();
  }

  [[nodiscard]] bool unsettled(std::uint32_t group) const {
    const GroupPlan& g = plan_.groups[group];
    for (std::uint32_t b = g.first_block; b < g.first_block + g.block_count; ++b) {
      if (scheduler_.state(b) != BlockState::kBase) return true;
    }
    return false;
  }

  Status give_gradients(const SimStep& step, std::uint32_t group) {
    const GroupPlan& g = plan_.groups[group];
    if (!g.trainable || (group < step.skipped.size() && step.skipped[group])) return ok();
    for (std::uint32_t b = g.first_block; b < g.first_block + g.block_count; ++b) {
      PENSTOCK_CHECK_OK(wait_until("gradient", report_->waits.gradient,
                                   [&] { return scheduler_.gradient_frame(b) != kNone; }));
      scheduler_.gradient_filled(b);
      run_commands();
    }
    return ok();
  }

  Status level2(const SimStep& step) {
    for (const std::uint32_t group : plan_.forward) {
      PENSTOCK_CHECK_OK(visit(group, rates_.forward_visit_seconds));
      scheduler_.release(group);
    }
    for (std::uint32_t i = 0; i < plan_.backward.size(); ++i) {
      const std::uint32_t group = plan_.backward[i];
      PENSTOCK_CHECK_OK(visit(group, rates_.backward_visit_seconds));
      if (last_backward_[group] == i) PENSTOCK_CHECK_OK(give_gradients(step, group));
      scheduler_.release(group);
    }
    return ok();
  }

  Status level1(const SimStep& step) {
    for (const std::uint32_t group : plan_.forward) {
      PENSTOCK_CHECK_OK(
          wait_until("wait", report_->waits.updates, [&] { return !unsettled(group); }));
      compute(rates_.forward_visit_seconds);
    }
    std::vector<bool> given(plan_.groups.size(), false);
    for (std::size_t i = plan_.forward.size(); i > 0; --i) {
      const std::uint32_t group = plan_.forward[i - 1];
      compute(rates_.backward_visit_seconds);
      if (!given[group]) PENSTOCK_CHECK_OK(give_gradients(step, group));
      given[group] = true;
    }
    return ok();
  }

  Status end_step(bool applied) {
    scheduler_.set_sweep(true);
    PENSTOCK_CHECK_OK(
        wait_until("step end", report_->waits.settle, [&] { return scheduler_.settled(); }));
    scheduler_.set_sweep(plan_.level == Level::kStates);
    ++step_;
    updates_ += applied ? 1 : 0;
    const bool commits = plan_.commit_every > 0 && step_ % plan_.commit_every == 0;
    if (commits) PENSTOCK_CHECK_OK(wait_for_commit(report_->waits.commit));
    scheduler_.step_ended(applied, updates_);
    if (commits) begin_commit();
    run_commands();
    return ok();
  }

  Status wait_for_commit(double& wait) {
    return wait_until("commit", wait, [&] { return !scheduler_.commit_in_progress(); });
  }

  void begin_commit() {
    commit_step_ = step_;
    scheduler_.commit_begin();
  }

  Status evaluate() {
    scheduler_.set_forward_only(true);
    for (const std::uint32_t group : plan_.forward) {
      PENSTOCK_CHECK_OK(visit(group, rates_.forward_visit_seconds));
      scheduler_.release(group);
    }
    scheduler_.set_forward_only(false);
    run_commands();
    return ok();
  }

  Status flush() {
    double& wait = report_->waits.flush;
    scheduler_.set_sweep(true);
    PENSTOCK_CHECK_OK(wait_until("flush", wait, [&] { return scheduler_.settled(); }));
    PENSTOCK_CHECK_OK(wait_for_commit(wait));
    if (committed_step_ < step_) {
      begin_commit();
      PENSTOCK_CHECK_OK(wait_for_commit(wait));
    }
    PENSTOCK_CHECK_OK(
        wait_until("flush", wait, [&] { return scheduler_.commands_in_flight() == 0; }));
    scheduler_.set_sweep(plan_.level == Level::kStates);
    return ok();
  }

  const Plan& plan_;
  const SimRates& rates_;
  SlotTable table_;
  Scheduler scheduler_;
  std::vector<std::uint32_t> last_backward_;  // per group: its last position in backward
  Server drive_, processor_, commit_;
  double now_ = 0.0;
  std::uint64_t step_ = 0, updates_ = 0, commit_step_ = 0, committed_step_ = 0;
  SimStepReport* report_ = nullptr;
};

Status check(const SimRates& rates) {
  const auto bad = [](const char* name, double value, const char* rule) {
    return make_error(Errc::kArgument, fmt::format("simulate: {} is {}, {}", name, value, rule));
  };
  const std::pair<const char*, double> speeds[] = {{"read rate", rates.read_bytes_per_second},
                                                   {"write rate", rates.write_bytes_per_second}};
  for (const auto& [name, value] : speeds) {
    if (!std::isfinite(value) || value <= 0.0) {
      return bad(name, value, "but has to be a number of bytes per second above 0");
    }
  }
  const std::pair<const char*, double> times[] = {
      {"time of a forward visit", rates.forward_visit_seconds},
      {"time of a backward visit", rates.backward_visit_seconds},
      {"time of an update", rates.update_seconds},
      {"time of a commit", rates.commit_seconds}};
  for (const auto& [name, value] : times) {
    if (!std::isfinite(value) || value < 0.0) {
      return bad(name, value, "but has to be a number of seconds, at least 0");
    }
  }
  return ok();
}

}  // namespace

Result<std::vector<SimStepReport>> simulate(const Plan& plan, const SimRates& rates,
                                            std::span<const SimStep> script) {
  PENSTOCK_CHECK_OK(check(rates));
  Simulation simulation(plan, rates);
  std::vector<SimStepReport> reports(script.size());
  for (std::size_t i = 0; i < script.size(); ++i) {
    if (Status status = simulation.run_step(script[i], reports[i]); !status) {
      return std::move(status).error().in(fmt::format("step {}", i + 1));
    }
  }
  return reports;
}

}  // namespace penstock
