#pragma once

/// The loops of update.hpp on a vector kit V: rule x gradient type x form of the master. Each
/// update_<isa>.cpp builds one table of them.
///
/// As in optimizer_impl.hpp, a kernel is a guard around a body that is not inlined. Where the
/// weights are copied to is a switch inside the loop: it is predicted, and a further template
/// parameter would make four times the code.

#include "kernels/cpu/optimizer.hpp"
#include "kernels/cpu/update_tables.hpp"
#include "kernels/cpu/vector_loop.hpp"
#include "kernels/math/convert.hpp"
#include "kernels/math/update_rules.hpp"

namespace penstock::detail {
namespace {

template <class V>
struct GradientF32 {
  using Element = float;
  static typename V::F32 load(const float* p, auto... lanes) { return V::load(p, lanes...); }
};
template <class V>
struct GradientF16 {
  using Element = std::uint16_t;
  static typename V::F32 load(const std::uint16_t* p, auto... lanes) {
    return V::load_f16(p, lanes...);
  }
};
template <class V>
struct GradientBf16 {
  using Element = std::uint16_t;
  static typename V::F32 load(const std::uint16_t* p, auto... lanes) {
    return math::bf16_to_f32<V>(V::load_u16(p, lanes...));
  }
};

template <class V>
struct PlainMaster {
  static typename V::F32 load(const UpdateArrays& a, std::size_t i, auto... lanes) {
    return V::load(a.p + i, lanes...);
  }
  static void store(const UpdateArrays& a, std::size_t i, typename V::F32 p, auto... lanes) {
    V::store(a.p + i, p, lanes...);
  }
};
template <class V>
struct SplitMaster {
  static typename V::F32 load(const UpdateArrays& a, std::size_t i, auto... lanes) {
    return math::join_master<V>(V::load_u16(a.hi + i, lanes...), V::load_u16(a.lo + i, lanes...));
  }
  static void store(const UpdateArrays& a, std::size_t i, typename V::F32 p, auto... lanes) {
    V::store_u16(a.hi + i, math::split_hi_word<V>(p), lanes...);
    V::store_u16(a.lo + i, bits(p), lanes...);
  }
};

/// Whole vectors of the copy-out are streamed and must then be aligned; `p` is canonical. Inlined:
/// a call would spill every factor around it, for kernels without a copy, too.
template <class V>
[[gnu::always_inline]] inline void copy_out(const UpdateArrays& a, std::size_t i, typename V::F32 p,
                                            auto... lanes) {
  constexpr bool kWhole = sizeof...(lanes) == 0;
  if (a.out == nullptr) return;
  auto* half = static_cast<std::uint16_t*>(a.out) + i;
  if (a.out_type == DType::kBf16) {
    const typename V::U32 word = math::f32_to_bf16<V>(p);
    if constexpr (kWhole)
      V::stream_u16(half, word);
    else
      V::store_u16(half, word, lanes...);
  } else if (a.out_type == DType::kF16) {
    if constexpr (kWhole)
      V::stream_f16(half, p);
    else
      V::store_f16(half, p, lanes...);
  } else {
    float* whole = static_cast<float*>(a.out) + i;
    if constexpr (kWhole)
      V::stream(whole, p);
    else
      V::store(whole, p, lanes...);
  }
}

/// Elements before `out` is aligned to a cache line; all if that is beyond the end.
inline std::size_t elements_to_line(const UpdateArrays& a) {
  constexpr std::size_t kLine = 64;
  if (a.out == nullptr) return 0;
  const std::size_t past = reinterpret_cast<std::uintptr_t>(a.out) % kLine;
  const std::size_t size = a.out_type == DType::kF32 ? sizeof(float) : sizeof(std::uint16_t);
  const std::size_t head = (kLine - past) % kLine / size;
  return head < a.n ? head : a.n;
}

template <class V, class Rule, class Gradient, class Master>
struct Update {
  using F32 = typename V::F32;
  using Factors = math::UpdateFactors<F32>;

  [[gnu::noinline]] static void body(const UpdateScalars& s, const UpdateArrays& arrays) {
    const Factors f = {V::set(s.gs), V::set(s.l2),   V::set(s.nd),    V::set(s.w1),
                       V::set(s.w2), V::set(s.ns),   V::set(s.is),    V::set(s.eps),
                       V::set(s.mu), V::set(s.keep), V::set(s.first), V::set(s.nesterov)};
    // A copy: no store into the arrays can change it, and the compiler sees it.
    const UpdateArrays a = arrays;
    const auto* gradient = static_cast<const typename Gradient::Element*>(a.gradient);
    const auto update = [f, a, gradient](std::size_t i, auto... lanes) {
      math::UpdateState<F32> x = {};
      x.p = Master::load(a, i, lanes...);
      if constexpr (Rule::kM) x.m = V::load(a.m + i, lanes...);
      if constexpr (Rule::kV) x.v = V::load(a.v + i, lanes...);
      if constexpr (Rule::kVMax) x.v_max = V::load(a.v_max + i, lanes...);
      Rule::template step<V>(f, Gradient::load(gradient + i, lanes...), x);
      const F32 p = math::canonical<V>(x.p);
      Master::store(a, i, p, lanes...);
      if constexpr (Rule::kM) V::store(a.m + i, math::canonical<V>(x.m), lanes...);
      if constexpr (Rule::kV) V::store(a.v + i, math::canonical<V>(x.v), lanes...);
      if constexpr (Rule::kVMax) V::store(a.v_max + i, math::canonical<V>(x.v_max), lanes...);
      copy_out<V>(a, i, p, lanes...);
    };
    for_each_vector(a.n, update, elements_to_line(a));
    if (a.out != nullptr) V::stream_fence();
  }

  static void run(const UpdateScalars& s, const UpdateArrays& arrays) {
    const FloatModeGuard guard;
    body(s, arrays);
  }
};

template <class V>
struct Updates {
  template <class Rule>
  static constexpr void fill(UpdateTable& table, UpdateLoop loop) {
    auto& row = table.kernels[static_cast<int>(loop)];
    fill_gradient<Rule, GradientF32<V>>(row[static_cast<int>(DType::kF32)]);
    fill_gradient<Rule, GradientF16<V>>(row[static_cast<int>(DType::kF16)]);
    fill_gradient<Rule, GradientBf16<V>>(row[static_cast<int>(DType::kBf16)]);
  }
  template <class Rule, class Gradient>
  static constexpr void fill_gradient(UpdateKernel (&pair)[2]) {
    pair[0] = Update<V, Rule, Gradient, PlainMaster<V>>::run;
    pair[1] = Update<V, Rule, Gradient, SplitMaster<V>>::run;
  }

  template <class Gradient>
  [[gnu::noinline]] static bool within_body(std::size_t n, const void* gradient, float limit) {
    const auto* p = static_cast<const typename Gradient::Element*>(gradient);
    const auto largest = V::set(limit);
    auto inside = V::first_lanes(16);
    for_each_vector(n, [&](std::size_t i, auto... lanes) {
      inside = inside & less_equal(abs(Gradient::load(p + i, lanes...)), largest);
    });
    return !any(equal(select(inside, V::set_u32(1), V::set_u32(0)), V::set_u32(0)));
  }
  template <class Gradient>
  static bool within(std::size_t n, const void* gradient, float limit) {
    const FloatModeGuard guard;
    return within_body<Gradient>(n, gradient, limit);
  }

  static constexpr UpdateTable table() {
    UpdateTable out{};
    fill<math::Adam<false, false>>(out, UpdateLoop::kAdam);
    fill<math::Adam<false, true>>(out, UpdateLoop::kAdamDecay);
    fill<math::Adam<true, false>>(out, UpdateLoop::kAdamMax);
    fill<math::Adam<true, true>>(out, UpdateLoop::kAdamMaxDecay);
    fill<math::Sgd<false>>(out, UpdateLoop::kSgd);
    fill<math::Sgd<true>>(out, UpdateLoop::kSgdMomentum);
    fill<math::Adagrad>(out, UpdateLoop::kAdagrad);
    fill<math::Lion>(out, UpdateLoop::kLion);
    out.within[static_cast<int>(DType::kF32)] = within<GradientF32<V>>;
    out.within[static_cast<int>(DType::kF16)] = within<GradientF16<V>>;
    out.within[static_cast<int>(DType::kBf16)] = within<GradientBf16<V>>;
    return out;
  }
};

}  // namespace
}  // namespace penstock::detail
