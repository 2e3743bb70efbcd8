// The same bits whatever the instruction set, the split of rows into calls and the caller's float
// mode, on ordinary and on hostile data; arrays end at an unreadable page throughout.

#include <gtest/gtest.h>

#include "kernels/transformer_scenarios.hpp"

namespace penstock::test {
namespace {

class TransformerIsaTest : public IsaTest {};

TEST_P(TransformerIsaTest, GivesTheBitsOfTheScalarKernels) {
  EXPECT_EQ(compare_tables(transformer_kernels(Isa::kScalar), transformer_kernels(GetParam())), "");
}

TEST_P(TransformerIsaTest, ResultsDoNotDependOnHowRowsAreGrouped) {
  const TransformerKernels& kernels = transformer_kernels(GetParam());
  for (const Scenario& scenario : transformer_scenarios()) {
    for (const std::size_t n : {1U, 23U, 64U, 130U}) {
      const auto whole = run_scenario(scenario, kernels, {9, n, 9}, Content::kNormal);
      for (const std::size_t group : {1U, 2U, 4U, 5U}) {
        EXPECT_EQ(run_scenario(scenario, kernels, {9, n, group}, Content::kNormal), whole)
            << scenario.name << ", rows of " << n << " in groups of " << group;
      }
    }
  }
}

TEST_P(TransformerIsaTest, NeitherObeysNorChangesTheFloatModeOfItsCaller) {
  constexpr unsigned kUpwards = 0x1f80U | 0x4000U;               // no flushing
  constexpr unsigned kTruncating = 0x1f80U | 0x6000U | 0x8000U;  // FTZ without DAZ
  constexpr unsigned kWithFlags = 0x1f80U | 0x8040U | 0x0021U;   // flags standing
  const TransformerKernels& kernels = transformer_kernels(GetParam());
  for (const Scenario& scenario : transformer_scenarios()) {
    for (const Content content : {Content::kNormal, Content::kDenormal}) {
      const auto plain = run_scenario(scenario, kernels, {3, 50, 3}, content);
      for (const unsigned mode : {kUpwards, kTruncating, kWithFlags}) {
        bool restored = false;
        EXPECT_EQ(run_scenario(scenario, kernels, {3, 50, 3}, content, mode, &restored), plain)
            << scenario.name << " with MXCSR " << mode;
        EXPECT_TRUE(restored) << scenario.name << " with MXCSR " << mode;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, TransformerIsaTest, all_isas(), isa_test_name);

}  // namespace
}  // namespace penstock::test
