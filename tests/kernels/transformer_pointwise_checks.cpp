// Elementary functions over their whole range, activations, sums.

#include <cmath>
#include <limits>

#include "kernels/transformer_checker.hpp"

namespace penstock::test {
namespace {

/// In units of the last place of `want`, whose binade is at least that of the smallest normal.
double ulps(double got, double want) {
  const int exponent = std::max(std::ilogb(want), -126);
  return std::fabs(got - want) / std::ldexp(1.0, exponent - 23);
}

using Elementary = void (*)(std::size_t n, const float* x, float* y);

/// Every kStride-th float from `first` on, up to `last` (as bits), against the double function.
void sweep(const char* name, Elementary kernel, double (*want)(double), std::uint32_t first,
           std::uint32_t last, double limit_ulps, Verdict& verdict) {
  constexpr std::uint32_t kStride = 4799;  // odd, so that all low bits occur
  constexpr std::size_t kBatch = 1000;
  std::uint64_t pattern = first;
  while (pattern < last) {
    Floats x;
    for (; pattern < last && x.size() < kBatch; pattern += kStride) {
      x.push_back(float_of(static_cast<std::uint32_t>(pattern)));
    }
    Floats y(x.size(), NAN);
    kernel(x.size(), x.data(), y.data());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double exact = want(x[i]);
      const bool tiny = std::fabs(exact) < kSmallestNormal;
      const double tolerance =
          tiny ? kSmallestNormal
               : limit_ulps * std::ldexp(1.0, std::max(std::ilogb(exact), -126) - 23);
      if (tiny && y[i] == 0.0F) continue;
      if (!(ulps(y[i], exact) <= limit_ulps)) {
        verdict.near(name, bits_of(x[i]), y[i], exact, tolerance);
      }
    }
  }
}

struct Special {
  float x, y;
};
void specials(const char* name, Elementary kernel, std::span<const Special> cases,
              Verdict& verdict) {
  for (std::size_t i = 0; i < cases.size(); ++i) {
    float y = 17.0F;
    kernel(1, &cases[i].x, &y);
    verdict.same(name, i, y, cases[i].y);
  }
}

constexpr float kMax = std::numeric_limits<float>::max();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kDenormal = 1e-40F;

std::string check_exp(const TransformerKernels& k) {
  Verdict verdict("exp");
  const auto want = +[](double x) { return std::exp(x); };
  sweep("exp", k.exp, want, bits_of(0x1p-30F), bits_of(88.72283F), 1.0, verdict);
  sweep("exp", k.exp, want, bits_of(-0x1p-30F), bits_of(-120.0F), 1.0, verdict);
  // The largest finite result, the first infinite one; the last normal one, the first flushed one.
  const Special cases[] = {{0.0F, 1.0F},  {-0.0F, 1.0F},      {kDenormal, 1.0F}, {kInf, kInf},
                           {-kInf, 0.0F}, {kMax, kInf},       {-kMax, 0.0F},     {88.72285F, kInf},
                           {89.5F, kInf}, {-87.33656F, 0.0F}, {-104.5F, 0.0F},   {kNaN, kNaN}};
  specials("exp of case", k.exp, cases, verdict);
  return verdict.first();
}

std::string check_tanh(const TransformerKernels& k) {
  Verdict verdict("tanh");
  const auto want = +[](double x) { return std::tanh(x); };
  sweep("tanh", k.tanh, want, bits_of(0x1p-126F), bits_of(kInf), 2.0, verdict);
  sweep("tanh", k.tanh, want, bits_of(-0x1p-126F), bits_of(-kInf), 2.0, verdict);
  const Special cases[] = {{0.0F, 0.0F},   {-0.0F, -0.0F},  {kInf, 1.0F},
                           {-kInf, -1.0F}, {kMax, 1.0F},    {-kMax, -1.0F},
                           {20.0F, 1.0F},  {-20.0F, -1.0F}, {kNaN, kNaN}};
  specials("tanh of case", k.tanh, cases, verdict);
  return verdict.first();
}

std::string check_log(const TransformerKernels& k) {
  Verdict verdict("log");
  const auto want = +[](double x) { return std::log(x); };
  sweep("log", k.log, want, bits_of(0x1p-126F), bits_of(kInf), 1.0, verdict);
  sweep("log", k.log, want, bits_of(0.999F), bits_of(1.001F), 1.0, verdict);
  const Special cases[] = {{1.0F, 0.0F},       {0.0F, -kInf}, {-0.0F, -kInf},
                           {kDenormal, -kInf}, {kInf, kInf},  {-1.0F, kNaN},
                           {-kInf, kNaN},      {-kMax, kNaN}, {kNaN, kNaN}};
  specials("log of case", k.log, cases, verdict);
  return verdict.first();
}

/// Values below this may have been flushed on the way.
constexpr double kFlushed = 1e-35;

Floats activation_inputs() {
  Floats x = {0.0F, -0.0F, 1e-20F, -1e-20F, 16.5F, -16.5F, 87.0F, -87.0F, 1000.0F, -1000.0F};
  for (int i = -2000; i <= 2000; ++i) x.push_back(static_cast<float>(i) * 0.00731F);
  for (const float each : random_floats(501, 21, 3.0)) x.push_back(each);
  return x;
}

std::string check_gelu(const TransformerKernels& k) {
  Verdict verdict("gelu");
  const Floats x = activation_inputs();
  const Floats dy = random_floats(x.size(), 22);
  Floats y(x.size(), NAN);
  Floats dx(x.size(), NAN);
  k.gelu_forward(x.size(), x.data(), y.data());
  k.gelu_backward(x.size(), x.data(), dy.data(), dx.data());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double w = 2.0 * std::fabs(reference::gelu_argument(x[i]));
    const double amplified = w * (x[i] > 0.0F ? std::exp(-w) : 1.0);
    const double want = reference::gelu(x[i]);
    verdict.near("y", i, y[i], want,
                 (8.0 + 6.0 * amplified) * kHalfUlp * std::fabs(want) + kFlushed);
    // Two terms of either sign, each with the error of its sigmoid.
    const double plus = 0.5 * reference::one_plus_tanh(reference::gelu_argument(x[i]));
    const double minus = 0.5 * reference::one_plus_tanh(-reference::gelu_argument(x[i]));
    const double terms = plus * (1.0 + std::fabs(2.0 * x[i] * minus * reference::gelu_slope(x[i])));
    const double slope = reference::gelu_derivative(x[i]);
    verdict.near("dx", i, dx[i], dy[i] * slope,
                 std::fabs(dy[i]) * ((10.0 + 8.0 * amplified) * kHalfUlp * terms + kFlushed));
  }
  const Special cases[] = {{kInf, kInf}, {kMax, kMax}, {-1e30F, -0.0F}, {kNaN, kNaN}};
  specials("gelu of case", k.gelu_forward, cases, verdict);
  return verdict.first();
}

std::string check_swiglu(const TransformerKernels& k) {
  Verdict verdict("swiglu");
  const Floats gate = activation_inputs();
  const Floats up = random_floats(gate.size(), 23);
  const Floats dy = random_floats(gate.size(), 24);
  Floats y(gate.size(), NAN);
  Floats dgate(gate.size(), NAN);
  Floats dup(gate.size(), NAN);
  k.swiglu_forward(gate.size(), gate.data(), up.data(), y.data());
  k.swiglu_backward(gate.size(), gate.data(), up.data(), dy.data(), dgate.data(), dup.data());
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const double g = gate[i];
    const double s = reference::sigmoid(g);
    const double want = reference::swiglu(g, up[i]);
    const auto gradient = reference::swiglu_gradient(g, up[i], dy[i]);
    verdict.near("y", i, y[i], want, 8.0 * kHalfUlp * std::fabs(want) + kFlushed);
    verdict.near("dup", i, dup[i], gradient.up, 8.0 * kHalfUlp * std::fabs(gradient.up) + kFlushed);
    const double terms = s * (1.0 + std::fabs(g) * reference::sigmoid(-g));
    verdict.near("dgate", i, dgate[i], gradient.gate,
                 std::fabs(dy[i] * up[i]) * (12.0 * kHalfUlp * terms + kFlushed));
  }
  return verdict.first();
}

std::string check_sums(const TransformerKernels& k) {
  Verdict verdict("sums");
  for (const std::size_t n : {0U, 1U, 15U, 16U, 17U, 100U}) {
    const Floats a = random_floats(n, 25);
    const Floats b = random_floats(n, 26);
    Floats sum(n, NAN);
    Floats into = b;
    Floats scaled = a;
    k.add(n, a.data(), b.data(), sum.data());
    k.add_into(n, a.data(), into.data());
    k.scale(n, 0.3F, scaled.data());
    for (std::size_t i = 0; i < n; ++i) {
      verdict.same("add", i, sum[i], a[i] + b[i]);
      verdict.same("add_into", i, into[i], b[i] + a[i]);
      verdict.same("scale", i, scaled[i], a[i] * 0.3F);
    }
  }
  return verdict.first();
}

std::string check_bias(const TransformerKernels& k) {
  for (const auto& [rows, n] : kRowShapes) {
    Verdict verdict("bias of " + shape_text({rows, n}));
    const Floats bias = random_floats(n, 27);
    const Floats x = random_floats(rows * n, 28);
    Floats y = x;
    Floats dbias = bias;
    k.bias_add(rows, n, bias.data(), y.data());
    k.bias_backward(rows, n, x.data(), dbias.data());
    for (std::size_t i = 0; i < n; ++i) {
      float sum = bias[i];  // ascending rows: the exact order is part of the contract
      for (std::size_t r = 0; r < rows; ++r) {
        verdict.same("y", r * n + i, y[r * n + i], x[r * n + i] + bias[i]);
        sum += x[r * n + i];
      }
      verdict.same("dbias", i, dbias[i], sum);
    }
    if (!verdict.first().empty()) return verdict.first();
  }
  return "";
}

constexpr TransformerCheck kPointwiseChecks[] = {
    {"Exp", check_exp},       {"Tanh", check_tanh}, {"Log", check_log},   {"Gelu", check_gelu},
    {"Swiglu", check_swiglu}, {"Sums", check_sums}, {"Bias", check_bias},
};

}  // namespace

std::span<const TransformerCheck> pointwise_checks() {
  return kPointwiseChecks;
}

}  // namespace penstock::test
