// The planner: budgets, placement, sizes, refusals.
// lint: long because its cases share the checks of one plan

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>

#include "plan/plan_requests.hpp"

namespace penstock {
namespace {

using testing::kPlenty;
using testing::kTile;
using testing::layers;

Plan plan_with(PlanRequest request, std::uint64_t budget) {
  request.host_bytes = budget;
  auto plan = make_plan(request);
  EXPECT_TRUE(plan.ok()) << (plan.ok() ? "" : plan.error().message);
  return plan.ok() ? std::move(plan).value() : Plan{};
}

std::uint64_t minimum_of(const PlanRequest& request) {
  return plan_with(request, kPlenty).minimum_bytes;
}

std::uint64_t moved(const Plan& plan) {
  const Plan::Traffic& t = plan.traffic;
  return t.hi_read + t.hi_write + t.state_read + t.state_write + 2 * t.spill;
}

/// What the engine allocates for a plan, added up from its numbers alone.
std::uint64_t allocated(const Plan& plan, std::uint64_t table_bytes) {
  std::uint64_t bytes = plan.workspace_bytes + plan.accumulator_bytes + table_bytes;
  for (const HiFrame& frame : plan.hi_frames) bytes += frame.bytes;
  bytes += (plan.stream_state_frames + plan.pinned_state_frames) * plan.state_frame_bytes;
  bytes += (plan.stage_gradient_frames + plan.pinned_gradient_frames) * plan.gradient_frame_bytes;
  return bytes;
}

/// Every block has a place for everything, and no two share what is theirs alone.
void expect_sound(const Plan& plan) {
  std::set<std::uint32_t> own_states, own_gradients, pinned_hi;
  std::uint32_t spilled = 0;
  for (std::uint32_t g = 0; g < plan.groups.size(); ++g) {
    const GroupPlan& group = plan.groups[g];
    std::uint64_t elements = 0;
    for (std::uint32_t b = group.first_block; b < group.first_block + group.block_count; ++b) {
      const BlockPlan& block = plan.blocks[b];
      EXPECT_EQ(block.group, g);
      EXPECT_EQ(block.first_element, elements);
      EXPECT_EQ(block.first_element % kTileElements, 0U);
      EXPECT_LE(block.elements, plan.block_elements);
      elements += block.elements;
      if (block.state_pinned) {
        EXPECT_GE(block.state_frame, plan.stream_state_frames);
        EXPECT_LT(block.state_frame, plan.stream_state_frames + plan.pinned_state_frames);
        EXPECT_TRUE(own_states.insert(block.state_frame).second);
      } else if (group.trainable) {
        EXPECT_GT(plan.stream_state_frames, 0U);
      }
      EXPECT_EQ(block.gradient_frame != kNone || block.spill_index != kNone, group.trainable);
      EXPECT_TRUE(block.gradient_frame == kNone || block.spill_index == kNone);
      if (block.gradient_frame != kNone) {
        EXPECT_GE(block.gradient_frame, plan.stage_gradient_frames);
        EXPECT_TRUE(own_gradients.insert(block.gradient_frame).second);
      }
      spilled += block.spill_index != kNone ? 1 : 0;
    }
    EXPECT_EQ(elements, group.elements);
    EXPECT_EQ(group.hi_frame == kNone, group.lent);
    if (group.lent) continue;
    ASSERT_LT(group.hi_frame, plan.hi_frames.size());
    EXPECT_GE(plan.hi_frames[group.hi_frame].bytes,
              group.elements * kHiBytes + group.block_count * kPageBytes);
    if (group.hi_pinned) {
      EXPECT_TRUE(pinned_hi.insert(group.hi_frame).second);
    }
  }
  for (const GroupPlan& group : plan.groups) {
    if (!group.lent && !group.hi_pinned) {
      EXPECT_EQ(pinned_hi.count(group.hi_frame), 0U);
    }
  }
  EXPECT_EQ(spilled, plan.spill_count);
  if (spilled > 0) {
    EXPECT_GT(plan.stage_gradient_frames, 0U);
  }
  // Groups used one after the other never share a frame, unless a tied one closes an odd ring.
  std::set<std::uint32_t> once(plan.forward.begin(), plan.forward.end());
  if (once.size() != plan.forward.size()) {
    return;
  }
  std::vector<std::uint32_t> visits = plan.forward;
  visits.insert(visits.end(), plan.backward.begin(), plan.backward.end());
  // At level 1 updates alone read weights: frozen groups take no part in the turns.
  std::erase_if(visits, [&](std::uint32_t group) {
    return plan.level == Level::kStates && !plan.groups[group].trainable;
  });
  for (std::size_t i = 0; i + 1 < visits.size(); ++i) {
    const GroupPlan &a = plan.groups[visits[i]], &b = plan.groups[visits[i + 1]];
    if (visits[i] != visits[i + 1] && !a.lent && !b.lent) {
      EXPECT_NE(a.hi_frame, b.hi_frame);
    }
  }
}

/// Shapes with frozen, lent, tied and odd-sized groups.
PlanRequest random_request(std::mt19937& random) {
  const auto below = [&](std::uint32_t limit) {
    return static_cast<std::uint32_t>(random() % limit);
  };
  // One draw a statement: the order of evaluation inside one is the compiler's choice.
  const Level level = below(3) == 0 ? Level::kStates : Level::kWeights;
  PlanRequest request = layers(1 + below(9), 1, level);
  const std::uint64_t usual = kTileElements * (1 + below(40));
  for (GroupShape& group : request.groups) {
    group.elements = below(3) > 0 ? usual : 4096 * (1 + std::uint64_t{below(400)});
    group.trainable = below(6) > 0;
    group.lent = request.level == Level::kStates && below(2) == 0;
  }
  if (below(3) == 0) {  // tied
    request.forward.push_back(0);
    if (request.level == Level::kWeights) request.backward.insert(request.backward.begin(), 0);
  }
  request.workspace_bytes = 1000 * below(100);
  request.accumulator_bytes = 4096 * below(100);
  request.table_bytes = 100 * below(100);
  request.block_elements = kTile * below(5);
  return request;
}

TEST(Planner, MinimumWorksAndOneByteLessIsRefusedWithTheFigures) {
  std::mt19937 random(1);
  for (int i = 0; i < 1000; ++i) {
    PlanRequest request = random_request(random);
    const std::uint64_t minimum = minimum_of(request);
    expect_sound(plan_with(request, minimum));
    request.host_bytes = minimum - 1;
    const auto refused = make_plan(request);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Errc::kNoMemory);
    EXPECT_NE(refused.error().message.find(std::to_string(minimum) + " bytes"), std::string::npos)
        << refused.error().message;
    EXPECT_NE(refused.error().message.find("short by 1 B"), std::string::npos)
        << refused.error().message;
    EXPECT_NE(refused.error().message.find("host memory"), std::string::npos);
  }
}

TEST(Planner, NeverTakesMoreThanTheBudget) {
  std::mt19937 random(2);
  for (int i = 0; i < 1500; ++i) {
    const PlanRequest request = random_request(random);
    const std::uint64_t minimum = minimum_of(request);
    const std::uint64_t all = plan_with(request, kPlenty).host_bytes;
    const std::uint64_t more = all > minimum ? all - minimum : 1;
    const std::uint64_t budget = minimum + random() % (more + 1);
    const Plan plan = plan_with(request, budget);
    expect_sound(plan);
    EXPECT_LE(plan.host_bytes, budget);
    EXPECT_EQ(plan.host_bytes, allocated(plan, request.table_bytes));
    EXPECT_EQ(plan.minimum_bytes, minimum);
  }
}

TEST(Planner, MoreBudgetNeverPredictsMoreTraffic) {
  std::mt19937 random(3);
  for (int i = 0; i < 100; ++i) {
    PlanRequest request = random_request(random);
    if (request.block_elements == 0) request.block_elements = kTile;  // one cut for all budgets
    // At level 1 a trainable group that shares a frame only with frozen ones is read as rarely as a
    // pinned one, so its pin saves less than the order of spending assumes.
    for (GroupShape& group : request.groups) {
      group.trainable = group.trainable || request.level == Level::kStates;
    }
    const std::uint64_t minimum = minimum_of(request);
    const std::uint64_t all = plan_with(request, kPlenty).host_bytes;
    std::uint64_t last = ~std::uint64_t{0};
    for (std::uint64_t part = 0; part <= 40; ++part) {
      const std::uint64_t budget = all > minimum ? minimum + (all - minimum) * part / 40 : minimum;
      const Plan plan = plan_with(request, budget);
      EXPECT_LE(moved(plan), last) << "budget " << budget << " of " << all;
      last = moved(plan);
    }
  }
}

TEST(Planner, KeepsEverythingInMemoryWhereItFits) {
  const Plan plan = plan_with(layers(6, kTileElements * 8), kPlenty);
  EXPECT_EQ(moved(plan), 0U);
  EXPECT_EQ(plan.traffic.ram_homed, 6 * kTileElements * 8 * (kHiBytes + kStateBytes));
  EXPECT_EQ(plan.stream_state_frames + plan.stage_gradient_frames + plan.spill_count, 0U);
  EXPECT_EQ(plan.commit_every, 0U);
}

TEST(Planner, PinsWeightsBeforeGradientsBeforeStates) {
  PlanRequest request = layers(12, kTileElements * 8);
  request.block_elements = kTile;  // many, so that working frames weigh little
  const std::uint64_t minimum = minimum_of(request);
  const std::uint64_t all = plan_with(request, kPlenty).host_bytes;
  bool saw_hi = false, saw_gradients = false, saw_states = false;
  for (std::uint64_t part = 0; part <= 100; ++part) {
    const Plan plan = plan_with(request, minimum + (all - minimum) * part / 100);
    const auto pinned = std::count_if(plan.groups.begin(), plan.groups.end(),
                                      [](const GroupPlan& g) { return g.hi_pinned; });
    const bool all_hi = pinned == 12;
    if (!all_hi && plan.spill_count > 0) {  // gradients get only what is too small for a group
      EXPECT_LT(plan.pinned_gradient_frames * plan.gradient_frame_bytes, plan.hi_frames[0].bytes);
    }
    if (plan.pinned_state_frames > 0) {
      EXPECT_EQ(plan.spill_count, 0U);
    }
    saw_hi = saw_hi || (pinned > 0 && !all_hi);
    saw_gradients =
        saw_gradients || (all_hi && plan.pinned_gradient_frames > 0 && plan.spill_count > 0);
    saw_states = saw_states || (plan.pinned_state_frames > 0 && plan.stream_state_frames > 0);
  }
  EXPECT_TRUE(saw_hi && saw_gradients && saw_states);
}

TEST(Planner, PinsAGroupOfMoreVisitsFirst) {
  PlanRequest request = layers(6, kTileElements * 8);
  request.groups[0].elements = kTileElements * 9;  // a class of its own: the tied embedding
  request.block_elements = kTile * 3;
  request.forward.push_back(0);
  request.backward.insert(request.backward.begin(), 0);
  // The tied group comes twice per pass, and the passes turn at it: it never shares its frame.
  const Plan plan = plan_with(request, minimum_of(request));
  EXPECT_TRUE(plan.groups[0].hi_pinned);
  EXPECT_EQ(plan.traffic.hi_read % (kTileElements * 8), 0U);

  // With a second group of that size, the class of the tied one is filled up first.
  request.groups[5].elements = kTileElements * 9;
  std::uint64_t budget = minimum_of(request);
  while (true) {
    const Plan grown = plan_with(request, budget);
    if (grown.groups[1].hi_pinned) break;  // the first of the layers
    EXPECT_LE(grown.host_bytes, budget);
    budget += 4096;
    if (plan_with(request, budget).groups[1].hi_pinned) {
      EXPECT_TRUE(plan_with(request, budget).groups[0].hi_pinned);
      EXPECT_TRUE(plan_with(request, budget).groups[5].hi_pinned);
    }
  }
}

TEST(Planner, GivesHalfOfWhatIsFreeToWorkingFramesUntilAllAreThere) {
  PlanRequest request = layers(12, kTileElements * 8);
  request.block_elements = kTile * 2;
  const Plan least = plan_with(request, minimum_of(request));
  EXPECT_EQ(least.stream_state_frames, 2U);
  EXPECT_EQ(least.stage_gradient_frames, 2U);
  EXPECT_EQ(least.hi_frames.size(), 2U);  // one in use, one on its way
  const std::uint64_t frames = 2 * (least.state_frame_bytes + least.gradient_frame_bytes);
  const Plan more = plan_with(request, least.host_bytes + 2 * frames);
  EXPECT_EQ(more.stream_state_frames, 4U);
  EXPECT_EQ(more.stage_gradient_frames, 4U);
  EXPECT_GT(more.hi_frames.size(), 2U);
}

TEST(Planner, GivesEachDriveWorkingFramesAndCutsBlocksSmallerForThem) {
  PlanRequest request = layers(12, kTileElements * 64);
  request.host_bytes = 160 << 20;
  const Plan one = make_plan(request).value();
  EXPECT_EQ(one.stream_state_frames, 4U);
  request.drives = 3;
  const Plan three = make_plan(request).value();
  EXPECT_EQ(three.stream_state_frames, 12U);
  EXPECT_EQ(three.minimum_bytes, one.minimum_bytes);
  EXPECT_LT(three.block_elements, one.block_elements);
  EXPECT_LE(three.host_bytes, request.host_bytes);
  request.block_elements = one.block_elements;  // of a store that is there already
  EXPECT_LE(make_plan(request).value().host_bytes, request.host_bytes);
}

TEST(Planner, CutsEqualBlocksOfWholeTilesWithinTheLimits) {
  for (const std::uint64_t elements : {kTileElements, kTileElements * 7 + 1,
                                       std::uint64_t{50'000'000}, std::uint64_t{4'194'304}}) {
    for (const std::uint64_t budget : {std::uint64_t{1} << 26, std::uint64_t{1} << 30, kPlenty}) {
      PlanRequest request = layers(3, elements);
      request.host_bytes = budget;
      const auto made = make_plan(request);
      if (!made.ok()) continue;
      const Plan& plan = made.value();
      expect_sound(plan);
      EXPECT_GE(plan.block_elements, 64U * 1024);
      EXPECT_LE(plan.block_elements, 4U * 1024 * 1024);
      std::uint32_t largest = 0, smallest = ~0U;
      for (const BlockPlan& block : plan.blocks) {
        largest = std::max(largest, block.elements);
        smallest = std::min(smallest, block.elements);
      }
      EXPECT_LE(largest - smallest, plan.groups[0].block_count * kTileElements);
    }
  }
  PlanRequest big = layers(3, 50'000'000);
  EXPECT_EQ(plan_with(big, kPlenty).block_elements, 4U * 1024 * 1024);
  EXPECT_EQ(plan_with(big, minimum_of(big)).block_elements, 64U * 1024);
  big.block_elements = kTile * 3;
  EXPECT_EQ(plan_with(big, kPlenty).block_elements, kTile * 3);
}

TEST(Planner, CommitsSoRarelyThatMemoryHomedBytesStayWithinFivePercent) {
  std::mt19937 random(4);
  int between = 0;
  for (int i = 0; i < 300; ++i) {
    const PlanRequest request = random_request(random);
    const std::uint64_t minimum = minimum_of(request);
    const std::uint64_t all = plan_with(request, kPlenty).host_bytes;
    const Plan plan = plan_with(request, minimum + (all - minimum) * (random() % 101) / 100);
    const Plan::Traffic& t = plan.traffic;
    const auto c = static_cast<double>(t.ram_homed);
    const auto others = static_cast<double>(t.hi_write + t.state_write + t.spill);
    if (t.ram_homed == 0) {
      EXPECT_EQ(plan.commit_every, 1U);
    } else if (others == 0) {
      EXPECT_EQ(plan.commit_every, 0U);
    } else {
      const double k = plan.commit_every;
      ASSERT_GE(plan.commit_every, 1U);
      EXPECT_LE(c / k, 0.05 * (others + c / k) * (1 + 1e-12));
      if (k > 1) {
        EXPECT_GT(c / (k - 1), 0.05 * (others + c / (k - 1)));
      }
      between += k > 1 ? 1 : 0;
    }
  }
  EXPECT_GT(between, 30);
  PlanRequest chosen = layers(4, kTileElements);
  chosen.commit_every = 7;
  EXPECT_EQ(plan_with(chosen, kPlenty).commit_every, 7U);
}

TEST(Planner, FrozenGroupsHaveWeightsOnly) {
  PlanRequest request = layers(4, kTileElements * 4);
  for (GroupShape& group : request.groups) group.trainable = false;
  const Plan plan = plan_with(request, minimum_of(request));
  expect_sound(plan);
  EXPECT_EQ(plan.stream_state_frames + plan.pinned_state_frames + plan.stage_gradient_frames +
                plan.pinned_gradient_frames + plan.spill_count,
            0U);
  EXPECT_EQ(plan.traffic.hi_write + plan.traffic.state_read + plan.traffic.ram_homed, 0U);
  EXPECT_GT(plan.traffic.hi_read, 0U);
  EXPECT_EQ(plan_with(request, kPlenty).traffic.ram_homed, 0U);  // nothing to write back
}

TEST(Planner, LentWeightsNeedNoFramesAndNoReads) {
  PlanRequest request = layers(4, kTileElements * 4, Level::kStates);
  for (GroupShape& group : request.groups) group.lent = true;
  const Plan plan = plan_with(request, minimum_of(request));
  expect_sound(plan);
  EXPECT_TRUE(plan.hi_frames.empty());
  EXPECT_EQ(plan.traffic.hi_read + plan.traffic.hi_write, 0U);
  EXPECT_EQ(plan.traffic.ram_homed, 4 * kTileElements * 4 * kHiBytes);  // at home in host
  PlanRequest kept = request;
  for (GroupShape& group : kept.groups) group.lent = false;
  const Plan streams = plan_with(kept, minimum_of(kept));
  // They are gathered in the state frame, which is larger by hi and its sums.
  EXPECT_EQ(plan.state_frame_bytes,
            streams.state_frame_bytes + kTileElements * 4 * kHiBytes + kPageBytes);
}

TEST(Planner, LevelOneReadsWeightsOncePerStep) {
  PlanRequest request = layers(8, kTileElements * 4, Level::kStates);
  const Plan plan = plan_with(request, minimum_of(request));
  expect_sound(plan);
  EXPECT_EQ(plan.traffic.hi_read, 8 * kTileElements * 4 * kHiBytes);
  for (GroupShape& group : request.groups) group.trainable = false;  // nobody reads them
  EXPECT_EQ(moved(plan_with(request, minimum_of(request))), 0U);
}

TEST(Planner, CountsWeightsThatStayAtTheTurns) {
  const std::uint64_t group = kTileElements * 4 * kHiBytes;
  const PlanRequest request = layers(8, kTileElements * 4);
  const Plan plan = plan_with(request, minimum_of(request));
  // Two frames: the last two groups of a pass are still there when the next one begins.
  EXPECT_EQ(plan.traffic.hi_turn_reuse, 4 * group);
  EXPECT_EQ(plan.traffic.hi_read, 12 * group);
}

TEST(Planner, PlansFourBillionParametersAtOnce) {
  PlanRequest request = layers(64, 4'000'000'000 / 64);
  request.groups[0].elements = 200'000'000;
  request.workspace_bytes = std::uint64_t{2} << 30;
  for (const std::uint64_t budget : {std::uint64_t{4} << 30, std::uint64_t{24} << 30, kPlenty}) {
    const Plan plan = plan_with(request, budget);  // must not hang; a test never asserts on time
    EXPECT_LE(plan.host_bytes, budget);
    EXPECT_GE(plan.blocks.size(), 64U);
    EXPECT_FALSE(describe(plan).empty());
  }
}

TEST(Planner, RefusesBadRequests) {
  const auto message = [](const PlanRequest& request) {
    const auto made = make_plan(request);
    EXPECT_FALSE(made.ok());
    if (made.ok()) return std::string();
    EXPECT_EQ(made.error().code, Errc::kArgument) << made.error().message;
    return made.error().message;
  };
  EXPECT_NE(message(PlanRequest{}).find("no groups"), std::string::npos);
  PlanRequest empty_group = layers(3, kTileElements);
  empty_group.groups[1].elements = 0;
  EXPECT_NE(message(empty_group).find("group 1 has no elements"), std::string::npos);
  PlanRequest unknown = layers(3, kTileElements);
  unknown.forward.push_back(3);
  EXPECT_NE(message(unknown).find("names group 3"), std::string::npos);
  unknown = layers(3, kTileElements);
  unknown.backward.push_back(99);
  EXPECT_NE(message(unknown).find("names group 99"), std::string::npos);
  PlanRequest uneven = layers(3, kTileElements);
  uneven.block_elements = kTile + 1;
  EXPECT_NE(message(uneven).find("not a multiple"), std::string::npos);
  EXPECT_FALSE(make_plan([] {
                 PlanRequest none = layers(3, kTileElements);
                 none.host_bytes = 0;
                 return none;
               }())
                   .ok());
}

}  // namespace
}  // namespace penstock
