#pragma once

/// The loops of update.hpp on a vector kit V: rule x gradient type x form of the master x type of
/// the states. Each update_<isa>.cpp builds one table of them.
///
/// As in optimizer_impl.hpp, a kernel is a guard around a body that is not inlined. Where the
/// weights are copied to is a switch inside the loop: it is predicted, and a further template
/// parameter would make four times the code.

#include <type_traits>

#include "kernels/cpu/optimizer.hpp"
#include "kernels/cpu/update_tables.hpp"
#include "kernels/cpu/vector_loop.hpp"
#include "kernels/math/convert.hpp"
#include "kernels/math/rounding.hpp"
#include "kernels/math/update_rules.hpp"

namespace penstock::detail {
namespace {

template <class V>
struct GradientF32 {
  static typename V::F32 load(const UpdateArrays& a, std::size_t i, auto... lanes) {
    return V::load(static_cast<const float*>(a.gradient) + i, lanes...);
  }
};
template <class V>
struct GradientF16 {
  static typename V::F32 load(const UpdateArrays& a, std::size_t i, auto... lanes) {
    return V::load_f16(static_cast<const std::uint16_t*>(a.gradient) + i, lanes...);
  }
};
template <class V>
struct GradientBf16 {
  static typename V::F32 load(const UpdateArrays& a, std::size_t i, auto... lanes) {
    const auto* half = static_cast<const std::uint16_t*>(a.gradient) + i;
    return math::bf16_to_f32<V>(V::load_u16(half, lanes...));
  }
};
/// Looks at the type each time: for the scalar kit, where speed is no matter and code is large.
template <class V>
struct GradientAny {
  static typename V::F32 load(const UpdateArrays& a, std::size_t i, auto... lanes) {
    if (a.gradient_type == DType::kF32) return GradientF32<V>::load(a, i, lanes...);
    if (a.gradient_type == DType::kF16) return GradientF16<V>::load(a, i, lanes...);
    return GradientBf16<V>::load(a, i, lanes...);
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

template <class V>
struct AnyMaster {
  static typename V::F32 load(const UpdateArrays& a, std::size_t i, auto... lanes) {
    return a.p != nullptr ? PlainMaster<V>::load(a, i, lanes...)
                          : SplitMaster<V>::load(a, i, lanes...);
  }
  static void store(const UpdateArrays& a, std::size_t i, typename V::F32 p, auto... lanes) {
    if (a.p != nullptr) return PlainMaster<V>::store(a, i, p, lanes...);
    SplitMaster<V>::store(a, i, p, lanes...);
  }
};

/// What random rounding needs in every lane; StateF32 has no use for it.
template <class V>
struct RandomKeys {
  typename V::U32 key0, key1, first_element;
};

/// States: m and v_max are stored to the nearest, v (`store_random`) at random where it is rounded.
/// kRandom: whether an element's index matters.
template <class V>
struct StateF32 {
  static constexpr bool kRandom = false;
  using F32 = typename V::F32;
  static F32 load(const UpdateArrays& /*a*/, const void* from, std::size_t i, auto... lanes) {
    return V::load(static_cast<const float*>(from) + i, lanes...);
  }
  static void store(const UpdateArrays& /*a*/, void* to, std::size_t i, F32 x, auto... lanes) {
    V::store(static_cast<float*>(to) + i, x, lanes...);
  }
  static void store_random(const UpdateArrays& a, const RandomKeys<V>& /*keys*/, void* to,
                           std::size_t i, F32 x, auto... lanes) {
    store(a, to, i, x, lanes...);
  }
};
template <class V>
struct StateBf16 {
  static constexpr bool kRandom = true;
  using F32 = typename V::F32;
  static F32 load(const UpdateArrays& /*a*/, const void* from, std::size_t i, auto... lanes) {
    return math::bf16_to_f32<V>(V::load_u16(static_cast<const std::uint16_t*>(from) + i, lanes...));
  }
  static void store(const UpdateArrays& /*a*/, void* to, std::size_t i, F32 x, auto... lanes) {
    V::store_u16(static_cast<std::uint16_t*>(to) + i, math::f32_to_bf16<V>(x), lanes...);
  }
  static void store_random(const UpdateArrays& /*a*/, const RandomKeys<V>& keys, void* to,
                           std::size_t i, F32 x, auto... lanes) {
    const auto element =
        keys.first_element + V::set_u32(static_cast<std::uint32_t>(i)) + V::lane_index();
    const auto random = math::random_words<V>(element, keys.key0, keys.key1);
    V::store_u16(static_cast<std::uint16_t*>(to) + i, math::stochastic_bf16<V>(x, random),
                 lanes...);
  }
};
template <class V>
struct AnyState {
  static constexpr bool kRandom = true;
  using F32 = typename V::F32;
  static F32 load(const UpdateArrays& a, const void* from, std::size_t i, auto... lanes) {
    return a.state_type == DType::kF32 ? StateF32<V>::load(a, from, i, lanes...)
                                       : StateBf16<V>::load(a, from, i, lanes...);
  }
  static void store(const UpdateArrays& a, void* to, std::size_t i, F32 x, auto... lanes) {
    if (a.state_type == DType::kF32) return StateF32<V>::store(a, to, i, x, lanes...);
    StateBf16<V>::store(a, to, i, x, lanes...);
  }
  static void store_random(const UpdateArrays& a, const RandomKeys<V>& keys, void* to,
                           std::size_t i, F32 x, auto... lanes) {
    if (a.state_type == DType::kF32) return StateF32<V>::store(a, to, i, x, lanes...);
    StateBf16<V>::store_random(a, keys, to, i, x, lanes...);
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

template <class V, class Rule, class Gradient, class Master, class State>
struct Update {
  using F32 = typename V::F32;
  using Factors = math::UpdateFactors<F32>;

  [[gnu::noinline]] static void body(const UpdateScalars& s, const UpdateArrays& arrays) {
    const Factors f = {V::set(s.gs), V::set(s.l2),   V::set(s.nd),    V::set(s.w1),
                       V::set(s.w2), V::set(s.ns),   V::set(s.is),    V::set(s.eps),
                       V::set(s.mu), V::set(s.keep), V::set(s.first), V::set(s.nesterov)};
    // A copy: no store into the arrays can change it, and the compiler sees it.
    const UpdateArrays a = arrays;
    const RandomKeys<V> keys = {V::set_u32(static_cast<std::uint32_t>(s.key)),
                                V::set_u32(static_cast<std::uint32_t>(s.key >> 32)),
                                V::set_u32(static_cast<std::uint32_t>(a.first_element))};
    const auto update = [=](std::size_t i, auto... lanes) {
      math::UpdateState<F32> x = {};
      x.p = Master::load(a, i, lanes...);
      if constexpr (Rule::kM) x.m = State::load(a, a.m, i, lanes...);
      if constexpr (Rule::kV) x.v = State::load(a, a.v, i, lanes...);
      if constexpr (Rule::kVMax) x.v_max = State::load(a, a.v_max, i, lanes...);
      Rule::template step<V>(f, Gradient::load(a, i, lanes...), x);
      const F32 p = math::canonical<V>(x.p);
      Master::store(a, i, p, lanes...);
      if constexpr (Rule::kM) State::store(a, a.m, i, math::canonical<V>(x.m), lanes...);
      if constexpr (Rule::kV) {
        State::store_random(a, keys, a.v, i, math::canonical<V>(x.v), lanes...);
      }
      if constexpr (Rule::kVMax) State::store(a, a.v_max, i, math::canonical<V>(x.v_max), lanes...);
      copy_out<V>(a, i, p, lanes...);
    };
    for_each_vector(a.n, update, elements_to_line(a));
    if (a.out != nullptr) V::stream_fence();
  }

  static void run(const UpdateScalars& s, const UpdateArrays& arrays) {
    const FloatModeGuard guard;
    if constexpr (!State::kRandom) return body(s, arrays);
    // The hash takes 32 bits of the element's index; the others change the key.
    constexpr std::uint64_t kLow = 0xffffffffU;
    for (std::size_t done = 0; done < arrays.n;) {
      const std::uint64_t first = arrays.first_element + done;
      const std::uint64_t left = kLow - (first & kLow) + 1;
      const std::size_t count = arrays.n - done < left ? arrays.n - done : left;
      UpdateScalars scalars = s;
      scalars.key = s.key + (first >> 32) * 0x9e3779b97f4a7c15U;
      body(scalars, arrays.part(done, count));
      done += count;
    }
  }
};

/// The table of one kit. kTypesAtRunTime: a kernel for each rule, that looks at types itself.
template <class V, bool kTypesAtRunTime>
struct Updates {
  template <class Rule>
  static constexpr void fill(UpdateTable& table, UpdateLoop loop) {
    auto& row = table.kernels[static_cast<int>(loop)];
    fill_gradient<Rule, GradientF32<V>>(row[static_cast<int>(DType::kF32)]);
    fill_gradient<Rule, GradientF16<V>>(row[static_cast<int>(DType::kF16)]);
    fill_gradient<Rule, GradientBf16<V>>(row[static_cast<int>(DType::kBf16)]);
  }
  template <class Rule, class Gradient>
  static constexpr void fill_gradient(UpdateKernel (&forms)[2][2]) {
    fill_state<Rule, Gradient, PlainMaster<V>>(forms[0]);
    fill_state<Rule, Gradient, SplitMaster<V>>(forms[1]);
  }
  template <class Rule, class Gradient, class Master>
  static constexpr void fill_state(UpdateKernel (&pair)[2]) {
    if constexpr (kTypesAtRunTime) {
      pair[0] = pair[1] = Update<V, Rule, GradientAny<V>, AnyMaster<V>, AnyState<V>>::run;
    } else {
      pair[0] = Update<V, Rule, Gradient, Master, StateF32<V>>::run;
      // Without states there is one kernel for both.
      using Bf16 = std::conditional_t<Rule::kM || Rule::kV, StateBf16<V>, StateF32<V>>;
      pair[1] = Update<V, Rule, Gradient, Master, Bf16>::run;
    }
  }

  template <class Gradient>
  [[gnu::noinline]] static bool within_body(std::size_t n, const void* gradient, float limit) {
    UpdateArrays a;
    a.gradient = gradient;
    const auto largest = V::set(limit);
    auto inside = V::first_lanes(16);
    for_each_vector(n, [&](std::size_t i, auto... lanes) {
      inside = inside & less_equal(abs(Gradient::load(a, i, lanes...)), largest);
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
