// RMSNorm and LayerNorm against double.

#include <cmath>

#include "kernels/transformer_checker.hpp"

namespace penstock::test {
namespace {

using reference::Row;

constexpr float kEps = 1e-5F;

struct Input {
  double deviation, centre;
};
constexpr Input kInputs[] = {{1.0, 0.0}, {1e-3, 0.0}, {1e3, 0.0}, {1.0, 50.0}, {0.0, 2.0}};

std::string check_rmsnorm_forward(const TransformerKernels& k) {
  for (const auto& [rows, n] : kRowShapes) {
    for (const auto& [deviation, centre] : kInputs) {
      Verdict verdict("rmsnorm_forward of " + shape_text({rows, n}));
      const Floats x = random_floats(rows * n, 1, deviation, centre);
      const Floats weight = random_floats(n, 2, 0.3, 1.0);
      Floats y(rows * n, NAN);
      Floats rstd(rows, NAN);
      k.rmsnorm_forward(rows, n, kEps, x.data(), weight.data(), y.data(), rstd.data());
      const double relative = 0.5 * lane_sum_error(n) + 6.0 * kHalfUlp;
      for (std::size_t r = 0; r < rows; ++r) {
        const Row values = row_of(x, r, n);
        const auto want = reference::rms_statistics(values, kEps);
        verdict.near("rstd", r, rstd[r], want.rstd, relative * want.rstd);
        const Row out = reference::normalise(values, want, row_of(weight, 0, n), Row(n, 0.0));
        for (std::size_t i = 0; i < n; ++i) {
          verdict.near("y", r * n + i, y[r * n + i], out[i], relative * std::fabs(out[i]));
        }
      }
      if (!verdict.first().empty()) return verdict.first();
    }
  }
  return "";
}

/// Inputs of a backward, dweight and dbias already holding something.
struct Backward {
  Floats x, dy, weight, mean, rstd, dx, dweight, dbias;
  Floats old_dweight, old_dbias;

  Backward(std::size_t rows, std::size_t n, const Input& input, bool layer)
      : x(random_floats(rows * n, 3, input.deviation, input.centre)),
        dy(random_floats(rows * n, 4)),
        weight(random_floats(n, 5, 0.3, 1.0)),
        dx(rows * n, NAN),
        dweight(random_floats(n, 6)),
        dbias(random_floats(n, 7)),
        old_dweight(dweight),
        old_dbias(dbias) {
    for (std::size_t r = 0; r < rows; ++r) {
      const Row values = row_of(x, r, n);
      const auto s = layer ? reference::layer_statistics(values, kEps)
                           : reference::rms_statistics(values, kEps);
      mean.push_back(static_cast<float>(s.mean));
      rstd.push_back(static_cast<float>(s.rstd));
    }
  }
};

void compare_backward(const Backward& b, std::size_t rows, std::size_t n, bool layer,
                      Verdict& verdict) {
  Row dweight = row_of(b.old_dweight, 0, n);
  Row dbias = row_of(b.old_dbias, 0, n);
  Row weight_scale(n, 0.0);
  Row bias_scale(n, 0.0);
  const Row weight = row_of(b.weight, 0, n);
  for (std::size_t r = 0; r < rows; ++r) {
    const Row x = row_of(b.x, r, n);
    const Row dy = row_of(b.dy, r, n);
    const reference::Statistics s{b.mean[r], b.rstd[r]};
    const auto want = layer ? reference::layernorm_gradient(dy, x, weight, s)
                            : reference::rmsnorm_gradient(dy, x, weight, s.rstd);
    double mean_g = 0.0;
    double mean_product = 0.0;
    for (std::size_t i = 0; i < n; ++i) {
      const double g = std::fabs(dy[i] * weight[i]) / static_cast<double>(n);
      mean_g += layer ? g : 0.0;
      mean_product += g * std::fabs(x[i] - s.mean) * s.rstd;
    }
    for (std::size_t i = 0; i < n; ++i) {
      const double xhat = std::fabs(x[i] - s.mean) * s.rstd;
      const double scale = s.rstd * (std::fabs(dy[i] * weight[i]) + mean_g + xhat * mean_product);
      verdict.near("dx", r * n + i, b.dx[r * n + i], want.x[i],
                   (lane_sum_error(n) + 12.0 * kHalfUlp) * scale);
      dweight[i] += want.weight[i];
      weight_scale[i] += std::fabs(want.weight[i]);
      if (layer) dbias[i] += want.bias[i];
      bias_scale[i] += std::fabs(dy[i]);
    }
  }
  const double relative = (static_cast<double>(rows) + 4.0) * kHalfUlp;
  for (std::size_t i = 0; i < n; ++i) {
    verdict.near("dweight", i, b.dweight[i], dweight[i],
                 relative * (weight_scale[i] + std::fabs(b.old_dweight[i])));
    verdict.near("dbias", i, b.dbias[i], dbias[i],
                 relative * (bias_scale[i] + std::fabs(b.old_dbias[i])));
  }
}

std::string check_rmsnorm_backward(const TransformerKernels& k) {
  for (const auto& [rows, n] : kRowShapes) {
    for (const Input& input : kInputs) {
      Verdict verdict("rmsnorm_backward of " + shape_text({rows, n}));
      Backward b(rows, n, input, false);
      k.rmsnorm_backward(rows, n, b.dy.data(), b.x.data(), b.weight.data(), b.rstd.data(),
                         b.dx.data(), b.dweight.data());
      compare_backward(b, rows, n, false, verdict);
      if (!verdict.first().empty()) return verdict.first();
    }
  }
  return "";
}

std::string check_layernorm_forward(const TransformerKernels& k) {
  for (const auto& [rows, n] : kRowShapes) {
    for (const auto& [deviation, centre] : kInputs) {
      Verdict verdict("layernorm_forward of " + shape_text({rows, n}));
      const Floats x = random_floats(rows * n, 8, deviation, centre);
      const Floats weight = random_floats(n, 9, 0.3, 1.0);
      const Floats bias = random_floats(n, 10);
      Floats y(rows * n, NAN);
      Floats mean(rows, NAN);
      Floats rstd(rows, NAN);
      k.layernorm_forward(rows, n, kEps, x.data(), weight.data(), bias.data(), y.data(),
                          mean.data(), rstd.data());
      for (std::size_t r = 0; r < rows; ++r) {
        const Row values = row_of(x, r, n);
        const auto want = reference::layer_statistics(values, kEps);
        double magnitude = 0.0;
        for (const double each : values) magnitude += std::fabs(each) / static_cast<double>(n);
        const double mean_error = (lane_sum_error(n) + kHalfUlp) * magnitude;
        verdict.near("mean", r, mean[r], want.mean, mean_error);
        // The variance also sees the square of the error of the mean.
        const double shift = mean_error * want.rstd;
        const double relative =
            0.5 * (lane_sum_error(n) + shift * shift + 2.0 * shift * kHalfUlp) + 7.0 * kHalfUlp;
        verdict.near("rstd", r, rstd[r], want.rstd, relative * want.rstd);
        const Row out =
            reference::normalise(values, want, row_of(weight, 0, n), row_of(bias, 0, n));
        for (std::size_t i = 0; i < n; ++i) {
          const double xhat = std::fabs(values[i] - want.mean) * want.rstd;
          const double tolerance = std::fabs(weight[i]) * (shift + relative * (xhat + shift)) +
                                   2.0 * kHalfUlp * (std::fabs(bias[i]) + std::fabs(out[i]));
          verdict.near("y", r * n + i, y[r * n + i], out[i], tolerance);
        }
      }
      if (!verdict.first().empty()) return verdict.first();
    }
  }
  return "";
}

std::string check_layernorm_backward(const TransformerKernels& k) {
  for (const auto& [rows, n] : kRowShapes) {
    for (const Input& input : kInputs) {
      Verdict verdict("layernorm_backward of " + shape_text({rows, n}));
      Backward b(rows, n, input, true);
      k.layernorm_backward(rows, n, b.dy.data(), b.x.data(), b.weight.data(), b.mean.data(),
                           b.rstd.data(), b.dx.data(), b.dweight.data(), b.dbias.data());
      compare_backward(b, rows, n, true, verdict);
      if (!verdict.first().empty()) return verdict.first();
    }
  }
  return "";
}

constexpr TransformerCheck kNormChecks[] = {
    {"RmsnormForward", check_rmsnorm_forward},
    {"RmsnormBackward", check_rmsnorm_backward},
    {"LayernormForward", check_layernorm_forward},
    {"LayernormBackward", check_layernorm_backward},
};

}  // namespace

std::span<const TransformerCheck> norm_checks() {
  return kNormChecks;
}

}  // namespace penstock::test
