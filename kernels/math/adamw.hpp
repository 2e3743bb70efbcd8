#pragma once

/// AdamW (Loshchilov & Hutter 2019, algorithm 2, decoupled decay) for one value or one vector.
///
/// F needs + - * / and, found through its namespace, fma and sqrt, each one IEEE operation.
/// Averages in the form m + w1 (G - m): with b m + (1-b) G, fp32 beta and 1-beta do not add up to
/// one and v drifts by 1e-5. Decay as nd * p added to the update: (1 - lr wd) p would round the
/// decay away with the one it is added to.

namespace penstock::math {

/// AdamWScalars of kernels/cpu/optimizer.hpp, in every lane.
template <class F>
struct AdamWFactors {
  F w1, w2, ns, is, eps, nd, gs;
};

template <class F>
struct AdamWState {
  F p, m, v;
};

/// `gradient` is as it came, unscaled. `kDecay` false skips nd * p, which is zero but not neutral:
/// the fused form rounds once.
template <bool kDecay, class F>
static inline AdamWState<F> adamw_step(const AdamWFactors<F>& f, const AdamWState<F>& old,
                                       F gradient) {
  const F g = f.gs * gradient;
  AdamWState<F> next = old;
  next.m = fma(f.w1, g - old.m, old.m);
  next.v = fma(f.w2, fma(g, g, -old.v), old.v);  // >= 0: the inner value is never below -v
  const F denominator = fma(sqrt(next.v), f.is, f.eps);
  const F update = next.m / denominator;
  if constexpr (kDecay) {
    next.p = old.p + fma(f.ns, update, f.nd * old.p);
  } else {
    next.p = fma(f.ns, update, old.p);
  }
  return next;
}

}  // namespace penstock::math
