#pragma once

/// The loop over 16-lane vectors that element-wise kernels share. Internal linkage, as all that
/// wide objects include.

#include <cstddef>

namespace penstock::detail {
namespace {

/// Calls body(i) for each whole vector and body(i, lanes) for the rest: the same code on the same
/// lanes, so results do not depend on where a tensor is cut. The first `head` elements go by
/// partial vectors, so that the whole ones start where the caller wants them.
template <class Body>
inline void for_each_vector(std::size_t n, Body body, std::size_t head = 0) {
  constexpr std::size_t kStep = 16;
  std::size_t i = 0;
  while (i < head) {
    const std::size_t lanes = head - i < kStep ? head - i : kStep;
    body(i, lanes);
    i += lanes;
  }
  for (; n - i >= kStep; i += kStep) body(i);
  if (i < n) body(i, n - i);
}

}  // namespace
}  // namespace penstock::detail
