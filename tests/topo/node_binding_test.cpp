#include "topo/node_binding.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

#include "topo/topology.hpp"

namespace penstock {
namespace {

TEST(NodeBindingTest, BindsToANodeThatIsThereAndRefusesOthers) {
  const auto topology = read_topology();
  ASSERT_TRUE(topology);
  auto binding = NodeBinding::load();
  ASSERT_TRUE(binding) << binding.error().message;
  ASSERT_FALSE(topology.value().numa_nodes.empty());
  const int node = topology.value().numa_nodes.front().index;
  std::thread([&] {  // the binding is the thread's, and goes with it
    if (const Status bound = binding.value().bind_memory(node); !bound) {
      // A kernel without NUMA has no policies.
      EXPECT_EQ(bound.error().code, Errc::kUnsupported) << bound.error().message;
    }
    EXPECT_TRUE(binding.value().bind_thread(node));
    cpu_set_t set;
    EXPECT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
    EXPECT_GT(CPU_COUNT(&set), 0);
    const Status refused = binding.value().bind_thread(12345);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::kUnsupported);
    EXPECT_NE(refused.error().message.find("node 12345"), std::string::npos);
    EXPECT_FALSE(binding.value().bind_memory(12345));
  })
      .join();
}

}  // namespace
}  // namespace penstock
