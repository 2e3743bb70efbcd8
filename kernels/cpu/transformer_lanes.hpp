#pragma once

/// How the transformer kernels walk a row: whole vectors of 16, then one masked tail.
///
/// A row body is written once, as a function of a span: Whole (16 elements) or Part (1 to 15).
/// `keep` neutralises the lanes beyond a Part, which loads read as +0. Element i of a row goes to
/// lane i mod 16 on every ISA; sums over lanes use the kit's fixed tree.

#include <cstddef>
#include <cstdint>

#include "kernels/math/value.hpp"

namespace penstock {

template <class V>
struct Whole {
  std::size_t at;

  typename V::F32 load(const float* row) const { return V::load(row + at); }
  void store(float* row, typename V::F32 x) const { V::store(row + at, x); }
  typename V::U32 load_u16(const std::uint16_t* row) const { return V::load_u16(row + at); }
  typename V::F32 keep(typename V::F32 x, float /*otherwise*/) const { return x; }
};

template <class V>
struct Part {
  std::size_t at;
  std::size_t lanes;

  typename V::F32 load(const float* row) const { return V::load(row + at, lanes); }
  void store(float* row, typename V::F32 x) const { V::store(row + at, x, lanes); }
  typename V::U32 load_u16(const std::uint16_t* row) const { return V::load_u16(row + at, lanes); }
  typename V::F32 keep(typename V::F32 x, float otherwise) const {
    return select(V::first_lanes(lanes), x, V::set(otherwise));
  }
};

template <class V, class Body>
PENSTOCK_MATH void for_row(std::size_t n, Body body) {
  constexpr std::size_t kWidth = 16;
  const std::size_t whole = n - n % kWidth;
  for (std::size_t at = 0; at < whole; at += kWidth) body(Whole<V>{at});
  if (whole < n) body(Part<V>{whole, n - whole});
}

template <class V>
PENSTOCK_MATH void zero_row(std::size_t n, float* row) {
  for_row<V>(n, [&](auto span) { span.store(row, V::set(0.0F)); });
}

}  // namespace penstock
