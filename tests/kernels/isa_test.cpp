// Which instruction set is chosen, and the scope that sets the float mode.

#include "kernels/cpu/isa.hpp"

#include <gtest/gtest.h>
#include <immintrin.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "kernels/cpu/optimizer.hpp"

namespace penstock::test {
namespace {

/// PENSTOCK_ISA for a scope; null unsets it.
class IsaVariable {
 public:
  explicit IsaVariable(const char* value) {
    if (const char* old = std::getenv("PENSTOCK_ISA")) old_ = old;
    set(value);
  }
  ~IsaVariable() { set(old_ ? old_->c_str() : nullptr); }
  IsaVariable(const IsaVariable&) = delete;
  IsaVariable& operator=(const IsaVariable&) = delete;

 private:
  static void set(const char* value) {
    if (value == nullptr) {
      unsetenv("PENSTOCK_ISA");
    } else {
      setenv("PENSTOCK_ISA", value, 1);
    }
  }
  std::optional<std::string> old_;
};

constexpr Isa kAll[] = {Isa::kScalar, Isa::kAvx2, Isa::kAvx512};

TEST(IsaTest, NamesAndValuesMatch) {
  for (const Isa isa : kAll) EXPECT_EQ(isa_from_name(isa_name(isa)), isa);
  EXPECT_EQ(isa_name(Isa::kAvx512), "avx512");
  EXPECT_FALSE(isa_from_name("AVX2").has_value());
  EXPECT_FALSE(isa_from_name("").has_value());
}

TEST(IsaTest, ScalarIsAlwaysSupportedAndAWiderSetImpliesTheNarrower) {
  EXPECT_TRUE(isa_supported(Isa::kScalar));
  if (isa_supported(Isa::kAvx512)) {
    EXPECT_TRUE(isa_supported(Isa::kAvx2));
  }
}

TEST(IsaTest, ChoosesTheWidestWhenNotTold) {
  for (const char* unset : {static_cast<const char*>(nullptr), ""}) {
    const IsaVariable variable(unset);
    const Result<Isa> isa = choose_isa();
    ASSERT_TRUE(isa.ok());
    for (const Isa other : kAll) {
      if (isa_supported(other)) {
        EXPECT_GE(isa.value(), other);
      }
    }
    EXPECT_TRUE(isa_supported(isa.value()));
  }
}

TEST(IsaTest, ObeysTheVariable) {
  for (const Isa isa : kAll) {
    const IsaVariable variable(std::string(isa_name(isa)).c_str());
    const Result<Isa> chosen = choose_isa();
    if (isa_supported(isa)) {
      ASSERT_TRUE(chosen.ok()) << chosen.error().message;
      EXPECT_EQ(chosen.value(), isa);
    } else {
      ASSERT_FALSE(chosen.ok());
      EXPECT_EQ(chosen.error().code, Errc::kUnsupported);
    }
  }
}

TEST(IsaTest, RefusesAnUnknownNameAndListsTheKnown) {
  const IsaVariable variable("sse9");
  const Result<Isa> chosen = choose_isa();
  ASSERT_FALSE(chosen.ok());
  EXPECT_EQ(chosen.error().code, Errc::kArgument);
  for (const char* part : {"PENSTOCK_ISA", "sse9", "scalar", "avx2", "avx512"}) {
    EXPECT_NE(chosen.error().message.find(part), std::string::npos) << part;
  }
}

TEST(FloatModeGuardTest, FlushesDenormalsInsideAndRestoresTheCaller) {
  const unsigned before = _mm_getcsr();
  volatile float small = 1e-38F;
  {
    const FloatModeGuard guard;
    EXPECT_EQ(_mm_getcsr(), 0x1f80U | 0x8040U);
    const volatile float product = small * 0.5F;
    EXPECT_EQ(product, 0.0F);
  }
  EXPECT_EQ(_mm_getcsr(), before);
  const volatile float product = small * 0.5F;
  EXPECT_NE(product, 0.0F);
}

}  // namespace
}  // namespace penstock::test
