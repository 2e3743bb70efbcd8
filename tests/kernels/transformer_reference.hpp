#pragma once

/// The transformer's row functions in double, straight from their definitions: what the kernels are
/// measured against. Rows are vectors; one call, one row.

#include <cmath>
#include <cstddef>
#include <vector>

namespace penstock::test::reference {

using Row = std::vector<double>;

inline double mean(const Row& x) {
  double sum = 0.0;
  for (const double each : x) sum += each;
  return sum / static_cast<double>(x.size());
}
inline double dot(const Row& a, const Row& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

struct Statistics {
  double mean = 0.0;
  double rstd = 0.0;
};
inline Statistics rms_statistics(const Row& x, double eps) {
  return {0.0, 1.0 / std::sqrt(dot(x, x) / static_cast<double>(x.size()) + eps)};
}
inline Statistics layer_statistics(const Row& x, double eps) {
  const double centre = mean(x);
  Row squares;
  for (const double each : x) squares.push_back((each - centre) * (each - centre));
  return {centre, 1.0 / std::sqrt(mean(squares) + eps)};
}
/// RMSNorm with mean 0 and bias 0, else LayerNorm.
inline Row normalise(const Row& x, const Statistics& s, const Row& weight, const Row& bias) {
  Row y;
  for (std::size_t i = 0; i < x.size(); ++i) {
    y.push_back((x[i] - s.mean) * s.rstd * weight[i] + bias[i]);
  }
  return y;
}

struct NormGradient {
  Row x, weight, bias;
};
inline NormGradient rmsnorm_gradient(const Row& dy, const Row& x, const Row& weight, double rstd) {
  NormGradient out;
  double sum = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += dy[i] * weight[i] * x[i];
  const double cubed = rstd * rstd * rstd / static_cast<double>(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    out.x.push_back(rstd * dy[i] * weight[i] - cubed * x[i] * sum);
    out.weight.push_back(dy[i] * x[i] * rstd);
  }
  return out;
}
inline NormGradient layernorm_gradient(const Row& dy, const Row& x, const Row& weight,
                                       const Statistics& s) {
  NormGradient out;
  const auto n = static_cast<double>(x.size());
  double sum = 0.0;
  double product = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    sum += dy[i] * weight[i];
    product += dy[i] * weight[i] * (x[i] - s.mean);
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    out.x.push_back(s.rstd * (dy[i] * weight[i] - sum / n) -
                    (x[i] - s.mean) * s.rstd * s.rstd * s.rstd * product / n);
    out.weight.push_back(dy[i] * (x[i] - s.mean) * s.rstd);
    out.bias.push_back(dy[i]);
  }
  return out;
}

inline double maximum(const Row& x) {
  double largest = -INFINITY;
  for (const double each : x) largest = std::fmax(largest, each);
  return largest;
}
/// Of the visible columns only.
inline Row softmax(const Row& x, double scale) {
  Row p;
  for (const double each : x) p.push_back(each * scale);
  const double largest = maximum(p);
  double sum = 0.0;
  for (double& each : p) sum += each = std::exp(each - largest);
  for (double& each : p) each /= sum;
  return p;
}
inline Row softmax_gradient(const Row& p, const Row& dp, double scale) {
  const double inner = dot(p, dp);
  Row dx;
  for (std::size_t i = 0; i < p.size(); ++i) dx.push_back(scale * p[i] * (dp[i] - inner));
  return dx;
}

inline double gelu_slope(double x) {
  return std::sqrt(2.0 / M_PI) * (1.0 + 3.0 * 0.044715 * x * x);
}
inline double gelu_argument(double x) {
  return std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x);
}
/// 1 + tanh(u), without cancellation at the negative end.
inline double one_plus_tanh(double u) {
  return u > -1.0 ? 1.0 + std::tanh(u) : 2.0 * std::exp(2.0 * u) / (1.0 + std::exp(2.0 * u));
}
inline double gelu(double x) {
  return 0.5 * x * one_plus_tanh(gelu_argument(x));
}
inline double gelu_derivative(double x) {
  const double plus = one_plus_tanh(gelu_argument(x));
  const double minus = one_plus_tanh(-gelu_argument(x));
  return 0.5 * plus + 0.5 * x * plus * minus * gelu_slope(x);
}

inline double sigmoid(double x) {
  return x > 0.0 ? 1.0 / (1.0 + std::exp(-x)) : std::exp(x) / (1.0 + std::exp(x));
}
inline double swiglu(double gate, double up) {
  return gate * sigmoid(gate) * up;
}
struct GatedGradient {
  double gate, up;
};
inline GatedGradient swiglu_gradient(double gate, double up, double dy) {
  const double s = sigmoid(gate);
  return {dy * up * (s + gate * s * sigmoid(-gate)), dy * gate * s};
}

struct Pair {
  double first, second;
};
inline Pair rotate(Pair x, double angle) {
  return {x.first * std::cos(angle) - x.second * std::sin(angle),
          x.first * std::sin(angle) + x.second * std::cos(angle)};
}

inline double cross_entropy(const Row& logits, std::size_t target) {
  const double largest = maximum(logits);
  double sum = 0.0;
  for (const double each : logits) sum += std::exp(each - largest);
  return std::log(sum) + largest - logits[target];
}
inline Row cross_entropy_gradient(const Row& logits, std::size_t target, double factor) {
  Row gradient = softmax(logits, 1.0);
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    gradient[i] = factor * (gradient[i] - (i == target ? 1.0 : 0.0));
  }
  return gradient;
}

}  // namespace penstock::test::reference
