// Each of these optimizers is wrong in one way that has occurred somewhere; the checker that the
// kernels pass must refuse every one, and accept the same code without its fault.

#include <string_view>

#include "kernels/adamw_checker.hpp"

namespace penstock::test {
namespace {

enum class Fault {
  kNone,
  kDoesNothing,
  kSignFlipped,
  kBetasSwapped,
  kNoCorrection1,
  kNoCorrection2,
  kEpsInsideSqrt,
  kEpsBeforeCorrection,
  kDecayDropped,
  kDecayAsGradient,
  kDecayInOneFactor,
  kWeightedSumForm,
  kGradientUnscaled,
  kStepCountedFromZero,
};

struct Mutant {
  Fault fault;
  const char* name;
};
constexpr Mutant kMutants[] = {
    {Fault::kDoesNothing, "DoesNothing"},
    {Fault::kSignFlipped, "SignFlipped"},
    {Fault::kBetasSwapped, "BetasSwapped"},
    {Fault::kNoCorrection1, "NoCorrectionOfM"},
    {Fault::kNoCorrection2, "NoCorrectionOfV"},
    {Fault::kEpsInsideSqrt, "EpsInsideSqrt"},
    {Fault::kEpsBeforeCorrection, "EpsBeforeCorrection"},
    {Fault::kDecayDropped, "DecayDropped"},
    {Fault::kDecayAsGradient, "DecayAsGradient"},
    {Fault::kDecayInOneFactor, "DecayInOneFactor"},
    {Fault::kWeightedSumForm, "WeightedSumForm"},
    {Fault::kGradientUnscaled, "GradientUnscaled"},
    {Fault::kStepCountedFromZero, "StepCountedFromZero"},
};

void mutant_element(Fault fault, const AdamW& hyper, const AdamWScalars& s, float gradient,
                    float& p, float& m, float& v) {
  float g = fault == Fault::kGradientUnscaled ? gradient : s.gs * gradient;
  if (fault == Fault::kDecayAsGradient) {
    g = std::fma(static_cast<float>(hyper.weight_decay), p, g);
  }
  if (fault == Fault::kWeightedSumForm) {
    m = static_cast<float>(hyper.beta1) * m + s.w1 * g;
    v = static_cast<float>(hyper.beta2) * v + s.w2 * (g * g);
  } else {
    m = std::fma(s.w1, g - m, m);
    v = std::fma(s.w2, std::fma(g, g, -v), v);
  }
  float denominator = std::fma(std::sqrt(v), s.is, s.eps);
  if (fault == Fault::kEpsInsideSqrt) denominator = std::sqrt(v * (s.is * s.is) + s.eps);
  if (fault == Fault::kEpsBeforeCorrection) denominator = (std::sqrt(v) + s.eps) * s.is;
  const float update = m / denominator;
  const float ns = fault == Fault::kSignFlipped ? -s.ns : s.ns;
  if (fault == Fault::kDecayInOneFactor) {
    p = std::fma(ns, update, (1.0F + s.nd) * p);
  } else if (fault == Fault::kDecayDropped || fault == Fault::kDecayAsGradient) {
    p = std::fma(ns, update, p);
  } else {
    p = p + std::fma(ns, update, s.nd * p);
  }
}

StepFunction mutant_step(Fault fault) {
  return [fault](const AdamW& hyper, std::uint64_t t, double factor, State& state,
                 const std::vector<std::uint16_t>& gradient) {
    if (fault == Fault::kDoesNothing) return;
    AdamW used = hyper;
    if (fault == Fault::kBetasSwapped) std::swap(used.beta1, used.beta2);
    if (fault == Fault::kStepCountedFromZero) t = t > 1 ? t - 1 : 1;
    AdamWScalars scalars = adamw_scalars(used, t, factor);
    if (fault == Fault::kNoCorrection1) scalars.ns = static_cast<float>(-hyper.lr);
    if (fault == Fault::kNoCorrection2) scalars.is = 1.0F;
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      mutant_element(fault, used, scalars, bf16_value(gradient[i]), state.p[i], state.m[i],
                     state.v[i]);
    }
  };
}

class AdamWMutantTest : public testing::TestWithParam<Mutant> {};
INSTANTIATE_TEST_SUITE_P(Fault, AdamWMutantTest, testing::ValuesIn(kMutants),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(AdamWMutantTest, IsRefused) {
  const Findings findings = check_adamw(mutant_step(GetParam().fault));
  EXPECT_FALSE(findings.empty()) << "the checker accepts an optimizer that is wrong";
  for (const std::string& finding : findings) std::printf("  %s\n", finding.c_str());
}

TEST(AdamWMutantTest, WithoutAFaultIsAccepted) {
  const Findings findings = check_adamw(mutant_step(Fault::kNone));
  for (const std::string& finding : findings) ADD_FAILURE() << finding;
}

}  // namespace
}  // namespace penstock::test
