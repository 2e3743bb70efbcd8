#pragma once

/// The loops of optimizer.hpp on a vector kit V; each optimizer_<isa>.cpp builds one table of them.
///
/// Every kernel is a guard around a body that is not inlined: computation must not drift across the
/// change of MXCSR, which compilers do not treat as an input of arithmetic.

#include "kernels/cpu/optimizer_tables.hpp"
#include "kernels/cpu/vector_loop.hpp"
#include "kernels/math/convert.hpp"

namespace penstock::detail {
namespace {

template <class V>
struct Optimizer {
  using F32 = typename V::F32;
  using U32 = typename V::U32;

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
    return {.split = split,
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
