#pragma once

/// The loops of optimizer.hpp on a vector kit V; each optimizer_<isa>.cpp builds one table of them.
///
/// Every kernel is a guard around a body that is not inlined: computation must not drift across the
/// change of MXCSR, which compilers do not treat as an input of arithmetic.

#include "kernels/cpu/optimizer_tables.hpp"
#include "kernels/cpu/vector_loop.hpp"
#include "kernels/math/adamw.hpp"
#include "kernels/math/convert.hpp"

namespace penstock::detail {
namespace {

template <class V>
struct Optimizer {
  using F32 = typename V::F32;
  using U32 = typename V::U32;
  using Factors = math::AdamWFactors<F32>;
  using State = math::AdamWState<F32>;

  static Factors factors(const AdamWScalars& s) {
    return {V::set(s.w1),  V::set(s.w2), V::set(s.ns), V::set(s.is),
            V::set(s.eps), V::set(s.nd), V::set(s.gs)};
  }

  template <bool kDecay>
  [[gnu::noinline]] static void adamw_split_body(const Factors& f, std::size_t n, std::uint16_t* hi,
                                                 std::uint16_t* lo, float* m, float* v,
                                                 const std::uint16_t* gradient) {
    for_each_vector(n, [=](std::size_t i, auto... lanes) {
      const U32 hi_word = V::load_u16(hi + i, lanes...);
      const U32 lo_word = V::load_u16(lo + i, lanes...);
      const State old = {math::join_master<V>(hi_word, lo_word), V::load(m + i, lanes...),
                         V::load(v + i, lanes...)};
      const F32 g = math::bf16_to_f32<V>(V::load_u16(gradient + i, lanes...));
      const State next = math::adamw_step<kDecay>(f, old, g);
      const F32 p = math::canonical<V>(next.p);
      V::store_u16(hi + i, math::split_hi_word<V>(p), lanes...);
      V::store_u16(lo + i, bits(p), lanes...);
      V::store(m + i, math::canonical<V>(next.m), lanes...);
      V::store(v + i, math::canonical<V>(next.v), lanes...);
    });
  }
  static void adamw_split(const AdamWScalars& scalars, std::size_t n, std::uint16_t* hi,
                          std::uint16_t* lo, float* m, float* v, const std::uint16_t* gradient) {
    const FloatModeGuard guard;
    const Factors f = factors(scalars);
    const auto body = scalars.nd != 0.0F ? adamw_split_body<true> : adamw_split_body<false>;
    body(f, n, hi, lo, m, v, gradient);
  }

  template <bool kDecay>
  [[gnu::noinline]] static void adamw_f32_body(const Factors& f, std::size_t n, float* p, float* m,
                                               float* v, const float* gradient) {
    for_each_vector(n, [=](std::size_t i, auto... lanes) {
      const State old = {V::load(p + i, lanes...), V::load(m + i, lanes...),
                         V::load(v + i, lanes...)};
      const State next = math::adamw_step<kDecay>(f, old, V::load(gradient + i, lanes...));
      V::store(p + i, math::canonical<V>(next.p), lanes...);
      V::store(m + i, math::canonical<V>(next.m), lanes...);
      V::store(v + i, math::canonical<V>(next.v), lanes...);
    });
  }
  static void adamw_f32(const AdamWScalars& scalars, std::size_t n, float* p, float* m, float* v,
                        const float* gradient) {
    const FloatModeGuard guard;
    const Factors f = factors(scalars);
    const auto body = scalars.nd != 0.0F ? adamw_f32_body<true> : adamw_f32_body<false>;
    body(f, n, p, m, v, gradient);
  }

  // From here to f16_to_f32 there is no arithmetic that MXCSR could change; the guard masks the
  // exceptions a caller may have unmasked.

  static void split(std::size_t n, const float* master, std::uint16_t* hi, std::uint16_t* lo) {
    const FloatModeGuard guard;
    for_each_vector(n, [=](std::size_t i, auto... lanes) {
      const F32 p = math::canonical<V>(V::load(master + i, lanes...));
      V::store_u16(hi + i, math::split_hi_word<V>(p), lanes...);
      V::store_u16(lo + i, bits(p), lanes...);
    });
  }
  static void join(std::size_t n, const std::uint16_t* hi, const std::uint16_t* lo, float* master) {
    const FloatModeGuard guard;
    for_each_vector(n, [=](std::size_t i, auto... lanes) {
      const F32 p =
          math::join_master<V>(V::load_u16(hi + i, lanes...), V::load_u16(lo + i, lanes...));
      V::store(master + i, math::canonical<V>(p), lanes...);
    });
  }

  static void f32_to_bf16(std::size_t n, const float* in, std::uint16_t* out) {
    const FloatModeGuard guard;
    for_each_vector(n, [=](std::size_t i, auto... lanes) {
      const F32 x = math::canonical<V>(V::load(in + i, lanes...));
      V::store_u16(out + i, math::f32_to_bf16<V>(x), lanes...);
    });
  }
  static void bf16_to_f32(std::size_t n, const std::uint16_t* in, float* out) {
    const FloatModeGuard guard;
    for_each_vector(n, [=](std::size_t i, auto... lanes) {
      const F32 x = math::bf16_to_f32<V>(V::load_u16(in + i, lanes...));
      V::store(out + i, math::canonical<V>(x), lanes...);
    });
  }
  static void f32_to_f16(std::size_t n, const float* in, std::uint16_t* out) {
    const FloatModeGuard guard;
    for_each_vector(n, [=](std::size_t i, auto... lanes) {
      V::store_f16(out + i, math::canonical<V>(V::load(in + i, lanes...)), lanes...);
    });
  }
  static void f16_to_f32(std::size_t n, const std::uint16_t* in, float* out) {
    const FloatModeGuard guard;
    for_each_vector(n, [=](std::size_t i, auto... lanes) {
      V::store(out + i, math::canonical<V>(V::load_f16(in + i, lanes...)), lanes...);
    });
  }

  /// `load` has the arguments of V::load.
  template <class In, class Load>
  [[gnu::noinline]] static void add_body(std::size_t n, const In* in, float* accumulator,
                                         Load load) {
    for_each_vector(n, [=](std::size_t i, auto... lanes) {
      const F32 sum = V::load(accumulator + i, lanes...) + load(in + i, lanes...);
      V::store(accumulator + i, math::canonical<V>(sum), lanes...);
    });
  }
  static void add_f32(std::size_t n, const float* in, float* accumulator) {
    const FloatModeGuard guard;
    add_body(n, in, accumulator,
             [](const float* p, auto... lanes) { return V::load(p, lanes...); });
  }
  static void add_bf16(std::size_t n, const std::uint16_t* in, float* accumulator) {
    const FloatModeGuard guard;
    add_body(n, in, accumulator, [](const std::uint16_t* p, auto... lanes) {
      return math::bf16_to_f32<V>(V::load_u16(p, lanes...));
    });
  }
  static void add_f16(std::size_t n, const std::uint16_t* in, float* accumulator) {
    const FloatModeGuard guard;
    add_body(n, in, accumulator,
             [](const std::uint16_t* p, auto... lanes) { return V::load_f16(p, lanes...); });
  }

  [[gnu::noinline]] static void norm_body(std::size_t n, const std::uint16_t* in, NormPart& part) {
    // A lane beyond the end adds +0 * +0: the same as no addition.
    F32 sum = V::set(0.0F);
    typename V::Mask bad = V::first_lanes(0);
    for_each_vector(n, [&](std::size_t i, auto... lanes) {
      const U32 word = V::load_u16(in + i, lanes...);
      bad = bad | equal(word & V::set_u32(0x7f80U), V::set_u32(0x7f80U));
      const F32 x = math::bf16_to_f32<V>(word);
      sum = fma(x, x, sum);
    });
    part.finite = !any(bad);
    part.sum_of_squares = part.finite ? static_cast<double>(sum_lanes(sum)) : __builtin_inf();
  }
  static NormPart norm_bf16(std::size_t n, const std::uint16_t* in) {
    const FloatModeGuard guard;
    NormPart part;
    norm_body(n, in, part);
    return part;
  }

  static constexpr OptimizerKernels table() {
    return {.adamw_split = adamw_split,
            .adamw_f32 = adamw_f32,
            .split = split,
            .join = join,
            .f32_to_bf16 = f32_to_bf16,
            .bf16_to_f32 = bf16_to_f32,
            .f32_to_f16 = f32_to_f16,
            .f16_to_f32 = f16_to_f32,
            .add_f32 = add_f32,
            .add_bf16 = add_bf16,
            .add_f16 = add_f16,
            .norm_bf16 = norm_bf16};
  }
};

}  // namespace
}  // namespace penstock::detail
