#pragma once

// lint: long because it is one class, whose parts draw from one seed

/// A trainer, a reader beside it and parts that finish in any order, all from one seed, around a
/// Scheduler and its Oracle.

#include <optional>
#include <random>
#include <string>
#include <vector>

#include "plan/scheduler_oracle.hpp"

namespace penstock::testing {

using Random = std::mt19937_64;

inline std::uint32_t below(Random& random, std::uint64_t limit) {
  return static_cast<std::uint32_t>(random() % limit);
}
inline bool chance(Random& random, std::uint32_t percent) {
  return below(random, 100) < percent;
}

/// A part of a tensor in a block, and the other parts of that tensor.
struct SmallTensor {
  std::uint32_t group = 0;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> ranges;  // block, number in the block
};

/// Shapes small enough that every frame is fought for.
inline PlanRequest random_request(Random& random) {
  PlanRequest request;
  request.level = chance(random, 35) ? Level::kStates : Level::kWeights;
  request.block_elements = static_cast<std::uint32_t>(kTileElements);
  const std::uint32_t groups = 1 + below(random, 6);
  const bool lent = request.level == Level::kStates && chance(random, 50);
  const std::uint32_t usual = 1 + below(random, 4);
  for (std::uint32_t g = 0; g < groups; ++g) {
    GroupShape shape;
    shape.elements = kTileElements * (chance(random, 60) ? usual : 1 + below(random, 4));
    if (chance(random, 20)) shape.elements -= 4096 * below(random, 4);
    shape.trainable = !chance(random, 15);
    shape.lent = lent && !chance(random, 20);
    request.groups.push_back(shape);
    request.forward.push_back(g);
  }
  if (groups > 1 && chance(random, 30)) request.forward.push_back(0);  // tied
  if (request.level == Level::kWeights) {
    request.backward.assign(request.forward.rbegin(), request.forward.rend());
  }
  request.commit_every = below(random, 4);
  return request;
}

inline Plan random_plan(Random& random) {
  PlanRequest request = random_request(random);
  request.host_bytes = std::uint64_t{1} << 40;
  const auto everything = make_plan(request);
  const std::uint64_t least = everything.value().minimum_bytes;
  const std::uint64_t rest = everything.value().host_bytes - least;
  request.host_bytes = chance(random, 30) ? least : least + rest * below(random, 101) / 100;
  return std::move(make_plan(request)).value();
}

/// How the parts choose what finishes next.
enum class Finish { kAny, kFirst, kLast, kStarveOne };

class World {
  static constexpr std::uint64_t kManyEvents = 100'000;  // a run has some hundreds

 public:
  explicit World(std::uint64_t seed)
      : random_(seed),
        plan_(random_plan(random_)),
        versions_(random_versions()),
        table_(committed_table()),
        scheduler_(plan_, table_, versions_),
        oracle_(plan_, table_, versions_) {
    finish_ = static_cast<Finish>(below(random_, 4));
    starved_ = static_cast<Command::Kind>(below(random_, 14));
    laziness_ = below(random_, 4) == 0 ? 100 : below(random_, 100);
    has_reader_ = chance(random_, 40);
    updates_ = *std::max_element(versions_.begin(), versions_.end());
    scheduler_.set_sweep(plan_.level == Level::kStates);
    split_tensors();
  }

  /// Runs some steps and a flush; empty, or the first broken rule.
  std::string run() {
    const std::uint32_t steps = 2 + below(random_, 5);
    for (std::uint32_t i = 0; i < steps && !oracle_.failed(); ++i) step();
    flush();
    if (!oracle_.failed() && oracle_.updates_done() != given_) {
      oracle_.fail(fmt::format("{} updates done of {}", oracle_.updates_done(), given_));
    }
    return oracle_.why();
  }

  [[nodiscard]] std::uint64_t commits() const { return commits_; }
  [[nodiscard]] std::uint64_t given() const { return given_; }
  [[nodiscard]] std::uint64_t reopened() const { return reopened_; }
  [[nodiscard]] const Plan& plan() const { return plan_; }

 private:
  std::vector<std::uint64_t> random_versions() {
    const std::uint32_t newest = below(random_, 3);
    std::vector<std::uint64_t> versions(plan_.blocks.size());
    for (std::uint64_t& version : versions) version = below(random_, newest + 1);
    return versions;
  }

  SlotTable committed_table() {
    std::vector<SlotEntry> entries(plan_.blocks.size());
    std::size_t slots = 0;
    for (std::uint32_t b = 0; b < entries.size(); ++b) {
      const bool trainable = plan_.groups[plan_.blocks[b].group].trainable;
      entries[b] = {b, versions_[b], trainable ? 15U : 1U, {}};
      for (std::size_t s = 0; s < kSectionCount; ++s) {
        entries[b].roots[s] = root_of(b, versions_[b], s);
      }
      slots += trainable ? 2 : 1;
    }
    SlotTable table(entries.size(), slots, kSectionCount, false);
    table.load_durable(entries);
    return table;
  }

  /// Each trainable group's tile-sized pieces in some tensors that may cross blocks.
  void split_tensors() {
    ranges_.assign(plan_.blocks.size(), 0);
    for (std::uint32_t g = 0; g < plan_.groups.size(); ++g) {
      const GroupPlan& group = plan_.groups[g];
      if (!group.trainable) continue;
      const std::uint32_t end = group.first_block + group.block_count;
      SmallTensor tensor{g, {}};
      for (std::uint32_t b = group.first_block; b < end; ++b) {
        const std::uint32_t pieces = 1 + below(random_, 3);
        for (std::uint32_t i = 0; i < pieces; ++i) {
          tensor.ranges.emplace_back(b, i);
          const bool stays = i + 1 == pieces && b + 1 < end && chance(random_, 50);
          if (stays) continue;  // the tensor goes on in the next block
          tensors_.push_back(tensor);
          tensor.ranges.clear();
        }
        ranges_[b] = pieces;
      }
    }
  }

  // --- parts

  void drain() {
    Command command;
    while (!oracle_.failed() && scheduler_.next(command)) {
      reopened_ += command.kind == Command::Kind::kReopenGradient ? 1 : 0;
      oracle_.issue(command);
    }
    if (scheduler_.broken() != nullptr) oracle_.fail(scheduler_.broken());
    if (oracle_.failed()) return;
    if (scheduler_.commands_in_flight() != oracle_.flights().size()) {
      oracle_.fail("commands in flight are miscounted");
    }
    if (scheduler_.settled() != oracle_.settled()) oracle_.fail("settled() is wrong");
    for (std::uint32_t b = 0; b < plan_.blocks.size(); ++b) {
      if (scheduler_.accepts_gradient(b) == oracle_.pending(b)) {
        oracle_.fail(fmt::format("accepts_gradient({}) is wrong", b));
      }
    }
  }

  void finish_one() {
    const std::vector<Command>& flights = oracle_.flights();
    std::size_t index = below(random_, flights.size());
    if (finish_ == Finish::kFirst) index = 0;
    if (finish_ == Finish::kLast) index = flights.size() - 1;
    for (std::size_t tries = 0; finish_ == Finish::kStarveOne && tries < flights.size(); ++tries) {
      if (flights[index].kind != starved_) break;
      index = (index + 1) % flights.size();
    }
    const Command command = flights[index];
    std::vector<std::uint64_t> roots(kSectionCount);
    for (std::size_t s = 0; s < kSectionCount; ++s) {
      roots[s] = root_of(command.block, command.version, s);
    }
    oracle_.finish(index);
    const bool is_task =
        command.kind == Command::Kind::kUpdate || command.kind == Command::Kind::kGatherHi;
    scheduler_.done(command, is_task ? roots : std::vector<std::uint64_t>{});
    if (command.kind == Command::Kind::kCommit) {
      ++commits_;
      committed_step_ = commit_step_;
    }
    oracle_.check();
    drain();
  }

  /// Between two calls of the trainer the parts get on, or do not.
  void idle() {
    drain();
    while (!oracle_.failed() && !oracle_.flights().empty() && !chance(random_, laziness_)) {
      finish_one();
    }
    read_beside();
  }

  /// False: nothing can move (reported unless `may_block`).
  template <class Ready>
  bool wait_until(const char* what, const Ready& ready, bool may_block = false) {
    while (!oracle_.failed()) {
      drain();
      if (oracle_.failed() || ready()) return true;
      drain();
      if (++events_ > kManyEvents) oracle_.fail(fmt::format("{}: it goes on for ever", what));
      if (!oracle_.flights().empty()) {
        finish_one();
        if (chance(random_, 20)) read_beside();
      } else if (!end_reading()) {
        if (may_block) return false;
        oracle_.fail(fmt::format("{}: nothing is in flight and the trainer waits", what));
      }
    }
    return true;
  }

  // --- a second thread that reads groups now and then, as an export does

  void read_beside() {
    if (!has_reader_ || oracle_.failed()) return;
    if (!reader_wants_ && !reader_holds_) {
      if (!chance(random_, 30)) return;
      reader_wants_ = below(random_, plan_.groups.size());
      scheduler_.want(*reader_wants_);
    } else if (reader_wants_) {
      if (scheduler_.ready(*reader_wants_) && lockable(*reader_wants_)) {
        reader_holds_ = reader_wants_;
        hold(*reader_holds_);
      } else if (!chance(random_, 10)) {
        return;
      }
      scheduler_.unwant(*reader_wants_);
      reader_wants_.reset();
    } else {
      end_reading();
    }
    drain();
  }

  [[nodiscard]] bool lockable(std::uint32_t group) const { return !plan_.groups[group].lent; }

  void hold(std::uint32_t group) {
    scheduler_.hold(group);
    oracle_.leased(group);
    for_trainable(group, [&](std::uint32_t b) {
      if (scheduler_.at_rest(b)) oracle_.lo_read_begins(b, scheduler_.rest_in_frame(b));
    });
  }

  template <class Visit>
  void for_trainable(std::uint32_t group, const Visit& visit) const {
    const GroupPlan& plan = plan_.groups[group];
    if (!plan.trainable) return;
    for (std::uint32_t i = 0; i < plan.block_count; ++i) visit(plan.first_block + i);
  }

  /// Whether there was something to end.
  bool end_reading() {
    if (reader_holds_) {
      for_trainable(*reader_holds_, [&](std::uint32_t b) { oracle_.lo_read_ends(b); });
      oracle_.released(*reader_holds_);
      scheduler_.release(*reader_holds_);
      reader_holds_.reset();
      return true;
    }
    if (!reader_wants_) return false;
    scheduler_.unwant(*reader_wants_);
    reader_wants_.reset();
    return true;
  }

  // --- the trainer

  void acquire(std::uint32_t group) {
    idle();
    scheduler_.want(group);
    const bool got = wait_until(
        "acquire", [&] { return scheduler_.ready(group); },
        !mine_.empty() && scheduler_.blocking_group(group) != kNone);
    if (!got) {  // a lease of our own is in the way, and the scheduler can name it
      scheduler_.unwant(group);
      release_all();
      scheduler_.want(group);
      wait_until("acquire again", [&] { return scheduler_.ready(group); });
    }
    if (oracle_.failed()) return;
    scheduler_.lease(group);
    oracle_.leased(group);
    mine_.push_back(group);
    idle();
  }

  void release_all() {
    for (const std::uint32_t group : mine_) {
      oracle_.released(group);
      scheduler_.release(group);
    }
    mine_.clear();
  }

  void give(const SmallTensor& tensor) {
    for (const auto& [block, range] : tensor.ranges) {
      std::uint32_t frame = kNone;
      wait_until("gradient", [&, b = block] {
        frame = scheduler_.gradient_frame(b);
        return frame != kNone;
      });
      if (oracle_.failed()) return;
      if (scheduler_.held_gradient_frame(block) != frame) oracle_.fail("two gradient frames");
      oracle_.gradient_given(block, frame, range);
      if (left_[block] == ranges_[block]) ++given_now_;
      if (--left_[block] == 0) scheduler_.gradient_filled(block);
      idle();
    }
  }

  /// Tensors of the group (kNone: of all) in any order; some get none.
  void give_some(std::uint32_t group) {
    std::vector<SmallTensor> tensors;
    for (const SmallTensor& tensor : tensors_) {
      if ((group == kNone || tensor.group == group) && chance(random_, share_)) {
        tensors.push_back(tensor);
      }
    }
    if (chance(random_, 60)) std::shuffle(tensors.begin(), tensors.end(), random_);
    for (const SmallTensor& tensor : tensors) {
      if (plan_.level == Level::kStates) {
        wait_until("wait", [&] {
          return std::all_of(tensor.ranges.begin(), tensor.ranges.end(), [&](const auto& range) {
            return scheduler_.state(range.first) == BlockState::kBase;
          });
        });
      }
      give(tensor);
    }
  }

  void pass(const std::vector<std::uint32_t>& order, bool gives) {
    std::vector<bool> done(plan_.groups.size(), false);
    for (std::size_t i = 0; i < order.size() && !oracle_.failed(); ++i) {
      if (mine_.size() > 1 || !chance(random_, 15)) release_all();
      acquire(order[i]);
      const bool last = std::find(order.begin() + static_cast<std::ptrdiff_t>(i) + 1, order.end(),
                                  order[i]) == order.end();
      if (chance(random_, 30)) release_all();
      if (gives && last && !done[order[i]]) give_some(order[i]);
      done[order[i]] = true;
    }
    release_all();
  }

  std::vector<std::uint32_t> departed(std::vector<std::uint32_t> order) {
    if (!chance(random_, 20)) return order;
    for (std::uint32_t& group : order) group = below(random_, plan_.groups.size());
    order.resize(below(random_, order.size() + 1));
    return order;
  }

  void step() {
    oracle_.step_began(++step_);
    left_ = ranges_;
    given_now_ = 0;
    share_ = chance(random_, 50) ? 100 : below(random_, 101);
    if (plan_.level == Level::kWeights) {
      pass(departed(plan_.forward), false);
      pass(departed(plan_.backward), true);
    } else {
      give_some(kNone);
    }
    const bool applied = given_now_ > 0 && !chance(random_, 20);
    end_step(applied);
    if (plan_.level == Level::kWeights && chance(random_, 20)) {
      scheduler_.set_forward_only(true);
      pass(departed(plan_.forward), false);
      scheduler_.set_forward_only(false);
      drain();
    }
    if (chance(random_, 15)) flush();
  }

  void end_step(bool applied) {
    scheduler_.set_sweep(true);
    wait_until("step end", [&] { return scheduler_.settled(); });
    scheduler_.set_sweep(plan_.level == Level::kStates);
    const bool commits = plan_.commit_every > 0 && step_ % plan_.commit_every == 0;
    if (commits) wait_until("commit", [&] { return !scheduler_.commit_in_progress(); });
    if (reader_holds_) end_reading();
    if (oracle_.failed()) return;
    updates_ += applied ? 1 : 0;
    given_ += applied ? given_now_ : 0;
    oracle_.step_ended(applied, updates_);
    scheduler_.step_ended(applied, updates_);
    if (commits) begin_commit();
    drain();
    maybe_tee();
  }

  /// As a trainer that asks for a copy between two steps, while the commit is young.
  void maybe_tee() {
    if (!scheduler_.commit_in_progress() || scheduler_.commit_issued() || commit_step_ != step_ ||
        teed_step_ == step_ || below(random_, 3) != 0) {
      return;
    }
    teed_step_ = step_;
    oracle_.tee_began();
    scheduler_.tee_begin();
    drain();
  }

  void begin_commit() {
    oracle_.commit_began();
    scheduler_.commit_begin();
    commit_step_ = step_;
    oracle_.check();
  }

  void flush() {
    if (oracle_.failed()) return;
    scheduler_.set_sweep(true);
    wait_until("flush", [&] { return scheduler_.settled() && !scheduler_.commit_in_progress(); });
    if (!oracle_.failed() && committed_step_ < step_) {
      begin_commit();
      maybe_tee();
      wait_until("flush: commit", [&] { return committed_step_ == step_; });
    }
    wait_until("flush: writes", [&] { return scheduler_.commands_in_flight() == 0; });
    scheduler_.set_sweep(plan_.level == Level::kStates);
  }

  Random random_;
  Plan plan_;
  std::vector<std::uint64_t> versions_;
  SlotTable table_;
  Scheduler scheduler_;
  Oracle oracle_;
  Finish finish_ = Finish::kAny;
  Command::Kind starved_ = Command::Kind::kReadHi;
  std::uint32_t laziness_ = 0, share_ = 100;
  bool has_reader_ = false;
  std::optional<std::uint32_t> reader_wants_, reader_holds_;
  std::vector<SmallTensor> tensors_;
  std::vector<std::uint32_t> ranges_, left_;  // per block
  std::vector<std::uint32_t> mine_;           // leased by the trainer
  std::uint64_t step_ = 0, commit_step_ = 0, committed_step_ = 0, teed_step_ = 0, updates_ = 0;
  std::uint64_t given_ = 0, given_now_ = 0;  // block updates that records ask for
  std::uint64_t commits_ = 0, reopened_ = 0, events_ = 0;
};

}  // namespace penstock::testing
