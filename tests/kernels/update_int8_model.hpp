#pragma once

/// Adam with states of 8 bits, written from docs/numerics.md and not from the kernels: element by
/// element, in fp32, with the faults that the checks of its values must find.

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/update_model.hpp"

namespace penstock::test {

/// One tensor and its states. Of the weights, those of `master` are used.
struct Int8Tensor {
  Master master = Master::kF32;
  std::vector<float> p;
  std::vector<std::uint16_t> hi, lo;
  std::vector<std::int8_t> lo8, m;
  std::vector<std::uint8_t> v;
  std::vector<float> m_scale, v_scale;
  std::vector<float> gradient;

  explicit Int8Tensor(std::size_t n, Master form = Master::kF32)
      : master(form),
        p(n),
        hi(n),
        lo(n),
        lo8(n),
        m(n),
        v(n),
        m_scale((n + kStateBlock - 1) / kStateBlock),
        v_scale(m_scale.size()),
        gradient(n) {}

  [[nodiscard]] UpdateArrays arrays(std::uint64_t first_element = 0) {
    UpdateArrays a;
    a.n = gradient.size();
    if (master == Master::kF32) a.p = p.data();
    if (master != Master::kF32) a.hi = hi.data();
    if (master == Master::kSplit) a.lo = lo.data();
    if (master == Master::kSplit8) a.lo8 = lo8.data();
    a.m = m.data();
    a.v = v.data();
    a.m_scale = m_scale.data();
    a.v_scale = v_scale.data();
    a.first_element = first_element;
    a.gradient = gradient.data();
    a.gradient_type = DType::kF32;
    return a;
  }
  [[nodiscard]] float weight(std::size_t i) const {
    const std::uint32_t high = static_cast<std::uint32_t>(hi[i]) << 16;
    if (master == Master::kF32) return p[i];
    if (master == Master::kSplit) return float_of(join_master_bits(hi[i], lo[i]));
    if (master == Master::kBf16) return float_of(high);
    return float_of(high + static_cast<std::uint32_t>(lo8[i] * 256));
  }
  void set_weight(std::size_t i, float x) {
    p[i] = x;
    hi[i] = master == Master::kBf16 ? static_cast<std::uint16_t>(bits_of(x) >> 16)
                                    : split_hi(bits_of(x));
    lo[i] = split_lo(bits_of(x));
    lo8[i] = static_cast<std::int8_t>(bits_of(x) >> 8);
  }
  /// To the bit: a NaN equals itself.
  [[nodiscard]] bool operator==(const Int8Tensor& other) const {
    const auto same = [](const auto& a, const auto& b) {
      return a.size() == b.size() &&
             (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0);
    };
    return same(p, other.p) && same(hi, other.hi) && same(lo, other.lo) && same(lo8, other.lo8) &&
           same(m, other.m) && same(v, other.v) && same(m_scale, other.m_scale) &&
           same(v_scale, other.v_scale);
  }
};

/// The magnitude that code c of 2^kBits stands for. With t = c / 2^kBits = 2^e (1 + f), e + f is
/// nearly the logarithm of t; four times that is it of the magnitude.
inline double int8_value(int c, int bits) {
  if (c == 0) return 0.0;
  int exponent = 0;
  const double fraction = std::frexp(static_cast<double>(c), &exponent);  // in [.5, 1)
  const double logarithm = 4.0 * (exponent - 1 - bits + 2.0 * fraction - 1.0);
  return std::ldexp(1.0 + logarithm - std::floor(logarithm),
                    static_cast<int>(std::floor(logarithm)));
}
inline double m_value(const Int8Tensor& x, std::size_t i) {
  return std::copysign(int8_value(std::abs(int{x.m[i]}), 7), static_cast<double>(x.m[i])) *
         static_cast<double>(x.m_scale[i / kStateBlock]);
}
inline double r_value(const Int8Tensor& x, std::size_t i) {
  return int8_value(x.v[i], 8) * static_cast<double>(x.v_scale[i / kStateBlock]);
}

enum class Int8Fault {
  kNone,
  kNearest,         ///< m and v to the nearest code
  kNearestV,        ///< v to the nearest code
  kDown,            ///< to the code below
  kZeroV,           ///< v may become 0
  kRoundedUpdate,   ///< the weight moves by the rounded states
  kStaleScale,      ///< codes are made for the old scale
  kSharedScale,     ///< one scale for two blocks: the first one's
  kVInsteadOfRoot,  ///< codes of v
  kSignLost,        ///< of m
  kSameForAll,      ///< one random number for a whole block
  kUpBySameBit,     ///< the weight is rounded as its v is
  kWeightNearest,   ///< the weight to the nearest
  kWeightDown       ///< the weight cut
};

inline std::uint32_t int8_hash(std::uint32_t x, std::uint32_t key0, std::uint32_t key1) {
  x += key0;
  x = (x ^ (x >> 16)) * 0x7feb352dU;
  x = ((x ^ (x >> 15)) + key1) * 0x846ca68bU;
  return x ^ (x >> 16);
}

class Int8Model {
 public:
  Int8Model(const UpdateRule& rule, std::uint64_t t, std::uint64_t key,
            Int8Fault fault = Int8Fault::kNone)
      : rule_(rule), scalars_(update_scalars(rule, t, 1.0)), key_(key), fault_(fault) {}

  void step(Int8Tensor& x, std::uint64_t first_element = 0) {
    const FloatModeGuard guard;
    const std::size_t n = x.gradient.size();
    for (std::size_t first = 0; first < n; first += kStateBlock) {
      block(x, first_element, first, std::min(n, first + kStateBlock));
    }
  }

 private:
  [[nodiscard]] std::uint32_t random(std::uint64_t element, bool weight) const {
    const std::uint64_t key = key_ + (element >> 32) * 0x9e3779b97f4a7c15U;
    const auto key0 = static_cast<std::uint32_t>(key);
    auto key1 = static_cast<std::uint32_t>(key >> 32);
    const auto low = static_cast<std::uint32_t>(element);
    if (weight && fault_ != Int8Fault::kUpBySameBit) {
      return int8_hash(low, key0, key1 ^ 0x9e3779b9U) >> 16;
    }
    const std::uint32_t word = int8_hash(low / 32 * 16 + low % 16, key0, key1);
    if (fault_ == Int8Fault::kSameForAll) return int8_hash(low / 256, key0, key1) >> 16;
    return low % 32 < 16 ? word >> 16 : word & 0xffffU;
  }

  static float value(std::uint32_t from_code, int c) {
    const std::uint32_t bits = bits_of(static_cast<float>(c));
    return bits < from_code ? 0.0F : float_of((bits - from_code) << 2);
  }
  [[nodiscard]] int code(float x, std::uint32_t to_position, int largest, int least,
                         std::uint32_t random) const {
    float position = float_of((bits_of(std::fabs(x)) >> 2) + to_position);
    position = std::min(std::max(position, static_cast<float>(least) * 65536.0F),
                        static_cast<float>(largest) * 65536.0F);
    return static_cast<int>((static_cast<std::uint32_t>(std::lrintf(position)) + random) >> 16);
  }

  [[nodiscard]] float round_weight(Master master, float p, std::uint32_t random) const {
    if (master == Master::kF32 || master == Master::kSplit) return p;
    const std::uint32_t cut = master == Master::kSplit8 ? 8 : 16;
    random >>= 16 - cut;
    if (fault_ == Int8Fault::kWeightNearest) random = 1U << (cut - 1);
    if (fault_ == Int8Fault::kWeightDown) random = 0;
    const std::uint32_t bits = canonical_bits(p), up = bits + random;
    const std::uint32_t kept = (up & 0x7f800000U) == 0x7f800000U ? bits : up;
    return float_of(kept >> cut << cut);
  }

  static float scale_of(std::uint32_t largest, float of_largest_code) {
    if (largest >= 0x7f800000U) return float_of(0x7fc00000U);
    return float_of(largest) * (1.0F / of_largest_code);
  }

  void block(Int8Tensor& x, std::uint64_t element, std::size_t first, std::size_t end) {
    float m[kStateBlock], r[kStateBlock], p[kStateBlock];
    std::uint32_t largest_m = 0, largest_r = 0;
    const std::size_t b = first / kStateBlock;
    const float old_scales[2] = {x.m_scale[b], x.v_scale[b]};
    for (std::size_t i = first; i < end; ++i) {
      float v_max = 0.0F;
      const float old_m =
          std::copysign(value(0x33200000U, std::abs(int{x.m[i]})), static_cast<float>(x.m[i])) *
          old_scales[0];
      const float old_r = value(0x33a00000U, x.v[i]) * old_scales[1];
      float new_m = old_m, v = fault_ == Int8Fault::kVInsteadOfRoot ? old_r : old_r * old_r;
      p[i - first] = x.weight(i);
      model_update_f32(rule_, scalars_, x.gradient[i], p[i - first], new_m, v, v_max);
      m[i - first] = new_m;
      r[i - first] = fault_ == Int8Fault::kVInsteadOfRoot ? v : std::sqrt(v);
      largest_m = std::max(largest_m, bits_of(std::fabs(new_m)));
      largest_r = std::max(largest_r, bits_of(r[i - first]) & 0x7fffffffU);
    }
    const bool second = fault_ == Int8Fault::kSharedScale && b % 2 == 1;
    x.m_scale[b] = second ? x.m_scale[b - 1] : scale_of(largest_m, 0.96875F);
    x.v_scale[b] = second ? x.v_scale[b - 1] : scale_of(largest_r, 0.984375F);
    const bool stale = fault_ == Int8Fault::kStaleScale && old_scales[0] > 0.0F;
    const float scales[2] = {stale ? old_scales[0] : x.m_scale[b],
                             stale ? old_scales[1] : x.v_scale[b]};
    for (std::size_t i = first; i < end; ++i) {
      encode(x, i, element + i, m[i - first], r[i - first], scales);
      if (fault_ == Int8Fault::kRoundedUpdate) {
        float v = static_cast<float>(r_value(x, i)), v_max = 0.0F;
        move_by_states(static_cast<float>(m_value(x, i)), v * v, v_max, x.weight(i), p[i - first]);
      }
      x.set_weight(i, round_weight(x.master, float_of(canonical_bits(p[i - first])),
                                   random(element + i, true)));
    }
  }

  void move_by_states(float m, float v, float /*v_max*/, float old, float& p) const {
    p = std::fma(scalars_.ns, m / std::fma(std::sqrt(v), scalars_.is, scalars_.eps), old);
  }

  void encode(Int8Tensor& x, std::size_t i, std::uint64_t element, float m, float r,
              const float (&scales)[2]) const {
    const bool finite[2] = {std::isfinite(scales[0]), std::isfinite(scales[1])};
    const float inverse[2] = {scales[0] > 0.0F && finite[0] ? 1.0F / scales[0] : 0.0F,
                              scales[1] > 0.0F && finite[1] ? 1.0F / scales[1] : 0.0F};
    const std::uint32_t drawn = random(element, false);
    const bool nearest = fault_ == Int8Fault::kNearest;
    std::uint32_t random_m = nearest ? 0x8000U : drawn;
    std::uint32_t random_r = nearest || fault_ == Int8Fault::kNearestV ? 0x8000U : drawn;
    if (fault_ == Int8Fault::kDown) random_m = random_r = 0;
    const int least = inverse[1] > 0.0F && fault_ != Int8Fault::kZeroV ? 1 : 0;
    const int c = finite[0] ? code(m * inverse[0], 0x3b200000U, 127, 0, random_m) : 0;
    const bool negative = std::signbit(m * inverse[0]) && fault_ != Int8Fault::kSignLost;
    x.m[i] = static_cast<std::int8_t>(negative ? -c : c);
    x.v[i] = static_cast<std::uint8_t>(
        finite[1] ? code(r * inverse[1], 0x3ba00000U, 255, least, random_r) : 0);
  }

  UpdateRule rule_;
  UpdateScalars scalars_;
  std::uint64_t key_;
  Int8Fault fault_;
};

}  // namespace penstock::test
