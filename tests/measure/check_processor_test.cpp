#include "measure/check_processor.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace penstock {
namespace {

ProcessorFacts machine(int threads, int usable, std::size_t nodes) {
  ProcessorFacts facts;
  Topology topology;
  topology.cores = threads / 2;
  topology.hardware_threads = threads;
  topology.usable_threads = usable;
  topology.cpu_quota = usable < threads ? usable + 0.5 : 0;
  topology.numa_nodes.resize(nodes);
  facts.topology = topology;
  facts.chosen = facts.widest = Isa::kAvx512;
  return facts;
}

TEST(ProcessorCheck, EveryEnd) {
  Check check = check_processor(machine(16, 16, 1));
  EXPECT_EQ(check.status, CheckStatus::kOk);
  EXPECT_EQ(check.why, "8 cores, 16 hardware threads, 1 NUMA node");
  check = check_processor(machine(16, 2, 1));
  EXPECT_EQ(check.status, CheckStatus::kWarn);
  EXPECT_NE(check.why.find("grants time for 2.5 of them"), std::string::npos) << check.why;
  check = check_processor(machine(16, 16, 2));
  EXPECT_EQ(check.status, CheckStatus::kWarn);
  EXPECT_NE(check.fix.find("numactl"), std::string::npos);
  ProcessorFacts unknown;
  unknown.topology = make_error(Errc::kUnsupported, "the machine cannot be read");
  EXPECT_EQ(check_processor(unknown).status, CheckStatus::kWarn);
}

TEST(InstructionCheck, EveryEnd) {
  ProcessorFacts facts = machine(2, 2, 1);
  facts.has_bf16 = true;
  Check check = check_instructions(facts);
  EXPECT_EQ(check.status, CheckStatus::kOk);
  EXPECT_EQ(check.why, "avx512; bf16 products yes, byte permutations no");
  facts.chosen = Isa::kAvx2;
  check = check_instructions(facts);
  EXPECT_EQ(check.status, CheckStatus::kWarn) << "narrower than it could be";
  EXPECT_EQ(check.fix, "unset PENSTOCK_ISA");
  facts.chosen = facts.widest = Isa::kScalar;
  check = check_instructions(facts);
  EXPECT_EQ(check.status, CheckStatus::kWarn) << "an old processor";
  EXPECT_NE(check.fix.find("AVX2"), std::string::npos);
  facts.chosen = make_error(Errc::kArgument, "PENSTOCK_ISA=x: no such name");
  EXPECT_EQ(check_instructions(facts).status, CheckStatus::kFail);
}

TEST(ProcessorFacts, ObeyTheEnvironment) {
  ASSERT_EQ(setenv("PENSTOCK_ISA", "scalar", 1), 0);
  const ProcessorFacts forced = read_processor_facts();
  ASSERT_EQ(setenv("PENSTOCK_ISA", "avx9", 1), 0);
  const ProcessorFacts wrong = read_processor_facts();
  ASSERT_EQ(unsetenv("PENSTOCK_ISA"), 0);
  const ProcessorFacts free = read_processor_facts();
  ASSERT_TRUE(forced.chosen);
  EXPECT_EQ(forced.chosen.value(), Isa::kScalar);
  EXPECT_FALSE(wrong.chosen);
  ASSERT_TRUE(free.chosen);
  EXPECT_EQ(free.chosen.value(), free.widest);
  EXPECT_TRUE(free.topology);
}

}  // namespace
}  // namespace penstock
