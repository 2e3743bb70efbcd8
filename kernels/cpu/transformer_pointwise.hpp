#pragma once

/// Element-wise kernels for a kit V: activations, sums, biases, and the elementary functions.
/// Contracts: transformer.hpp.

#include <cstddef>

#include "kernels/cpu/transformer_lanes.hpp"
#include "kernels/math/activation.hpp"
#include "kernels/math/log.hpp"
#include "kernels/math/tanh.hpp"

namespace penstock {

template <class V>
struct PointwiseKernels {
  static void gelu_forward(std::size_t n, const float* x, float* y) {
    for_row<V>(n, [&](auto span) { span.store(y, math::gelu<V>(span.load(x))); });
  }
  static void gelu_backward(std::size_t n, const float* x, const float* dy, float* dx) {
    for_row<V>(n, [&](auto span) {
      span.store(dx, span.load(dy) * math::gelu_derivative<V>(span.load(x)));
    });
  }
  static void swiglu_forward(std::size_t n, const float* gate, const float* up, float* y) {
    for_row<V>(n,
               [&](auto span) { span.store(y, math::swiglu<V>(span.load(gate), span.load(up))); });
  }
  static void swiglu_backward(std::size_t n, const float* gate, const float* up, const float* dy,
                              float* dgate, float* dup) {
    for_row<V>(n, [&](auto span) {
      const auto gradient = math::swiglu_gradient<V>(span.load(gate), span.load(up), span.load(dy));
      span.store(dgate, gradient.gate);
      span.store(dup, gradient.up);
    });
  }

  static void add_into(std::size_t n, const float* in, float* out) {
    for_row<V>(n, [&](auto span) { span.store(out, span.load(out) + span.load(in)); });
  }
  static void add(std::size_t n, const float* a, const float* b, float* out) {
    for_row<V>(n, [&](auto span) { span.store(out, span.load(a) + span.load(b)); });
  }
  static void scale(std::size_t n, float s, float* x) {
    for_row<V>(n, [&](auto span) { span.store(x, span.load(x) * V::set(s)); });
  }
  static void bias_add(std::size_t rows, std::size_t n, const float* bias, float* y) {
    for (std::size_t r = 0; r < rows; ++r) add_into(n, bias, y + r * n);
  }
  static void bias_backward(std::size_t rows, std::size_t n, const float* dy, float* dbias) {
    for (std::size_t r = 0; r < rows; ++r) add_into(n, dy + r * n, dbias);
  }

  static void exp(std::size_t n, const float* x, float* y) {
    for_row<V>(n, [&](auto span) { span.store(y, math::exponential<V>(span.load(x))); });
  }
  static void tanh(std::size_t n, const float* x, float* y) {
    for_row<V>(n, [&](auto span) { span.store(y, math::hyperbolic_tangent<V>(span.load(x))); });
  }
  static void log(std::size_t n, const float* x, float* y) {
    for_row<V>(n, [&](auto span) { span.store(y, math::logarithm<V>(span.load(x))); });
  }
};

}  // namespace penstock
