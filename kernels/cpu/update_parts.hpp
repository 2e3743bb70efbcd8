#pragma once

/// What the loops of the update kernels share, on a vector kit V: gradients, forms of the master,
/// the copy-out, keys of random rounding.

#include "kernels/cpu/optimizer.hpp"
#include "kernels/cpu/update.hpp"
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
    return from_bits(V::load_u16_high(half, lanes...));
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

/// kRounds: whether round() has to make of a weight what can be stored.
template <class V>
struct PlainMaster {
  static constexpr bool kRounds = false;
  static typename V::F32 load(const UpdateArrays& a, std::size_t i, auto... lanes) {
    return V::load(a.p + i, lanes...);
  }
  static void store(const UpdateArrays& a, std::size_t i, typename V::F32 p, auto... lanes) {
    V::store(a.p + i, p, lanes...);
  }
};
template <class V>
struct SplitMaster {
  static constexpr bool kRounds = false;
  static typename V::F32 load(const UpdateArrays& a, std::size_t i, auto... lanes) {
    return math::join_halves<V>(V::load_u16_high(a.hi + i, lanes...),
                                V::load_i16(a.lo + i, lanes...));
  }
  static void store(const UpdateArrays& a, std::size_t i, typename V::F32 p, auto... lanes) {
    V::store_u16_high(a.hi + i, math::split_hi_high<V>(p), lanes...);
    V::store_u16(a.lo + i, bits(p), lanes...);
  }
};

/// `random` has 16 bits a lane.
template <class V>
struct Split8Master {
  static constexpr bool kRounds = true;
  static typename V::F32 load(const UpdateArrays& a, std::size_t i, auto... lanes) {
    return math::join_halves<V>(V::load_u16_high(a.hi + i, lanes...),
                                shift_left<8>(V::load_i8(a.lo8 + i, lanes...)));
  }
  static typename V::F32 round(typename V::F32 p, typename V::U32 random) {
    return math::stochastic_cut<V, 8>(p, shift_right<8>(random));
  }
  static void store(const UpdateArrays& a, std::size_t i, typename V::F32 p, auto... lanes) {
    V::store_u16_high(a.hi + i, math::split_hi_high<V>(p), lanes...);
    V::store_i8(a.lo8 + i, math::split_lo8_word<V>(p), lanes...);
  }
};
template <class V>
struct Bf16Master {
  static constexpr bool kRounds = true;
  static typename V::F32 load(const UpdateArrays& a, std::size_t i, auto... lanes) {
    return from_bits(V::load_u16_high(a.hi + i, lanes...));
  }
  static typename V::F32 round(typename V::F32 p, typename V::U32 random) {
    return math::stochastic_cut<V, 16>(p, random);
  }
  static void store(const UpdateArrays& a, std::size_t i, typename V::F32 p, auto... lanes) {
    V::store_u16_high(a.hi + i, bits(p), lanes...);
  }
};

template <class V>
struct AnyMaster {
  static constexpr bool kRounds = false;
  static typename V::F32 load(const UpdateArrays& a, std::size_t i, auto... lanes) {
    return a.p != nullptr ? PlainMaster<V>::load(a, i, lanes...)
                          : SplitMaster<V>::load(a, i, lanes...);
  }
  static void store(const UpdateArrays& a, std::size_t i, typename V::F32 p, auto... lanes) {
    if (a.p != nullptr) return PlainMaster<V>::store(a, i, p, lanes...);
    SplitMaster<V>::store(a, i, p, lanes...);
  }
};

/// What random rounding needs in every lane.
template <class V>
struct RandomKeys {
  using U32 = typename V::U32;
  U32 key0, key1, first_element;

  RandomKeys(const UpdateScalars& s, const UpdateArrays& a)
      : key0(V::set_u32(static_cast<std::uint32_t>(s.key))),
        key1(V::set_u32(static_cast<std::uint32_t>(s.key >> 32))),
        first_element(V::set_u32(static_cast<std::uint32_t>(a.first_element)) + V::lane_index()) {}

  [[nodiscard]] U32 elements(std::size_t i) const {
    return first_element + V::set_u32(static_cast<std::uint32_t>(i));
  }
  /// 16 bits for the states of each element from i on.
  [[nodiscard]] U32 of_states(std::size_t i) const {
    return math::random_halves<V>(elements(i), key0, key1);
  }
  /// 16 bits for each weight, by a key of their own: else it would be rounded as its v is.
  [[nodiscard]] U32 of_weights(std::size_t i) const {
    const U32 other_key1 = key1 ^ V::set_u32(0x9e3779b9U);
    return shift_right<16>(math::random_words<V>(elements(i), key0, other_key1));
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

template <class V>
[[gnu::always_inline]] inline math::UpdateFactors<typename V::F32> factors(const UpdateScalars& s) {
  return {V::set(s.gs), V::set(s.l2),   V::set(s.nd),    V::set(s.w1),
          V::set(s.w2), V::set(s.ns),   V::set(s.is),    V::set(s.eps),
          V::set(s.mu), V::set(s.keep), V::set(s.first), V::set(s.nesterov)};
}

/// body(scalars, part) for parts whose elements have the same upper 32 bits of their index: the
/// hash takes the lower 32, the others change the key.
template <class Body>
inline void for_each_key(const UpdateScalars& s, const UpdateArrays& arrays, Body body) {
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

}  // namespace
}  // namespace penstock::detail
