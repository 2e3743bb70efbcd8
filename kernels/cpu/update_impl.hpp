#pragma once

/// The loops of update.hpp on a vector kit V: rule x gradient type x form of the master x type of
/// the states. Each update_<isa>.cpp builds one table of them.
///
/// As in optimizer_impl.hpp, a kernel is a guard around a body that is not inlined. Where the
/// weights are copied to is a switch inside the loop: it is predicted, and a further template
/// parameter would make four times the code.

#include <type_traits>

#include "kernels/cpu/update_parts.hpp"
#include "kernels/cpu/update_tables.hpp"
#include "kernels/cpu/vector_loop.hpp"
#include "kernels/math/update_rules.hpp"

namespace penstock::detail {
namespace {

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
  static void store_random(const UpdateArrays& a, typename V::U32 /*random*/, void* to,
                           std::size_t i, F32 x, auto... lanes) {
    store(a, to, i, x, lanes...);
  }
};
template <class V>
struct StateBf16 {
  static constexpr bool kRandom = true;
  using F32 = typename V::F32;
  static F32 load(const UpdateArrays& /*a*/, const void* from, std::size_t i, auto... lanes) {
    return from_bits(V::load_u16_high(static_cast<const std::uint16_t*>(from) + i, lanes...));
  }
  static void store(const UpdateArrays& /*a*/, void* to, std::size_t i, F32 x, auto... lanes) {
    // What a rule computed is no denormal.
    V::store_u16_high(static_cast<std::uint16_t*>(to) + i, math::normal_to_bf16_high<V>(x),
                      lanes...);
  }
  static void store_random(const UpdateArrays& /*a*/, typename V::U32 random, void* to,
                           std::size_t i, F32 x, auto... lanes) {
    V::store_u16_high(static_cast<std::uint16_t*>(to) + i, math::stochastic_bits<V, 16>(x, random),
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
  static void store_random(const UpdateArrays& a, typename V::U32 random, void* to, std::size_t i,
                           F32 x, auto... lanes) {
    if (a.state_type == DType::kF32) return StateF32<V>::store(a, to, i, x, lanes...);
    StateBf16<V>::store_random(a, random, to, i, x, lanes...);
  }
};

template <class V, class Rule, class Gradient, class Master, class State>
struct Update {
  using F32 = typename V::F32;
  using Factors = math::UpdateFactors<F32>;

  [[gnu::noinline]] static void body(const UpdateScalars& s, const UpdateArrays& arrays) {
    const Factors f = factors<V>(s);
    // A copy: no store into the arrays can change it, and the compiler sees it.
    const UpdateArrays a = arrays;
    const RandomKeys<V> keys(s, a);
    const auto update = [=](std::size_t i, typename V::U32 random, auto... lanes) {
      math::UpdateState<F32> x = {};
      x.p = Master::load(a, i, lanes...);
      if constexpr (Rule::kM) x.m = State::load(a, a.m, i, lanes...);
      if constexpr (Rule::kV) x.v = State::load(a, a.v, i, lanes...);
      if constexpr (Rule::kVMax) x.v_max = State::load(a, a.v_max, i, lanes...);
      Rule::template step<V>(f, Gradient::load(a, i, lanes...), x);
      F32 p = math::canonical<V>(x.p);
      if constexpr (Master::kRounds) p = Master::round(p, keys.of_weights(i));
      Master::store(a, i, p, lanes...);
      if constexpr (Rule::kM) State::store(a, a.m, i, math::canonical<V>(x.m), lanes...);
      if constexpr (Rule::kV) {
        State::store_random(a, random, a.v, i, math::canonical<V>(x.v), lanes...);
      }
      if constexpr (Rule::kVMax) State::store(a, a.v_max, i, math::canonical<V>(x.v_max), lanes...);
      copy_out<V>(a, i, p, lanes...);
    };
    if constexpr (State::kRandom && Rule::kV) {
      for_each_pair(a, keys, update);
    } else {
      for_each_vector(
          a.n, [&](std::size_t i, auto... lanes) { update(i, V::set_u32(0), lanes...); },
          elements_to_line(a));
    }
    if (a.out != nullptr) V::stream_fence();
  }

  /// update(i, random, lanes...) for all vectors: by twos, which share a word of random bits, from
  /// an element on that is a multiple of 32; before and after, and throughout where what is copied
  /// out is not aligned there, by vectors that count as partial.
  template <class Body>
  [[gnu::always_inline]] static void for_each_pair(const UpdateArrays& a, const RandomKeys<V>& keys,
                                                   const Body& update) {
    constexpr std::size_t kLanes = 16, kPair = 32;
    const std::size_t to_pair = (kPair - a.first_element % kPair) % kPair;
    const std::size_t head = to_pair < a.n ? to_pair : a.n;
    const bool aligned =
        a.out == nullptr || (elements_to_line(a) - head) % kPair == 0 || head == a.n;
    std::size_t i = 0;
    const auto one_by_one = [&](std::size_t end) {
      while (i < end) {
        const std::size_t lanes = end - i < kLanes ? end - i : kLanes;
        update(i, keys.of_states(i), lanes);
        i += lanes;
      }
    };
    const std::size_t pairs_end = aligned ? a.n - (a.n - head) % kPair : head;
    for (int part = 0; part < 2; ++part) {  // one copy of the code for the head and the tail
      one_by_one(part == 0 ? head : a.n);
      if (part != 0) break;
      auto index = math::pair_index<V>(keys.elements(i));
      for (; i < pairs_end; i += kPair, index = index + V::set_u32(kLanes)) {
        const auto random = math::random_pair<V>(index, keys.key0, keys.key1);
        update(i, random.first);
        update(i + kLanes, random.second);
      }
    }
  }

  static void run(const UpdateScalars& s, const UpdateArrays& arrays) {
    const FloatModeGuard guard;
    if constexpr (!State::kRandom && !Master::kRounds) return body(s, arrays);
    for_each_key(s, arrays, body);
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

  /// bf16 weights.
  template <class Rule, class Gradient>
  static constexpr void fill_bf16(UpdateKernel (&pair)[2]) {
    if constexpr (kTypesAtRunTime) {
      pair[0] = pair[1] = Update<V, Rule, GradientAny<V>, Bf16Master<V>, AnyState<V>>::run;
    } else {
      pair[0] = Update<V, Rule, Gradient, Bf16Master<V>, StateF32<V>>::run;
      pair[1] = Update<V, Rule, Gradient, Bf16Master<V>, StateBf16<V>>::run;
    }
  }
  template <class Rule>
  static constexpr void fill_bf16_gradients(UpdateKernel (&rows)[kGradientTypeCount][2]) {
    fill_bf16<Rule, GradientF32<V>>(rows[static_cast<int>(DType::kF32)]);
    fill_bf16<Rule, GradientF16<V>>(rows[static_cast<int>(DType::kF16)]);
    fill_bf16<Rule, GradientBf16<V>>(rows[static_cast<int>(DType::kBf16)]);
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
    fill_bf16_gradients<math::Adam<false, false>>(out.bf16_weights[0]);
    fill_bf16_gradients<math::Adam<false, true>>(out.bf16_weights[1]);
    out.within[static_cast<int>(DType::kF32)] = within<GradientF32<V>>;
    out.within[static_cast<int>(DType::kF16)] = within<GradientF16<V>>;
    out.within[static_cast<int>(DType::kBf16)] = within<GradientBf16<V>>;
    return out;
  }
};

}  // namespace
}  // namespace penstock::detail
