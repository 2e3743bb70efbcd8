#pragma once

/// CPU kernels of the transformer that are not matrix products: norms, softmax, activations, RoPE,
/// loss. fp32 arithmetic; inputs and outputs fp32 (callers widen bf16 first).
///
/// Numerics as in optimizer.hpp: the same bits on every ISA, so sums over a row use 16 virtual
/// lanes
///   and a fixed lane tree; exp and tanh are our own polynomials (explicit fma, no library calls).
/// Rows are contiguous: row r of an [rows, n] array starts at r * n. No aliasing unless stated.
/// A row's result does not depend on the other rows of a call, so rows may be split over tasks in
///   any way; sums over rows (dweight, dbias, dtable) go in ascending order within a call, so there
///   the split is part of the result. Lengths: any, 0 included. Alignment: none needed.
/// Denormals are flushed (the caller's MXCSR is unchanged afterwards); NaN and inf propagate.
/// Threads: reentrant; no state.

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/isa.hpp"

namespace penstock {

/// A target of loss rows that count for nothing, such as the tokens of a prompt or padding.
inline constexpr std::uint32_t kNoTarget = 0xffffffffU;

struct TransformerKernels {
  /// y = x * rstd * weight, rstd = 1/sqrt(mean(x^2) + eps). x, y: [rows, n]; weight: [n];
  /// rstd_out: [rows], kept for the backward.
  void (*rmsnorm_forward)(std::size_t rows, std::size_t n, float eps, const float* x,
                          const float* weight, float* y, float* rstd_out);
  /// dx: [rows, n], overwritten; dweight: [n], added to, rows in ascending order.
  void (*rmsnorm_backward)(std::size_t rows, std::size_t n, const float* dy, const float* x,
                           const float* weight, const float* rstd, float* dx, float* dweight);

  /// y = (x - mean) * rstd * weight + bias, biased variance.
  void (*layernorm_forward)(std::size_t rows, std::size_t n, float eps, const float* x,
                            const float* weight, const float* bias, float* y, float* mean_out,
                            float* rstd_out);
  void (*layernorm_backward)(std::size_t rows, std::size_t n, const float* dy, const float* x,
                             const float* weight, const float* mean, const float* rstd, float* dx,
                             float* dweight, float* dbias);

  /// In place, per row: scores of a causal attention row set. Row r (0-based) sees the first
  /// `first_visible + r` + 1 of n columns (at most n); the rest become 0. Scores are multiplied by
  /// `scale` first; subtracts the row maximum. x: [rows, n] with row stride n.
  void (*causal_softmax)(std::size_t rows, std::size_t n, std::size_t first_visible, float scale,
                         float* x);
  /// ds = scale * p * (dp - sum(dp * p)), per row, into dp. p, dp: [rows, n]; columns beyond the
  /// causal limit become 0.
  void (*softmax_backward)(std::size_t rows, std::size_t n, std::size_t first_visible, float scale,
                           const float* p, float* dp);

  /// tanh-approximated GELU: y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
  void (*gelu_forward)(std::size_t n, const float* x, float* y);
  void (*gelu_backward)(std::size_t n, const float* x, const float* dy, float* dx);
  /// y = gate * sigmoid(gate) * up.
  void (*swiglu_forward)(std::size_t n, const float* gate, const float* up, float* y);
  void (*swiglu_backward)(std::size_t n, const float* gate, const float* up, const float* dy,
                          float* dgate, float* dup);

  /// Rotates pairs (i, i + half) of each head: x: [rows, heads, 2 * half] in place; cosine, sine:
  /// [rows, half] for the rows' positions. `direction` +1 forward, -1 backward (transpose).
  void (*rope)(std::size_t rows, std::size_t heads, std::size_t half, const float* cosine,
               const float* sine, float direction, float* x);

  /// out += in; out = a + b; x *= s; all [n].
  void (*add_into)(std::size_t n, const float* in, float* out);
  void (*add)(std::size_t n, const float* a, const float* b, float* out);
  void (*scale)(std::size_t n, float s, float* x);
  /// y[r, :] += bias; dbias += sum over rows of dy, in ascending row order. [rows, n]
  void (*bias_add)(std::size_t rows, std::size_t n, const float* bias, float* y);
  void (*bias_backward)(std::size_t rows, std::size_t n, const float* dy, float* dbias);

  /// Online cross entropy over chunks of the vocabulary. For each row, folds `n` logits (columns
  /// first..first+n-1 of the vocabulary) into running maximum and running sum of exponentials
  /// (start: -inf, 0), and stores the target's logit when it lies in the chunk. targets: [rows].
  /// The sum depends, in its last bits, on where chunks end: the chunk is a function of the model
  /// only. Logits of -inf (masked columns) add nothing, also a whole chunk of them.
  void (*loss_fold)(std::size_t rows, std::size_t n, std::size_t first, const float* logits,
                    const std::uint32_t* targets, float* maximum, float* sum, float* target_logit);
  /// loss: [rows] = log(sum) + maximum - target_logit; 0 for kNoTarget.
  void (*loss_value)(std::size_t rows, const std::uint32_t* targets, const float* maximum,
                     const float* sum, const float* target_logit, float* loss);
  /// In place: logits -> gradient: factor * (softmax - onehot), with the final maximum and sum; 0
  /// for kNoTarget.
  void (*loss_backward)(std::size_t rows, std::size_t n, std::size_t first, float factor,
                        const std::uint32_t* targets, const float* maximum, const float* sum,
                        float* logits);

  /// Embedding rows of the tokens in first..first+count-1, the part of the table that `table`
  /// [count, n] bf16 or `dtable` [count, n] f32 holds; rows of other tokens are left alone.
  /// out: [rows, n] = the token's row, widened.
  void (*embedding_gather)(std::size_t rows, std::size_t n, std::size_t first, std::size_t count,
                           const std::uint32_t* tokens, const std::uint16_t* table, float* out);
  /// dtable[token, :] += dy[r, :], in ascending row order. dy: [rows, n]
  void (*embedding_backward)(std::size_t rows, std::size_t n, std::size_t first, std::size_t count,
                             const std::uint32_t* tokens, const float* dy, float* dtable);

  /// Element-wise, for tests and for sampling. Results below 2^-126 are 0, exp above the largest
  /// float is inf. Errors: exp and log <= 1 ulp, tanh <= 2; log(0) = -inf, log(x < 0) = NaN.
  void (*exp)(std::size_t n, const float* x, float* y);
  void (*tanh)(std::size_t n, const float* x, float* y);
  void (*log)(std::size_t n, const float* x, float* y);
};

/// The kernels of one ISA; `isa` must be supported.
[[nodiscard]] const TransformerKernels& transformer_kernels(Isa isa);

}  // namespace penstock
