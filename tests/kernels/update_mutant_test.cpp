// Each of these rules is wrong in one way, most of which have occurred in some optimizer; the
// checker that the kernels pass must refuse every one, and accept the same code without its fault.
//
// Method: faults of the host are made in the rule or the scalars that a real kernel is called with;
// faults of the formula are further policies, built into the kernels' own loop on the scalar kit;
// faults of the loop wrap a kernel.

#include <algorithm>
#include <string_view>

#include "kernels/cpu/update_impl.hpp"
#include "kernels/update_checker.hpp"
#include "kernels/update_faults.hpp"

namespace penstock::test {
namespace {

constexpr KernelForm kForm = {Isa::kScalar, DType::kBf16, false};

using detail::GradientBf16;
using detail::PlainMaster;
using scalar::Kit;

template <template <Fault, bool> class Policy, Fault kFault>
UpdateStep faulty(const UpdateRule& rule) {
  const UpdateKernel plain = detail::Update<Kit, Policy<kFault, false>, GradientBf16<Kit>,
                                            PlainMaster<Kit>, detail::StateF32<Kit>>::run;
  const UpdateKernel other = detail::Update<Kit, Policy<kFault, true>, GradientBf16<Kit>,
                                            PlainMaster<Kit>, detail::StateF32<Kit>>::run;
  return kernel_update(kForm, update_scalars, rule.amsgrad ? other : plain);
}

// ==== faults of the host ======================================================================

using RuleChange = void (*)(UpdateRule& rule, std::uint64_t& t, double& factor);
using ScalarsChange = void (*)(const UpdateRule& rule, UpdateScalars& scalars);

UpdateStep with_rule(RuleChange change) {
  return [change](const UpdateRule& rule, std::uint64_t t, double factor, UpdateValues& x,
                  const std::vector<float>& gradient, std::vector<std::uint16_t>* out) {
    UpdateRule used = rule;
    change(used, t, factor);
    kernel_update(kForm)(used, t, factor, x, gradient, out);
  };
}
UpdateStep with_scalars(ScalarsChange change) {
  return kernel_update(kForm, [change](const UpdateRule& rule, std::uint64_t t, double factor) {
    UpdateScalars scalars = update_scalars(rule, t, factor);
    change(rule, scalars);
    return scalars;
  });
}

// ==== faults of the loop ======================================================================

using Vectors = std::vector<std::uint16_t>;
using Wrapped = void (*)(const UpdateStep& step, const UpdateRule& rule, std::uint64_t t,
                         double factor, UpdateValues& x, const std::vector<float>& g, Vectors* out);

UpdateStep wrapped(Wrapped wrap) {
  return [wrap](const UpdateRule& rule, std::uint64_t t, double factor, UpdateValues& x,
                const std::vector<float>& gradient,
                Vectors* out) { wrap(kernel_update(kForm), rule, t, factor, x, gradient, out); };
}

void does_nothing(const UpdateStep& /*step*/, const UpdateRule& /*rule*/, std::uint64_t /*t*/,
                  double /*factor*/, UpdateValues& /*x*/, const std::vector<float>& /*g*/,
                  Vectors* /*out*/) {}
void leaves_the_weights(const UpdateStep& step, const UpdateRule& rule, std::uint64_t t,
                        double factor, UpdateValues& x, const std::vector<float>& g, Vectors* out) {
  const std::vector<float> old = x.p;
  step(rule, t, factor, x, g, out);
  x.p = old;
}
void leaves_the_states(const UpdateStep& step, const UpdateRule& rule, std::uint64_t t,
                       double factor, UpdateValues& x, const std::vector<float>& g, Vectors* out) {
  UpdateValues next = x;
  step(rule, t, factor, next, g, out);
  x.p = next.p;
}
void skips_the_last_element(const UpdateStep& step, const UpdateRule& rule, std::uint64_t t,
                            double factor, UpdateValues& x, const std::vector<float>& g,
                            Vectors* out) {
  const float old = x.p.back();
  step(rule, t, factor, x, g, out);
  x.p.back() = old;
}
template <class Narrow>
void copies_by(Narrow narrow, const UpdateValues& from, Vectors* out) {
  if (out == nullptr) return;
  for (std::size_t i = 0; i < out->size(); ++i) (*out)[i] = narrow(bits_of(from.p[i]));
}
void truncates_the_copy(const UpdateStep& step, const UpdateRule& rule, std::uint64_t t,
                        double factor, UpdateValues& x, const std::vector<float>& g, Vectors* out) {
  step(rule, t, factor, x, g, out);
  copies_by([](std::uint32_t bits) { return static_cast<std::uint16_t>(bits >> 16); }, x, out);
}
void rounds_ties_of_the_copy_away(const UpdateStep& step, const UpdateRule& rule, std::uint64_t t,
                                  double factor, UpdateValues& x, const std::vector<float>& g,
                                  Vectors* out) {
  step(rule, t, factor, x, g, out);
  copies_by(split_hi, x, out);
}
void copies_the_old_weights(const UpdateStep& step, const UpdateRule& rule, std::uint64_t t,
                            double factor, UpdateValues& x, const std::vector<float>& g,
                            Vectors* out) {
  const UpdateValues old = x;
  step(rule, t, factor, x, g, out);
  copies_by(split_hi, old, out);
}
void keeps_the_master_in_bf16(const UpdateStep& step, const UpdateRule& rule, std::uint64_t t,
                              double factor, UpdateValues& x, const std::vector<float>& g,
                              Vectors* out) {
  step(rule, t, factor, x, g, out);
  for (float& p : x.p) p = bf16_value(split_hi(bits_of(p)));
}

// ==== the list ================================================================================

bool is(const UpdateRule& rule, std::initializer_list<Rule> kinds) {
  return std::find(kinds.begin(), kinds.end(), rule.rule) != kinds.end();
}
bool any_rule(const UpdateRule& /*rule*/) {
  return true;
}
bool adams(const UpdateRule& rule) {
  return is(rule, {Rule::kAdam, Rule::kAdamW});
}
bool maximum(const UpdateRule& rule) {
  return rule.amsgrad;
}
bool momentum(const UpdateRule& rule) {
  return rule.momentum != 0.0;
}
bool nesterov(const UpdateRule& rule) {
  return rule.nesterov;
}
bool adagrad(const UpdateRule& rule) {
  return is(rule, {Rule::kAdagrad});
}
bool lion(const UpdateRule& rule) {
  return is(rule, {Rule::kLion});
}
bool decoupled(const UpdateRule& rule) {
  return is(rule, {Rule::kAdamW, Rule::kLion});
}
bool averages(const UpdateRule& rule) {
  return adams(rule) || lion(rule);
}
bool maximized(const UpdateRule& rule) {
  return rule.maximize;
}
bool has_states(const UpdateRule& rule) {
  return update_states(rule).m || update_states(rule).v;
}
bool counts_steps(const UpdateRule& rule) {
  return adams(rule) || adagrad(rule) || momentum(rule);
}

struct Mutant {
  const char* name;
  bool (*applies)(const UpdateRule&);
  UpdateStep (*make)(const UpdateRule&);
};

constexpr Mutant kMutants[] = {
    {"DoesNothing", any_rule, [](auto&) { return wrapped(does_nothing); }},
    {"LeavesTheWeights", any_rule, [](auto&) { return wrapped(leaves_the_weights); }},
    {"LeavesTheStates", has_states, [](auto&) { return wrapped(leaves_the_states); }},
    {"SkipsTheLastElement", any_rule, [](auto&) { return wrapped(skips_the_last_element); }},
    {"TruncatesTheCopy", any_rule, [](auto&) { return wrapped(truncates_the_copy); }},
    {"RoundsTiesOfTheCopyAway", any_rule,
     [](auto&) { return wrapped(rounds_ties_of_the_copy_away); }},
    {"CopiesTheOldWeights", any_rule, [](auto&) { return wrapped(copies_the_old_weights); }},
    {"KeepsTheMasterInBf16", any_rule, [](auto&) { return wrapped(keeps_the_master_in_bf16); }},

    {"SignFlipped", any_rule,
     [](auto&) { return with_scalars([](auto&, UpdateScalars& s) { s.ns = -s.ns; }); }},
    {"GradientUnscaled", any_rule,
     [](auto&) { return with_rule([](auto&, auto&, double& factor) { factor = 1.0; }); }},
    {"BetasSwapped", averages,
     [](auto&) {
       return with_rule([](UpdateRule& r, auto&, auto&) { std::swap(r.beta1, r.beta2); });
     }},
    {"NoCorrectionOfM", adams,
     [](auto&) {
       return with_scalars(
           [](const UpdateRule& r, UpdateScalars& s) { s.ns = static_cast<float>(-r.lr); });
     }},
    {"NoCorrectionOfV", adams,
     [](auto&) { return with_scalars([](auto&, UpdateScalars& s) { s.is = 1.0F; }); }},
    {"StaleStep", counts_steps,
     [](auto&) {
       return with_rule([](auto&, std::uint64_t& t, auto&) { t = t > 1 ? t - 1 : 1; });
     }},
    {"StepCountedTwice", counts_steps,
     [](auto&) { return with_rule([](auto&, std::uint64_t& t, auto&) { ++t; }); }},
    {"DecayDropped", any_rule,
     [](auto&) { return with_rule([](UpdateRule& r, auto&, auto&) { r.weight_decay = 0.0; }); }},
    {"DecayDoubled", any_rule,
     [](auto&) { return with_rule([](UpdateRule& r, auto&, auto&) { r.weight_decay *= 2.0; }); }},
    {"DecayTurned", any_rule,
     [](auto&) {
       // Adam's penalty is not looked at where it is negative: the same as dropping it.
       return with_scalars([](auto&, UpdateScalars& s) {
         s.nd = -s.nd;
         s.l2 = -s.l2;
       });
     }},
    {"DecayWithoutTheRate", decoupled,
     [](auto&) {
       return with_scalars([](const UpdateRule& r, UpdateScalars& s) {
         if (s.nd < 0.0F) s.nd = static_cast<float>(-r.weight_decay);
       });
     }},
    {"DecayAsPenalty", [](const UpdateRule& r) { return is(r, {Rule::kAdamW}); },
     [](auto&) { return with_rule([](UpdateRule& r, auto&, auto&) { r.rule = Rule::kAdam; }); }},
    {"PenaltyAsDecay", [](const UpdateRule& r) { return is(r, {Rule::kAdam}); },
     [](auto&) { return with_rule([](UpdateRule& r, auto&, auto&) { r.rule = Rule::kAdamW; }); }},
    {"MaximizeIgnored", maximized,
     [](auto&) { return with_rule([](UpdateRule& r, auto&, auto&) { r.maximize = false; }); }},
    {"MaximizeTurnsTheDecay", maximized,
     [](auto&) {
       return with_scalars([](auto&, UpdateScalars& s) {
         s.gs = -s.gs;
         s.ns = -s.ns;
         s.nd = -s.nd;
       });
     }},
    {"MaximumIgnored", maximum,
     [](auto&) { return with_rule([](UpdateRule& r, auto&, auto&) { r.amsgrad = false; }); }},
    {"MomentumDropped", momentum,
     [](auto&) { return with_rule([](UpdateRule& r, auto&, auto&) { r.momentum = 0.0; }); }},
    {"NesterovIgnored", nesterov,
     [](auto&) { return with_rule([](UpdateRule& r, auto&, auto&) { r.nesterov = false; }); }},
    {"DampeningIgnored", [](const UpdateRule& r) { return momentum(r) && !nesterov(r); },
     [](auto&) { return with_rule([](UpdateRule& r, auto&, auto&) { r.dampening = 0.0; }); }},
    {"MomentumAsAnAverage", momentum,
     [](auto&) {
       return with_rule([](UpdateRule& r, auto&, auto&) { r.dampening = r.momentum; });
     }},
    {"FirstGradientDampened", momentum,
     [](auto&) { return with_scalars([](auto&, UpdateScalars& s) { s.first = 0.0F; }); }},
    {"RateDecayIgnored", adagrad,
     [](auto&) { return with_rule([](UpdateRule& r, auto&, auto&) { r.lr_decay = 0.0; }); }},

    {"AdamEpsInsideRoot", adams, faulty<FaultyAdam, Fault::kEpsInsideRoot>},
    {"AdamEpsBeforeCorrection", adams, faulty<FaultyAdam, Fault::kEpsBeforeCorrection>},
    {"AdamWithoutRoot", adams, faulty<FaultyAdam, Fault::kNoRoot>},
    {"AdamAsWeightedSum", adams, faulty<FaultyAdam, Fault::kWeightedSum>},
    {"AdamDecayAfterTheStep", [](const UpdateRule& r) { return is(r, {Rule::kAdamW}); },
     faulty<FaultyAdam, Fault::kDecayAfter>},
    {"AdamDecayInTheFactor", [](const UpdateRule& r) { return is(r, {Rule::kAdamW}); },
     faulty<FaultyAdam, Fault::kDecayInFactor>},
    {"AdamMaximumFedBack", maximum, faulty<FaultyAdam, Fault::kMaximumFedBack>},
    {"AdamMaximumOnlyKept", maximum, faulty<FaultyAdam, Fault::kMaximumIgnoredInStep>},
    {"SgdBufferAfterTheStep", momentum, faulty<FaultySgd, Fault::kBufferAfterStep>},
    {"SgdNesterovWithTheOldBuffer", nesterov, faulty<FaultySgd, Fault::kNesterovWithOldBuffer>},
    {"AdagradEpsInsideRoot", adagrad, faulty<FaultyAdagrad, Fault::kEpsInsideRoot>},
    {"AdagradWithoutRoot", adagrad, faulty<FaultyAdagrad, Fault::kNoRoot>},
    {"LionSignOfZero", lion, faulty<FaultyLion, Fault::kSignOfZero>},
    {"LionSignMaskWithExponent", lion, faulty<FaultyLion, Fault::kSignMaskWithExponent>},
    {"LionAverageFirst", lion, faulty<FaultyLion, Fault::kAverageFirst>},
    {"LionDecayAfterTheStep", lion, faulty<FaultyLion, Fault::kDecayAfter>},
    {"LionDecayInTheFactor", lion, faulty<FaultyLion, Fault::kDecayInFactor>},
};

class UpdateMutantTest : public testing::TestWithParam<Mutant> {};
INSTANTIATE_TEST_SUITE_P(Fault, UpdateMutantTest, testing::ValuesIn(kMutants),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(UpdateMutantTest, IsRefusedForEveryRuleItCanBefall) {
  int rules = 0;
  for (const NamedRule& named : named_rules()) {
    if (!GetParam().applies(named.rule)) continue;
    ++rules;
    const Findings findings = check_update(named.rule, GetParam().make(named.rule));
    EXPECT_FALSE(findings.empty()) << "the checker accepts a wrong " << named.name;
    std::printf("%s:%s\n", named.name, joined(findings).c_str());
  }
  EXPECT_GT(rules, 0);
}

TEST(UpdateMutantTest, WithoutAFaultIsAccepted) {
  for (const NamedRule& named : named_rules()) {
    const UpdateRule& rule = named.rule;
    std::vector<UpdateStep> steps = {with_scalars([](auto&, auto&) {}),
                                     with_rule([](auto&, auto&, auto&) {})};
    if (adams(rule)) steps.push_back(faulty<FaultyAdam, Fault::kNone>(rule));
    if (momentum(rule)) steps.push_back(faulty<FaultySgd, Fault::kNone>(rule));
    if (adagrad(rule)) steps.push_back(faulty<FaultyAdagrad, Fault::kNone>(rule));
    if (lion(rule)) steps.push_back(faulty<FaultyLion, Fault::kNone>(rule));
    for (const UpdateStep& step : steps) {
      const Findings findings = check_update(rule, step);
      EXPECT_TRUE(findings.empty()) << named.name << joined(findings);
    }
  }
}

}  // namespace
}  // namespace penstock::test
