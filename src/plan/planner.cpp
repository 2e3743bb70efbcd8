// How the plan is found: start from the smallest working set, then spend what is left of the budget
// by value density (bytes of traffic saved per byte of memory): working frames that keep the
// pipeline full, then `hi` (read on every visit), then gradients, then lo, m, v.
// lint: long because the steps of one search over one state are read in order

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/units.hpp"
#include "plan/plan.hpp"

namespace penstock {
namespace {

constexpr std::uint32_t kSmallestBlock = 64 * 1024;
constexpr std::uint32_t kLargestBlock = 4 * 1024 * 1024;
constexpr std::uint32_t kMinStateFrames = 2, kMinStageFrames = 2;
/// Of each kind and for each drive: while one drive works off its blocks, the others must have
/// some, too.
constexpr std::uint32_t kWantedFrames = 4;

/// Groups whose `hi` have the same size and so can take turns in the same frames.
struct HiClass {
  std::uint64_t frame_bytes = 0;
  std::vector<std::uint32_t> groups;
  std::uint32_t rotating = 1;  ///< frames below which streaming would stall on its own class
  std::uint32_t frames = 1;
  std::size_t worth = 0;  ///< groups, the first ones, whose pin saves traffic
  [[nodiscard]] bool all_pinned() const { return frames >= groups.size(); }
  [[nodiscard]] bool is_enough() const { return all_pinned() || frames - rotating >= worth; }
};

/// The knobs the planner turns.
struct Choice {
  std::vector<HiClass> classes;
  std::uint32_t stream_state_frames = 0;
  std::uint32_t pinned_states = 0;  ///< blocks, the first ones
  std::uint32_t stage_frames = 0;
  std::uint32_t ram_gradients = 0;  ///< blocks, the first ones
};

class Planner {
 public:
  Planner(const PlanRequest& request, std::uint32_t block_elements)
      : request_(request), block_elements_(block_elements) {
    split_blocks();
    find_classes();
  }

  [[nodiscard]] std::uint32_t largest_block() const { return largest_; }

  /// The smallest choice that can make progress.
  [[nodiscard]] Choice smallest() const {
    Choice choice;
    choice.classes = classes_;
    for (HiClass& hi : choice.classes) hi.frames = hi.rotating;
    if (trainable_ > 0) {
      choice.stream_state_frames = std::min(kMinStateFrames, trainable_);
      choice.stage_frames = std::min(kMinStageFrames, trainable_);
    }
    return choice;
  }

  [[nodiscard]] std::uint64_t bytes(const Choice& choice) const {
    std::uint64_t total =
        request_.workspace_bytes + request_.accumulator_bytes + request_.table_bytes;
    for (const HiClass& hi : choice.classes) total += hi.frame_bytes * hi.frames;
    const bool spills = choice.ram_gradients < trainable_;
    total += (choice.stream_state_frames + choice.pinned_states) * state_frame_bytes(spills);
    total += (choice.stage_frames + choice.ram_gradients) * gradient_frame_bytes();
    return total;
  }

  /// The better of two orders: `hi` first by density; but where all gradients fit, their staging
  /// frames and the room to read them back fall away, which in a small model is worth more.
  [[nodiscard]] Choice best(std::uint64_t budget) const {
    Choice hi_first = spend(budget, false), gradients_first = spend(budget, true);
    return moved(gradients_first) < moved(hi_first) ? gradients_first : hi_first;
  }

  /// Bytes per step.
  [[nodiscard]] std::uint64_t moved(const Choice& choice) const {
    const Plan::Traffic t = build(choice).traffic;
    return t.hi_read + t.hi_write + t.state_read + t.state_write + 2 * t.spill;
  }

  /// Spends what the budget leaves.
  [[nodiscard]] Choice spend(std::uint64_t budget, bool gradients_first) const {
    Choice choice = smallest();
    const std::uint64_t minimum = bytes(choice);
    // Working frames save time, not bytes. They get half of what is free until all are there, and
    // pins never get that half, so that a budget that is just enough for one more frame does not
    // pin less than a smaller one.
    std::uint64_t limit = minimum + (budget - minimum) / 2;
    const auto try_step = [&](auto change) {
      Choice next = choice;
      change(next);
      if (bytes(next) > limit) return false;
      choice = std::move(next);
      return true;
    };
    const std::uint32_t wanted = std::min(kWantedFrames * request_.drives, trainable_);
    while (choice.stream_state_frames < wanted &&
           try_step([](Choice& c) { ++c.stream_state_frames; })) {
    }
    while (choice.stream_state_frames == wanted && choice.stage_frames < wanted &&
           try_step([](Choice& c) { ++c.stage_frames; })) {
    }
    const bool all_there = choice.stream_state_frames == wanted && choice.stage_frames == wanted;
    const std::uint64_t set_aside = all_there ? 0 : limit - bytes(choice);
    limit = budget - set_aside;
    const auto keep_gradients = [&] {  // all of them: no staging, no room to read them back
      return try_step([&](Choice& c) {
        c.ram_gradients = trainable_;
        c.stage_frames = 0;
      });
    };
    const bool kept_first = gradients_first && keep_gradients();
    pin_hi(choice, try_step);
    if (!kept_first && !keep_gradients()) {
      while (choice.ram_gradients + 1 < trainable_ &&
             try_step([](Choice& c) { ++c.ram_gradients; })) {
      }
      return choice;
    }
    if (try_step([&](Choice& c) {
          c.pinned_states = trainable_;
          c.stream_state_frames = 0;
        })) {
      return choice;
    }
    while (choice.pinned_states + 1 < trainable_ &&
           try_step([](Choice& c) { ++c.pinned_states; })) {
    }
    return choice;
  }

  [[nodiscard]] Plan build(const Choice& choice) const;

 private:
  void split_blocks();
  void find_classes();

  template <class TryStep>
  void pin_hi(Choice& choice, const TryStep& try_step) const {
    // Most visits first: a tied tensor saves more reads per byte than a layer.
    std::vector<std::size_t> order(choice.classes.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    const auto visits = [&](std::size_t i) {
      const auto& groups = choice.classes[i].groups;
      const auto count = [&](const std::vector<std::uint32_t>& pass) {
        return std::count_if(pass.begin(), pass.end(), [&](std::uint32_t group) {
          return std::find(groups.begin(), groups.end(), group) != groups.end();
        });
      };
      return static_cast<double>(count(request_.forward) + count(request_.backward)) /
             static_cast<double>(groups.size());
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return visits(a) > visits(b); });
    for (const std::size_t i : order) {
      while (!choice.classes[i].is_enough() &&
             try_step([i](Choice& c) { ++c.classes[i].frames; })) {
      }
    }
  }

  [[nodiscard]] std::uint64_t gradient_frame_bytes() const {
    return round_up(std::uint64_t{largest_} * 2, kPageBytes);
  }
  [[nodiscard]] std::uint64_t state_frame_bytes(bool spills) const {
    if (trainable_ == 0) return 0;
    const auto extents = slot_extents(fp32_sections(), section_lengths(largest_, true));
    std::uint64_t bytes = 0;
    for (std::size_t i = kLoSection; i < kSectionCount; ++i) bytes += extents[i].total_bytes();
    if (lent_) bytes += extents[kHiSection].total_bytes();
    return bytes + (spills ? gradient_frame_bytes() : 0);
  }
  void map_hi_frames(const Choice& choice, Plan& plan) const;
  void count_traffic(Plan& plan) const;

  const PlanRequest& request_;
  std::uint32_t block_elements_;
  std::vector<GroupPlan> groups_;
  std::vector<BlockPlan> blocks_;
  std::vector<HiClass> classes_;
  std::uint32_t largest_ = 0;
  std::uint32_t trainable_ = 0;  // blocks
  bool lent_ = false;
};

void Planner::split_blocks() {
  for (std::uint32_t g = 0; g < request_.groups.size(); ++g) {
    const GroupShape& shape = request_.groups[g];
    GroupPlan group;
    group.first_block = static_cast<std::uint32_t>(blocks_.size());
    group.elements = shape.elements;
    group.trainable = shape.trainable;
    group.lent = shape.lent;
    lent_ = lent_ || shape.lent;
    const std::uint64_t share = block_share(shape.elements, block_elements_);
    for (std::uint64_t first = 0; first < shape.elements; first += share) {
      BlockPlan block;
      block.group = g;
      block.first_element = first;
      block.elements = static_cast<std::uint32_t>(std::min(share, shape.elements - first));
      largest_ = std::max(largest_, block.elements);
      trainable_ += shape.trainable ? 1 : 0;
      blocks_.push_back(block);
    }
    group.block_count = static_cast<std::uint32_t>(blocks_.size()) - group.first_block;
    groups_.push_back(group);
  }
}

void Planner::find_classes() {
  // In order of first use, so that groups used one after the other never share a frame.
  std::vector<std::uint32_t> order;
  std::vector<bool> seen(groups_.size(), false);
  const auto append = [&](std::uint32_t group) {
    if (!seen[group]) order.push_back(group);
    seen[group] = true;
  };
  for (const std::uint32_t group : request_.forward) append(group);
  for (std::uint32_t group = 0; group < groups_.size(); ++group) append(group);

  std::map<std::uint64_t, std::size_t> by_bytes;
  for (const std::uint32_t g : order) {
    if (groups_[g].lent) continue;
    const std::uint64_t bytes =
        round_up(groups_[g].elements * kHiBytes, kPageBytes) + groups_[g].block_count * kPageBytes;
    const auto [position, is_new] = by_bytes.emplace(bytes, classes_.size());
    if (is_new) {
      HiClass fresh;
      fresh.frame_bytes = bytes;
      classes_.push_back(fresh);
    }
    classes_[position->second].groups.push_back(g);
  }
  // At level 1 only updates read weights, so frozen ones stay where they are.
  const auto is_read = [&](std::uint32_t group) {
    return request_.level == Level::kWeights || groups_[group].trainable;
  };
  std::vector<std::uint32_t> visits = request_.forward;
  visits.insert(visits.end(), request_.backward.begin(), request_.backward.end());
  std::erase_if(visits, [&](std::uint32_t group) { return !is_read(group); });
  for (HiClass& hi : classes_) {
    const auto rest = std::stable_partition(hi.groups.begin(), hi.groups.end(), is_read);
    hi.worth = static_cast<std::size_t>(rest - hi.groups.begin());
    const auto inside = [&](std::uint32_t group) {
      return std::find(hi.groups.begin(), hi.groups.end(), group) != hi.groups.end();
    };
    for (std::size_t i = 0; i < visits.size(); ++i) {
      const std::uint32_t here = visits[i], next = visits[(i + 1) % visits.size()];
      if (here != next && inside(here) && inside(next)) hi.rotating = 2;
    }
  }
}

void Planner::map_hi_frames(const Choice& choice, Plan& plan) const {
  for (const HiClass& hi : choice.classes) {
    const auto base = static_cast<std::uint32_t>(plan.hi_frames.size());
    plan.hi_frames.resize(base + hi.frames, HiFrame{hi.frame_bytes});
    const std::uint32_t alone =
        hi.all_pinned() ? static_cast<std::uint32_t>(hi.groups.size()) : hi.frames - hi.rotating;
    for (std::uint32_t i = 0; i < hi.groups.size(); ++i) {
      GroupPlan& group = plan.groups[hi.groups[i]];
      group.hi_pinned = i < alone;
      group.hi_frame = base + (group.hi_pinned ? i : alone + (i - alone) % hi.rotating);
    }
  }
}

void Planner::count_traffic(Plan& plan) const {
  Plan::Traffic& traffic = plan.traffic;
  for (const BlockPlan& block : plan.blocks) {
    const GroupPlan& group = plan.groups[block.group];
    if (!group.trainable) continue;
    const std::uint64_t hi = std::uint64_t{block.elements} * kHiBytes;
    const std::uint64_t state = std::uint64_t{block.elements} * kStateBytes;
    const bool hi_in_ram = group.hi_pinned || group.lent;
    traffic.hi_write += hi_in_ram ? 0 : hi;
    traffic.ram_homed += (hi_in_ram ? hi : 0) + (block.state_pinned ? state : 0);
    traffic.state_read += block.state_pinned ? 0 : state;
    traffic.state_write += block.state_pinned ? 0 : state;
    traffic.spill += block.spill_index == kNone ? 0 : std::uint64_t{block.elements} * 2;
  }
  std::vector<std::uint32_t> visits = plan.forward;
  visits.insert(visits.end(), plan.backward.begin(), plan.backward.end());
  std::vector<std::uint32_t> occupant(plan.hi_frames.size(), kNone);
  for (int round = 0; round < 2; ++round) {  // the second round is the steady state
    traffic.hi_read = traffic.hi_turn_reuse = 0;
    for (const std::uint32_t g : visits) {
      const GroupPlan& group = plan.groups[g];
      if (group.lent || group.hi_pinned) continue;
      if (plan.level == Level::kStates && !group.trainable) continue;  // only updates read it
      const bool hit = occupant[group.hi_frame] == g;
      (hit ? traffic.hi_turn_reuse : traffic.hi_read) += group.elements * kHiBytes;
      occupant[group.hi_frame] = g;
    }
  }
}

/// Smallest K with c/K <= 5 % of all bytes written; 0 when nothing else is written.
std::uint32_t choose_commit_interval(const Plan::Traffic& traffic) {
  if (traffic.ram_homed == 0) return 1;
  const std::uint64_t others = traffic.hi_write + traffic.state_write + traffic.spill;
  if (others == 0) return 0;
  return static_cast<std::uint32_t>(
      std::max<std::uint64_t>(1, (19 * traffic.ram_homed + others - 1) / others));
}

Plan Planner::build(const Choice& choice) const {
  Plan plan;
  plan.level = request_.level;
  plan.block_elements = block_elements_;
  plan.groups = groups_;
  plan.blocks = blocks_;
  plan.forward = request_.forward;
  plan.backward = request_.backward;
  plan.stream_state_frames = choice.stream_state_frames;
  plan.pinned_state_frames = choice.pinned_states;
  plan.stage_gradient_frames = choice.stage_frames;
  plan.pinned_gradient_frames = choice.ram_gradients;
  plan.gradient_frame_bytes = gradient_frame_bytes();
  plan.state_frame_bytes = state_frame_bytes(choice.ram_gradients < trainable_);
  map_hi_frames(choice, plan);
  std::uint32_t index = 0;
  for (BlockPlan& block : plan.blocks) {
    if (!plan.groups[block.group].trainable) continue;
    if (index < choice.pinned_states) {
      block.state_pinned = true;
      block.state_frame = choice.stream_state_frames + index;
    }
    if (index < choice.ram_gradients) {
      block.gradient_frame = choice.stage_frames + index;
    } else {
      block.spill_index = index;
      ++plan.spill_count;
    }
    ++index;
  }
  count_traffic(plan);
  plan.commit_every =
      request_.commit_every > 0 ? request_.commit_every : choose_commit_interval(plan.traffic);
  plan.host_bytes = bytes(choice);
  plan.workspace_bytes = request_.workspace_bytes;
  plan.accumulator_bytes = request_.accumulator_bytes;
  return plan;
}

Status check(const PlanRequest& request) {
  if (request.groups.empty()) {
    return make_error(Errc::kArgument, "the model has no groups; register tensors first");
  }
  for (std::size_t g = 0; g < request.groups.size(); ++g) {
    if (request.groups[g].elements == 0) {
      return make_error(Errc::kArgument,
                        fmt::format("group {} has no elements; every group needs a tensor", g));
    }
  }
  for (const auto* pass : {&request.forward, &request.backward}) {
    for (const std::uint32_t group : *pass) {
      if (group >= request.groups.size()) {
        return make_error(Errc::kArgument,
                          fmt::format("the visit order names group {}, but there are only {}",
                                      group, request.groups.size()));
      }
    }
  }
  if (request.block_elements % kTileElements != 0) {
    return make_error(Errc::kArgument, fmt::format("block of {} elements is not a multiple of {}",
                                                   request.block_elements, kTileElements));
  }
  return ok();
}

/// The largest block whose full pipeline takes at most a third of what is free beside the least
/// `hi`.
std::uint32_t choose_block(const PlanRequest& request) {
  for (std::uint32_t elements = kLargestBlock; elements > kSmallestBlock; elements /= 2) {
    const Planner planner(request, elements);
    Choice choice = planner.smallest();
    Choice bare = choice;
    bare.stream_state_frames = bare.stage_frames = 0;
    choice.stream_state_frames = choice.stage_frames = kWantedFrames * request.drives;
    const std::uint64_t least = planner.bytes(bare);
    if (least < request.host_bytes &&
        planner.bytes(choice) - least <= (request.host_bytes - least) / 3) {
      return elements;
    }
  }
  return kSmallestBlock;
}

}  // namespace

Result<Plan> make_plan(const PlanRequest& request) {
  PENSTOCK_CHECK_OK(check(request));
  const std::uint32_t smallest_block =
      request.block_elements > 0 ? request.block_elements : kSmallestBlock;
  const Planner least(request, smallest_block);
  const std::uint64_t minimum = least.bytes(least.smallest());
  if (minimum > request.host_bytes) {
    return make_error(
        Errc::kNoMemory,
        fmt::format("host memory is short by {}: {} granted, the smallest budget that works "
                    "is {} ({} bytes); grant more or make the model, batch or sequence smaller",
                    format_bytes(minimum - request.host_bytes), format_bytes(request.host_bytes),
                    format_bytes(minimum), minimum));
  }
  const std::uint32_t block =
      request.block_elements > 0 ? request.block_elements : choose_block(request);
  const Planner planner(request, block);
  Plan plan = planner.build(planner.best(request.host_bytes));
  plan.minimum_bytes = minimum;
  return plan;
}

}  // namespace penstock
