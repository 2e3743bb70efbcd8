#include "kernels/update_checker.hpp"

#include <algorithm>
#include <cstdio>

namespace penstock::test {
namespace {

constexpr double kUnit = 0x1p-24;

void expect_at_most(Findings& findings, const std::string& what, double value, double limit) {
  if (value <= limit) return;  // NaN fails
  char text[96];
  std::snprintf(text, sizeof text, ": %.6g exceeds %.6g", value, limit);
  findings.push_back(what + text);
}

/// The larger of both; NaN wins.
double worse(double worst, double value) {
  return value > worst || value != value ? value : worst;
}

/// Near x, with 8 significant bits and at least 2^-14: the same number in bf16, f16 and f32.
float gradient_near(double x) {
  const auto cut = float_of(bits_of(static_cast<float>(x)) & 0xffff0000U);
  return std::fabs(cut) < 0x1p-14F ? std::copysign(0x1p-14F, cut) : cut;
}

std::uint16_t nearest_bf16(float x) {
  const std::uint32_t bits = bits_of(x);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

double wide(float x) {
  return static_cast<double>(x);
}

/// The hyper-parameters a rule is tried with: its own, larger steps, without decay, other averages.
std::vector<UpdateRule> variants(UpdateRule rule) {
  std::vector<UpdateRule> out;
  rule.lr = 1e-3;
  rule.weight_decay = 0.1;
  out.push_back(rule);
  rule.weight_decay = 0.0;
  out.push_back(rule);
  rule.lr = 3e-2;
  rule.weight_decay = 0.3;
  rule.beta2 = 0.95;
  rule.eps = 1e-5;
  rule.lr_decay = 0.01;
  out.push_back(rule);
  rule.beta1 = 0.5;
  rule.beta2 = 0.99;
  rule.dampening = rule.nesterov ? 0.0 : 0.25;
  out.push_back(rule);
  return out;
}

struct Worst {
  double m = 0, v = 0, v_max = 0, p = 0, out = 0;
};

/// Limits, in u of the scales: m 3 and v 4 as measured for AdamW, 2 more each where a penalty is
/// added to the gradient; p one rounding of itself and 8 of what is added.
void compare_step(const UpdateRule& rule, std::uint64_t t, double factor, const UpdateValues& old,
                  const UpdateValues& x, const std::vector<float>& gradient,
                  const std::vector<std::uint16_t>& out, Worst& worst) {
  const bool penalty = rule.weight_decay > 0.0 && rule.rule != Rule::kAdamW;
  const double m_limit = (penalty || rule.rule == Rule::kSgd ? 5.0 : 3.0) * kUnit;
  const double v_limit = (penalty ? 6.0 : 4.0) * kUnit;
  constexpr double kTiny = 1e-37;  // where results are flushed to zero
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const float g = static_cast<float>(factor) * gradient[i];
    const ExactUpdate want = exact_update(rule, t, wide(g), wide(old.p[i]), wide(old.m[i]),
                                          wide(old.v[i]), wide(old.v_max[i]));
    const auto share = [](float got, double exact, double limit) {
      return std::fabs(wide(got) - exact) / (limit + kTiny);
    };
    worst.m = worse(worst.m, share(x.m[i], want.m, m_limit * want.m_scale));
    worst.v = worse(worst.v, share(x.v[i], want.v, v_limit * want.v_scale));
    worst.v_max =
        worse(worst.v_max, share(x.v_max[i], want.v_max, v_limit * (want.v_scale + want.v_max)));
    worst.p = worse(
        worst.p,
        share(x.p[i], want.p, kUnit * (std::fabs(want.p) + 8.0 * want.p_scale) + want.undecided));
    worst.out = worse(worst.out, out[i] == nearest_bf16(x.p[i]) ? 0.0 : 2.0);
  }
}

void check_single_steps(const UpdateRule& base, const UpdateStep& step, Findings& findings) {
  constexpr std::size_t kCount = 1024;
  RandomBits random(17);
  Worst worst;
  for (const UpdateRule& rule : variants(base)) {
    for (const std::uint64_t t : {1U, 2U, 7U, 1000U, 1000000U}) {
      for (const double factor : {1.0, 0.37, -1.0}) {
        UpdateValues x(kCount);
        std::vector<float> gradient(kCount);
        for (std::size_t i = 0; i < kCount; ++i) {
          const double size = std::exp(2.0 * random.normal() - 2.0);
          x.p[i] = static_cast<float>(random.normal());
          x.m[i] = static_cast<float>(size * random.normal());
          x.v[i] = static_cast<float>(size * size * random.uniform());
          x.v_max[i] = x.v[i] * static_cast<float>(0.5 + random.uniform());
          gradient[i] = gradient_near(size * random.normal());
          if (i % 16 == 0) gradient[i] = 0.0F;  // and, at every second one, nothing at all
          if (i % 32 == 0) x.m[i] = 0.0F;
        }
        const UpdateValues old = x;
        std::vector<std::uint16_t> out(kCount, 0x7fff);
        step(rule, t, factor, x, gradient, &out);
        compare_step(rule, t, factor, old, x, gradient, out, worst);
      }
    }
  }
  expect_at_most(findings, "single step, m (share of its limit)", worst.m, 1.0);
  expect_at_most(findings, "single step, v (share of its limit)", worst.v, 1.0);
  expect_at_most(findings, "single step, v_max (share of its limit)", worst.v_max, 1.0);
  expect_at_most(findings, "single step, p (share of its limit)", worst.p, 1.0);
  expect_at_most(findings, "single step, bf16 copy not the nearest", worst.out, 1.0);
}

/// Weights that lie half-way between two bf16 numbers, and stay: copies go to the even one.
void check_ties_of_copies(UpdateRule rule, const UpdateStep& step, Findings& findings) {
  constexpr std::size_t kCount = 64;
  rule.lr = 0.0;
  UpdateValues x(kCount);
  RandomBits random(19);
  for (float& p : x.p) p = float_of((random.next_u32() & 0x80ff0000U) | 0x3f008000U);
  const std::vector<float> old = x.p;
  std::vector<std::uint16_t> out;
  step(rule, 1, 1.0, x, std::vector<float>(kCount, 1.0F), &out);
  out.resize(kCount);
  double wrong = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    wrong += bits_of(x.p[i]) != bits_of(old[i]) || out[i] != nearest_bf16(old[i]) ? 1.0 : 0.0;
  }
  expect_at_most(findings, "weights that stay, copies of ties not to the even number", wrong, 0.0);
}

/// 10,000 steps of stationary gradients, in double beside. States must not drift (fp32 beta and
/// 1 - beta need not add up to one), and p must arrive where it should: its own roundings are a
/// random walk of some hundred half-units, a thousand are allowed.
void check_trajectory(UpdateRule rule, const UpdateStep& step, Findings& findings) {
  constexpr std::size_t kCount = 24;
  rule.lr = 1e-4;
  rule.weight_decay = 0.0;
  UpdateValues x(kCount);
  std::vector<ExactUpdate> want(kCount);
  std::vector<float> gradient(kCount);
  RandomBits random(23);
  for (std::uint64_t t = 1; t <= 10000; ++t) {
    for (float& g : gradient) g = gradient_near(0.3 + random.normal());
    step(rule, t, 1.0, x, gradient, nullptr);
    for (std::size_t i = 0; i < kCount; ++i) {
      want[i] =
          exact_update(rule, t, wide(gradient[i]), want[i].p, want[i].m, want[i].v, want[i].v_max);
    }
  }
  double m = 0, v = 0, v_max = 0, p = 0, inner = 0, square = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    const auto relative = [](float got, double exact) {
      return exact == 0.0 ? std::fabs(wide(got)) : std::fabs(wide(got) / exact - 1.0);
    };
    m = worse(m, std::fabs(wide(x.m[i]) - want[i].m) / (want[i].m_scale + 1e-30));
    v = worse(v, relative(x.v[i], want[i].v));
    v_max = worse(v_max, relative(x.v_max[i], want[i].v_max));
    p = worse(p, std::fabs(wide(x.p[i]) - want[i].p) / (std::fabs(want[i].p) + rule.lr));
    if (update_states(rule).m && update_states(rule).v) {
      const double direction = want[i].m / std::sqrt(want[i].v);
      inner += direction * wide(x.m[i]) / std::sqrt(wide(x.v[i]));
      square += direction * direction;
    }
  }
  // SGD's buffer is a sum over 1/(1 - momentum) steps, whose last gradient may be small.
  expect_at_most(findings, "trajectory, m", m, rule.rule == Rule::kSgd ? 1e-5 : 2e-6);
  expect_at_most(findings, "trajectory, |v/V - 1|", v, 5e-6);
  expect_at_most(findings, "trajectory, |v_max/V_max - 1|", v_max, 5e-6);
  expect_at_most(findings, "trajectory, p", p, 1000.0 * kUnit);
  if (square > 0.0) {
    expect_at_most(findings, "trajectory, bias of the update", std::fabs(inner / square - 1.0),
                   5e-7);
  }
}

/// Zero gradients: 2,000 steps of nothing but decoupled decay must decay by the right amount.
void check_decay(UpdateRule rule, const UpdateStep& step, Findings& findings) {
  if (rule.rule != Rule::kAdamW && rule.rule != Rule::kLion) return;
  constexpr std::size_t kCount = 2048;
  for (const auto& [rate, limit] : {std::pair{1e-5, 1e-3}, std::pair{1e-6, 5e-3}}) {
    rule.lr = 1e-3;
    rule.weight_decay = rate / 1e-3;
    UpdateValues x(kCount);
    RandomBits random(29);
    for (float& p : x.p) p = static_cast<float>(std::exp(random.normal()));
    const UpdateValues old = x;
    const std::vector<float> gradient(kCount);
    for (std::uint64_t t = 1; t <= 2000; ++t) step(rule, t, 1.0, x, gradient, nullptr);
    double total = 0;
    for (std::size_t i = 0; i < kCount; ++i) total += std::log(wide(x.p[i]) / wide(old.p[i]));
    const double ratio = total / static_cast<double>(kCount) / (2000.0 * std::log1p(-rate));
    expect_at_most(findings, "decay of " + std::to_string(rate) + " a step, effective/true - 1",
                   std::fabs(ratio - 1.0), limit);
  }
}

/// Adam and AdamW: the first step from nothing moves by lr g/(|g| + eps), and constant gradients go
/// on moving by that, at any t.
void check_constant_gradient(UpdateRule rule, const UpdateStep& step, Findings& findings) {
  if (rule.rule != Rule::kAdamW && rule.rule != Rule::kAdam) return;
  rule.lr = 0.0625;
  rule.eps = 1e-3;
  rule.weight_decay = 0.0;
  const std::vector<float> gradient = {1.0F, -1.0F, 0.0078125F, 0x1p-14F, -300.0F};
  const std::size_t n = gradient.size();
  UpdateValues x(n);
  double worst = 0;
  for (std::uint64_t t = 1; t <= 100; ++t) {
    const UpdateValues old = x;
    step(rule, t, 1.0, x, gradient, nullptr);
    for (std::size_t i = 0; i < n; ++i) {
      const double g = wide(gradient[i]) * (rule.maximize ? -1.0 : 1.0);
      const double moved = wide(x.p[i]) - wide(old.p[i]);
      const double expected = -rule.lr * g / (std::fabs(g) + rule.eps);
      // m and v carry up to t roundings; p itself is at most 6.25.
      worst = worse(worst, std::fabs(moved - expected) / (std::fabs(expected) * 1e-5 + 0x1p-21));
    }
  }
  expect_at_most(findings, "constant gradient, movement (share of its limit)", worst, 1.0);
}

}  // namespace

const std::vector<NamedRule>& named_rules() {
  static const std::vector<NamedRule> rules = {
      {"AdamW", {.rule = Rule::kAdamW}},
      {"AdamWMaximize", {.rule = Rule::kAdamW, .maximize = true}},
      {"AdamWAmsGrad", {.rule = Rule::kAdamW, .amsgrad = true}},
      {"Adam", {.rule = Rule::kAdam}},
      {"AdamMaximize", {.rule = Rule::kAdam, .maximize = true}},
      {"AdamAmsGrad", {.rule = Rule::kAdam, .amsgrad = true}},
      {"Sgd", {.rule = Rule::kSgd}},
      {"SgdMaximize", {.rule = Rule::kSgd, .maximize = true}},
      {"SgdMomentum", {.rule = Rule::kSgd, .momentum = 0.9}},
      {"SgdNesterov", {.rule = Rule::kSgd, .nesterov = true, .momentum = 0.9}},
      {"Adagrad", {.rule = Rule::kAdagrad}},
      {"AdagradMaximize", {.rule = Rule::kAdagrad, .maximize = true}},
      {"Lion", {.rule = Rule::kLion, .beta2 = 0.99}},
      {"LionMaximize", {.rule = Rule::kLion, .maximize = true, .beta2 = 0.99}},
  };
  return rules;
}

Findings check_update(const UpdateRule& rule, const UpdateStep& step) {
  Findings findings;
  check_single_steps(rule, step, findings);
  check_ties_of_copies(rule, step, findings);
  check_trajectory(rule, step, findings);
  check_decay(rule, step, findings);
  check_constant_gradient(rule, step, findings);
  return findings;
}

std::string joined(const Findings& findings) {
  std::string text;
  for (const std::string& finding : findings) text += "\n  " + finding;
  return text;
}

}  // namespace penstock::test
