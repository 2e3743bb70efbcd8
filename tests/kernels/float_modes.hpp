#pragma once

/// Float modes that a caller of kernels may have set: none may change a result, nor be changed.

#include <immintrin.h>

namespace penstock::test {

/// Sets MXCSR for a scope.
class Mxcsr {
 public:
  explicit Mxcsr(unsigned value) : saved_(_mm_getcsr()) { _mm_setcsr(value); }
  ~Mxcsr() { _mm_setcsr(saved_); }
  Mxcsr(const Mxcsr&) = delete;
  Mxcsr& operator=(const Mxcsr&) = delete;

 private:
  unsigned saved_;
};

inline constexpr unsigned kFloatModes[] = {
    0x1f80,           // the default
    0x1f80 | 0x4000,  // round up
    0x1f80 | 0x6000,  // towards zero
    0x1f80 | 0x8040,  // FTZ and DAZ
    0x0000,           // every exception unmasked
};

}  // namespace penstock::test
