#include "base/counters.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>

#include "base/allocation_count.hpp"

namespace penstock {
namespace {

TEST(CountersTest, KeepsEveryCombinationApart) {
  Counters counters;
  std::uint64_t value = 0;
  const auto for_each = [](const auto& visit) {
    for (std::size_t link = 0; link < kLinks; ++link) {
      for (std::size_t tensor_class = 0; tensor_class < kTensorClasses; ++tensor_class) {
        for (std::size_t kind = 0; kind < kTrafficKinds; ++kind) {
          visit(static_cast<Link>(link), static_cast<TensorClass>(tensor_class),
                static_cast<TrafficKind>(kind));
        }
      }
    }
  };
  for_each([&](Link link, TensorClass c, TrafficKind k) {
    ++value;
    counters.add(link, c, k, value, 2);
  });
  const CounterSnapshot snapshot = counters.snapshot();
  value = 0;
  for_each([&](Link link, TensorClass c, TrafficKind k) {
    EXPECT_EQ(snapshot.total.at(link, c, k), (Traffic{++value, 2}));
    EXPECT_EQ(snapshot.current.traffic.at(link, c, k), (Traffic{value, 2}));
  });
  EXPECT_EQ(value, TrafficTable::kCells);
}

TEST(CountersTest, SumsOverClassesAndKinds) {
  Counters counters;
  counters.add(Link::kDriveRead, TensorClass::kHi, TrafficKind::kDemand, 100);
  counters.add(Link::kDriveRead, TensorClass::kHi, TrafficKind::kTiedReuse, 10);
  counters.add(Link::kDriveRead, TensorClass::kState, TrafficKind::kDemand, 1);
  counters.add(Link::kDriveWrite, TensorClass::kState, TrafficKind::kDemand, 5000);
  const TrafficTable total = counters.total();
  EXPECT_EQ(total.of(Link::kDriveRead), (Traffic{111, 3}));
  EXPECT_EQ(total.of(Link::kDriveRead, TensorClass::kHi), (Traffic{110, 2}));
  EXPECT_EQ(total.of(Link::kDriveRead, TrafficKind::kDemand), (Traffic{101, 2}));
  EXPECT_EQ(total.of(Link::kDriveWrite), (Traffic{5000, 1}));
  EXPECT_EQ(total.of(Link::kHostToDevice), Traffic{});
}

TEST(CountersTest, RemembersTheLast64StepsInOrder) {
  Counters counters;
  constexpr std::uint64_t kSteps = Counters::kRecentSteps + 37;
  std::uint64_t total = 0;
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    if (step != 0) counters.begin_step(step);
    counters.add(Link::kDriveWrite, TensorClass::kState, TrafficKind::kDemand, 1000 + step);
    total += 1000 + step;
  }
  const CounterSnapshot snapshot = counters.snapshot();
  EXPECT_EQ(snapshot.current.step, kSteps - 1);
  EXPECT_EQ(snapshot.current.traffic.of(Link::kDriveWrite).bytes, 1000 + kSteps - 1);
  EXPECT_EQ(snapshot.total.of(Link::kDriveWrite), (Traffic{total, kSteps}));
  ASSERT_EQ(snapshot.recent.size(), Counters::kRecentSteps);
  for (std::size_t i = 0; i < snapshot.recent.size(); ++i) {
    const std::uint64_t step = kSteps - 1 - Counters::kRecentSteps + i;
    EXPECT_EQ(snapshot.recent[i].step, step);
    EXPECT_EQ(snapshot.recent[i].traffic.of(Link::kDriveWrite), (Traffic{1000 + step, 1}));
  }
}

TEST(CountersTest, LosesNothingWhenStepsChangeUnderway) {
  Counters counters;
  constexpr std::uint64_t kAdds = 20'000;
  const auto add_all = [&] {
    for (std::uint64_t i = 0; i < kAdds; ++i) {
      counters.add(Link::kHostToDevice, TensorClass::kHi, TrafficKind::kDemand, 3);
    }
  };
  std::thread first(add_all);
  std::thread second(add_all);
  std::uint64_t previous = 0;
  for (std::uint64_t step = 1; step <= 200; ++step) {
    counters.begin_step(step);
    const std::uint64_t bytes = counters.total().of(Link::kHostToDevice).bytes;
    EXPECT_GE(bytes, previous);
    previous = bytes;
  }
  first.join();
  second.join();
  EXPECT_EQ(counters.total().of(Link::kHostToDevice), (Traffic{2 * kAdds * 3, 2 * kAdds}));
}

TEST(CountersTest, AllocatesOnlyAtConstruction) {
  Counters counters;
  const std::uint64_t before = testing::allocations_of_this_thread();
  for (std::uint64_t step = 1; step < 200; ++step) {
    counters.add(Link::kDriveRead, TensorClass::kHi, TrafficKind::kDemand, 1);
    counters.begin_step(step);
  }
  const TrafficTable total = counters.total();
  EXPECT_EQ(testing::allocations_of_this_thread(), before);
  EXPECT_EQ(total.of(Link::kDriveRead).operations, 199U);
}

TEST(CountersTest, EveryValueHasItsOwnName) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kLinks; ++i) names.insert(name_of(static_cast<Link>(i)));
  EXPECT_EQ(names.size(), kLinks);
  names.clear();
  for (std::size_t i = 0; i < kTensorClasses; ++i)
    names.insert(name_of(static_cast<TensorClass>(i)));
  EXPECT_EQ(names.size(), kTensorClasses);
  names.clear();
  for (std::size_t i = 0; i < kTrafficKinds; ++i)
    names.insert(name_of(static_cast<TrafficKind>(i)));
  EXPECT_EQ(names.size(), kTrafficKinds);
  EXPECT_EQ(names.count("unknown"), 0U);
}

}  // namespace
}  // namespace penstock
