#pragma once

/// The loop of Adam with states of 8 bits on a vector kit V: gradient type x form of the master.
///
/// A scale is known only when its block is done, so each block is passed twice: the rule, with what
/// is new of m and r = sqrt(v) put aside in the nearest cache, and then the coding. Each
/// update_int8_<isa>.cpp builds one table of the kernels.

#include <type_traits>

#include "kernels/cpu/update_parts.hpp"
#include "kernels/cpu/update_tables.hpp"
#include "kernels/math/codes8.hpp"

namespace penstock::detail {
namespace {

template <class V, class Rule, class Gradient, class Master>
struct UpdateInt8 {
  using F32 = typename V::F32;
  using U32 = typename V::U32;
  static constexpr std::size_t kLanes = 16;

  /// What a block leaves to the second pass.
  struct Block {
    alignas(64) float m[kStateBlock];
    alignas(64) float r[kStateBlock];
  };

  /// The bits of the largest magnitudes of a block, in each lane.
  struct Largest {
    U32 m, r;
  };

  /// A scale from the largest magnitude's bits, and what to multiply with to be at most 1.
  struct Scale {
    float scale, inverse;
    bool finite;
  };
  static Scale scale_of(const math::CodeForm& form, std::uint32_t largest) {
    if (largest >= 0x7f800000U) return {__builtin_nanf(""), 0.0F, false};
    const float scale = __builtin_bit_cast(float, largest) * (1.0F / form.largest_value);
    return {scale, scale > 0.0F ? 1.0F / scale : 0.0F, true};
  }

  [[gnu::noinline]] static void body(const UpdateScalars& s, const UpdateArrays& arrays) {
    const auto f = factors<V>(s);
    const UpdateArrays a = arrays;  // a copy: no store into the arrays can change it
    const RandomKeys<V> keys(s, a);
    const bool streams = a.out != nullptr && elements_to_line(a) == 0;
    Block block;
    for (std::size_t first = 0; first < a.n; first += kStateBlock) {
      const std::size_t end = a.n - first < kStateBlock ? a.n : first + kStateBlock;
      const F32 m_scale = V::set(a.m_scale[first / kStateBlock]);
      const F32 r_scale = V::set(a.v_scale[first / kStateBlock]);
      Largest largest = {V::set_u32(0), V::set_u32(0)};
      std::size_t i = first;
      for (; end - i >= kLanes; i += kLanes) {
        const F32 p = step(f, a, keys, m_scale, r_scale, largest, block, first, i);
        if (streams) {
          copy_out<V>(a, i, p);
        } else {
          copy_out<V>(a, i, p, kLanes);
        }
      }
      if (i < end) {
        const F32 p = step(f, a, keys, m_scale, r_scale, largest, block, first, i, end - i);
        copy_out<V>(a, i, p, end - i);
      }
      encode(a, keys, largest, block, first, end);
    }
    if (a.out != nullptr) V::stream_fence();
  }

  /// The rule on one vector, at element i of the block from `first`.
  [[gnu::always_inline]] static F32 step(const math::UpdateFactors<F32>& f, const UpdateArrays& a,
                                         const RandomKeys<V>& keys, F32 m_scale, F32 r_scale,
                                         Largest& largest, Block& block, std::size_t first,
                                         std::size_t i, auto... lanes) {
    const auto* m = static_cast<const std::int8_t*>(a.m) + i;
    const auto* v = static_cast<const std::uint8_t*>(a.v) + i;
    math::UpdateState<F32> x = {};
    x.p = Master::load(a, i, lanes...);
    x.m = math::decode_m<V>(V::load_i8(m, lanes...), m_scale);
    const F32 r_old = math::decode_r<V>(V::load_u8(v, lanes...), r_scale);
    x.v = r_old * r_old;
    Rule::template step<V>(f, Gradient::load(a, i, lanes...), x);
    F32 p = math::canonical<V>(x.p);
    if constexpr (Master::kRounds) p = Master::round(p, keys.of_weights(i));
    Master::store(a, i, p, lanes...);
    const F32 r = sqrt(x.v);
    largest.m = max(largest.m, bits(abs(x.m)));
    largest.r = max(largest.r, bits(r));
    V::store(block.m + (i - first), x.m);
    V::store(block.r + (i - first), r);
    return p;
  }

  /// Codes and scales of the block [first, end).
  [[gnu::always_inline]] static void encode(const UpdateArrays& a, const RandomKeys<V>& keys,
                                            const Largest& largest, const Block& block,
                                            std::size_t first, std::size_t end) {
    const Scale m = scale_of(math::kCodeM, max_lanes(largest.m));
    const Scale r = scale_of(math::kCodeR, max_lanes(largest.r));
    a.m_scale[first / kStateBlock] = m.scale;
    a.v_scale[first / kStateBlock] = r.scale;
    const F32 m_inverse = V::set(m.inverse), r_inverse = V::set(r.inverse);
    const F32 least = V::set(r.inverse > 0.0F ? math::kLeastPosition : 0.0F);
    auto* m_codes = static_cast<std::int8_t*>(a.m);
    auto* r_codes = static_cast<std::uint8_t*>(a.v);
    const auto code = [&](std::size_t i, U32 random, auto... lanes) {
      const F32 x = V::load(block.m + (i - first)), y = V::load(block.r + (i - first));
      V::store_i8(m_codes + i, math::encode_m<V>(x, m_inverse, random), lanes...);
      V::store_u8(r_codes + i, math::encode_r<V>(y, r_inverse, least, random), lanes...);
    };
    U32 pair = math::pair_index<V>(keys.elements(first));
    for (std::size_t i = first; i < end; i += 2 * kLanes, pair = pair + V::set_u32(kLanes)) {
      const auto random = math::random_pair<V>(pair, keys.key0, keys.key1);
      if (end - i >= 2 * kLanes) {
        code(i, random.first);
        code(i + kLanes, random.second);
        continue;
      }
      const std::size_t left = end - i;
      code(i, random.first, left < kLanes ? left : kLanes);
      if (left > kLanes) code(i + kLanes, random.second, left - kLanes);
    }
    // What is not finite would leave codes that hang on the sign of a NaN.
    if (!m.finite) __builtin_memset(m_codes + first, 0, end - first);
    if (!r.finite) __builtin_memset(r_codes + first, 0, end - first);
  }

  static void run(const UpdateScalars& s, const UpdateArrays& arrays) {
    const FloatModeGuard guard;
    for_each_key(s, arrays, body);
  }
};

/// The table of one kit. kTypesAtRunTime: as in update_impl.hpp, here for gradients.
template <class V, bool kTypesAtRunTime>
struct UpdatesInt8 {
  template <class Rule, class Gradient>
  static constexpr void fill(UpdateKernel (&row)[kMasterCount]) {
    using G = std::conditional_t<kTypesAtRunTime, GradientAny<V>, Gradient>;
    row[static_cast<int>(Master::kF32)] = UpdateInt8<V, Rule, G, PlainMaster<V>>::run;
    row[static_cast<int>(Master::kSplit)] = UpdateInt8<V, Rule, G, SplitMaster<V>>::run;
    row[static_cast<int>(Master::kSplit8)] = UpdateInt8<V, Rule, G, Split8Master<V>>::run;
    row[static_cast<int>(Master::kBf16)] = UpdateInt8<V, Rule, G, Bf16Master<V>>::run;
  }
  template <class Rule>
  static constexpr void fill_gradients(UpdateKernel (&rows)[kGradientTypeCount][kMasterCount]) {
    fill<Rule, GradientF32<V>>(rows[static_cast<int>(DType::kF32)]);
    fill<Rule, GradientF16<V>>(rows[static_cast<int>(DType::kF16)]);
    fill<Rule, GradientBf16<V>>(rows[static_cast<int>(DType::kBf16)]);
  }
  static constexpr UpdateInt8Table table() {
    UpdateInt8Table out{};
    fill_gradients<math::Adam<false, false>>(out.kernels[0]);
    fill_gradients<math::Adam<false, true>>(out.kernels[1]);
    return out;
  }
};

}  // namespace
}  // namespace penstock::detail
