// Every kernel of every instruction set against the double reference (tolerances:
// transformer_checker.hpp), and the reference's gradients against its own differences.

#include <gtest/gtest.h>

#include <functional>
#include <tuple>

#include "kernels/transformer_checker.hpp"

namespace penstock::test {
namespace {

using reference::Row;

class TransformerAccuracyTest : public testing::TestWithParam<std::tuple<Isa, TransformerCheck>> {};

TEST_P(TransformerAccuracyTest, StaysWithinTheBoundOfItsOperations) {
  const auto& [isa, check] = GetParam();
  if (!isa_supported(isa)) {
    GTEST_SKIP() << "this machine cannot run " << isa_name(isa)
                 << "; run on a processor that has it";
  }
  EXPECT_EQ(check.run(transformer_kernels(isa)), "");
}

INSTANTIATE_TEST_SUITE_P(Kernels, TransformerAccuracyTest,
                         testing::Combine(all_isas(), testing::ValuesIn(transformer_checks())),
                         [](const auto& info) {
                           return std::string(isa_name(std::get<0>(info.param))) + "_" +
                                  std::get<1>(info.param).name;
                         });

/// d(dot(dy, f(x)))/dx_i by central differences.
Row numerical(const Row& x, const Row& dy, const std::function<Row(const Row&)>& f) {
  constexpr double kStep = 1e-5;
  Row gradient;
  for (std::size_t i = 0; i < x.size(); ++i) {
    Row above = x;
    Row below = x;
    above[i] += kStep;
    below[i] -= kStep;
    gradient.push_back((reference::dot(dy, f(above)) - reference::dot(dy, f(below))) /
                       (2.0 * kStep));
  }
  return gradient;
}

void expect_close(const Row& got, const Row& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-8) << i;
}

Row random_row(std::uint64_t seed) {
  constexpr std::size_t kColumns = 9;
  return row_of(random_floats(kColumns, seed), 0, kColumns);
}

TEST(TransformerReferenceTest, RmsnormGradientIsTheDerivative) {
  const Row x = random_row(1);
  const Row dy = random_row(2);
  const Row weight = random_row(3);
  const Row zero(x.size(), 0.0);
  const auto want =
      reference::rmsnorm_gradient(dy, x, weight, reference::rms_statistics(x, 1e-3).rstd);
  expect_close(numerical(x, dy,
                         [&](const Row& v) {
                           const auto s = reference::rms_statistics(v, 1e-3);
                           return reference::normalise(v, s, weight, zero);
                         }),
               want.x);
  expect_close(numerical(weight, dy,
                         [&](const Row& w) {
                           const auto s = reference::rms_statistics(x, 1e-3);
                           return reference::normalise(x, s, w, zero);
                         }),
               want.weight);
}

TEST(TransformerReferenceTest, LayernormGradientIsTheDerivative) {
  const Row x = random_row(4);
  const Row dy = random_row(5);
  const Row weight = random_row(6);
  const Row bias = random_row(7);
  const auto s = reference::layer_statistics(x, 1e-3);
  const auto want = reference::layernorm_gradient(dy, x, weight, s);
  expect_close(numerical(x, dy,
                         [&](const Row& v) {
                           const auto moved = reference::layer_statistics(v, 1e-3);
                           return reference::normalise(v, moved, weight, bias);
                         }),
               want.x);
  const auto in_weight = [&](const Row& w) { return reference::normalise(x, s, w, bias); };
  const auto in_bias = [&](const Row& b) { return reference::normalise(x, s, weight, b); };
  expect_close(numerical(weight, dy, in_weight), want.weight);
  expect_close(numerical(bias, dy, in_bias), want.bias);
}

TEST(TransformerReferenceTest, SoftmaxGradientIsTheDerivative) {
  const Row x = random_row(8);
  const Row dy = random_row(9);
  const auto softmax = [](const Row& v) { return reference::softmax(v, 0.7); };
  expect_close(numerical(x, dy, softmax), reference::softmax_gradient(softmax(x), dy, 0.7));
}

TEST(TransformerReferenceTest, ActivationGradientsAreTheDerivatives) {
  const Row x = random_row(10);
  const Row up = random_row(11);
  const Row dy = random_row(12);
  Row gelu;
  Row in_gate;
  Row in_up;
  for (std::size_t i = 0; i < x.size(); ++i) {
    gelu.push_back(dy[i] * reference::gelu_derivative(x[i]));
    in_gate.push_back(reference::swiglu_gradient(x[i], up[i], dy[i]).gate);
    in_up.push_back(reference::swiglu_gradient(x[i], up[i], dy[i]).up);
  }
  expect_close(numerical(x, dy,
                         [](const Row& v) {
                           Row y;
                           for (const double each : v) y.push_back(reference::gelu(each));
                           return y;
                         }),
               gelu);
  const auto swiglu = [](const Row& gates, const Row& ups) {
    Row y;
    for (std::size_t i = 0; i < ups.size(); ++i) y.push_back(reference::swiglu(gates[i], ups[i]));
    return y;
  };
  expect_close(numerical(x, dy, [&](const Row& v) { return swiglu(v, up); }), in_gate);
  expect_close(numerical(up, dy, [&](const Row& v) { return swiglu(x, v); }), in_up);
}

TEST(TransformerReferenceTest, CrossEntropyGradientIsTheDerivative) {
  const Row x = random_row(13);
  const auto loss = [](const Row& v) { return Row{reference::cross_entropy(v, 4)}; };
  expect_close(numerical(x, {0.6}, loss), reference::cross_entropy_gradient(x, 4, 0.6));
}

}  // namespace
}  // namespace penstock::test
