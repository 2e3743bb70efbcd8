#include "topo/topology.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <fstream>

#include "base/units.hpp"

namespace penstock {
namespace {

TEST(TopologyTest, ReadsASyntheticDescription) {
  const Result<Topology> result = topology_from_synthetic(
      "node:2(memory=68719476736) l3:1(size=33554432) l2:4(size=1048576) core:1 pu:2");
  ASSERT_TRUE(result.ok()) << result.error().message;
  const Topology& topology = result.value();
  EXPECT_EQ(topology.cores, 8);
  EXPECT_EQ(topology.hardware_threads, 16);
  EXPECT_EQ(topology.usable_threads, 16) << "this machine's quota is not the description's";
  EXPECT_EQ(topology.cpu_quota, 0.0);
  EXPECT_EQ(topology.l2_bytes, kMiB);
  EXPECT_EQ(topology.l3_bytes, 32 * kMiB);
  ASSERT_EQ(topology.numa_nodes.size(), 2U);
  EXPECT_EQ(topology.numa_nodes[0].index, 0);
  EXPECT_EQ(topology.numa_nodes[0].memory_bytes, 64 * kGiB);
  EXPECT_EQ(topology.numa_nodes[0].cpus, "0-7");
  EXPECT_EQ(topology.numa_nodes[1].index, 1);
  EXPECT_EQ(topology.numa_nodes[1].cpus, "8-15");
}

TEST(TopologyTest, ToleratesMissingCachesAndCores) {
  const Result<Topology> result = topology_from_synthetic("pu:3");
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result.value().cores, 3) << "each hardware thread counts as a core";
  EXPECT_EQ(result.value().hardware_threads, 3);
  EXPECT_EQ(result.value().l2_bytes, 0U);
  EXPECT_EQ(result.value().l3_bytes, 0U);
  EXPECT_EQ(result.value().numa_nodes.size(), 1U);
}

TEST(TopologyTest, ReadsXmlAndLeavesOutWhatIsNotAllowed) {
  const Result<Topology> result = topology_from_xml(PENSTOCK_TOPO_DATA "/two_packages.xml");
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result.value().cores, 3);
  EXPECT_EQ(result.value().hardware_threads, 6);
  EXPECT_EQ(result.value().l2_bytes, kMiB);
  ASSERT_EQ(result.value().numa_nodes.size(), 2U);
  EXPECT_EQ(result.value().numa_nodes[0].cpus, "0-3");
  EXPECT_EQ(result.value().numa_nodes[1].cpus, "4-5");
}

TEST(TopologyTest, RefusesBadDescriptionsByName) {
  for (const char* bad : {"", "nonsense:x", "node:0"}) {
    const Result<Topology> result = topology_from_synthetic(bad);
    ASSERT_FALSE(result.ok()) << bad;
    EXPECT_EQ(result.error().code, Errc::kArgument) << bad;
    EXPECT_NE(result.error().message.find(bad), std::string::npos) << result.error().message;
  }
}

TEST(TopologyTest, RefusesFilesThatAreNoTopology) {
  const std::string path = ::testing::TempDir() + "penstock_bad_topology.xml";
  std::ofstream(path) << "<topology version=\"2.0\"><object type=\"Mach";
  for (const std::string& bad : {path, std::string("/nonexistent/penstock.xml")}) {
    const Result<Topology> result = topology_from_xml(bad);
    ASSERT_FALSE(result.ok()) << bad;
    EXPECT_EQ(result.error().code, Errc::kArgument);
    EXPECT_NE(result.error().message.find(bad), std::string::npos) << result.error().message;
  }
  unlink(path.c_str());
}

TEST(TopologyTest, ReadsThisMachineAsThisProcessMayUseIt) {
  const Result<Topology> result = read_topology();
  ASSERT_TRUE(result.ok()) << result.error().message;
  const Topology& topology = result.value();
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  EXPECT_EQ(topology.hardware_threads, CPU_COUNT(&allowed));
  EXPECT_GE(topology.cores, 1);
  EXPECT_LE(topology.cores, topology.hardware_threads);
  EXPECT_GE(topology.usable_threads, 1);
  EXPECT_LE(topology.usable_threads, topology.hardware_threads);
  ASSERT_GE(topology.numa_nodes.size(), 1U);
  EXPECT_GT(topology.numa_nodes[0].memory_bytes, 0U);
}

TEST(TopologyTest, RespectsTheAffinityMask) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  int last = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<unsigned>(cpu), &before)) last = cpu;
  }
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<unsigned>(last), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  const Result<Topology> result = read_topology();
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result.value().hardware_threads, 1);
  EXPECT_EQ(result.value().usable_threads, 1);
  EXPECT_EQ(result.value().cores, 1);
}

}  // namespace
}  // namespace penstock
