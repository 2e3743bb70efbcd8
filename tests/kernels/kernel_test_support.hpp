#pragma once

/// What kernel tests share: parameterisation over instruction sets, random bits, guarded memory.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cpu/isa.hpp"

namespace penstock::test {

/// SplitMix64: a small generator whose sequence is the same everywhere.
class RandomBits {
 public:
  explicit RandomBits(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  std::uint32_t next_u32() { return static_cast<std::uint32_t>(next() >> 32); }
  std::uint16_t next_u16() { return static_cast<std::uint16_t>(next() >> 48); }
  /// In [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  /// Mean 0, variance 1, by adding twelve uniforms: tails do not matter here.
  double normal() {
    double sum = -6.0;
    for (int i = 0; i < 12; ++i) sum += uniform();
    return sum;
  }

 private:
  std::uint64_t state_;
};

inline std::uint32_t bits_of(float x) {
  return std::bit_cast<std::uint32_t>(x);
}
inline float float_of(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}
inline float bf16_value(std::uint16_t half) {
  return float_of(static_cast<std::uint32_t>(half) << 16);
}
/// All NaNs count as one value.
inline std::uint32_t canonical_bits(float x) {
  return x != x ? 0x7fc00000U : bits_of(x);
}

/// Bytes that end exactly where an unreadable page begins.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(std::size_t bytes) : bytes_(bytes) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    mapped_ = (bytes / page + 2) * page;
    base_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base_ == MAP_FAILED) {
      base_ = nullptr;
      return;
    }
    std::byte* guard = static_cast<std::byte*>(base_) + mapped_ - page;
    if (mprotect(guard, page, PROT_NONE) == 0) data_ = guard - bytes;
  }
  ~GuardedBuffer() {
    if (base_ != nullptr) munmap(base_, mapped_);
  }
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  /// Null when the system refused the memory.
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_;
  std::size_t mapped_ = 0;
  void* base_ = nullptr;
  std::byte* data_ = nullptr;
};

/// A test that runs once for each instruction set.
class IsaTest : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!isa_supported(GetParam())) {
      GTEST_SKIP() << "this machine cannot run " << isa_name(GetParam())
                   << "; run on a processor that has it";
    }
  }
};

inline std::string isa_test_name(const testing::TestParamInfo<Isa>& info) {
  return std::string(isa_name(info.param));
}

inline auto all_isas() {
  return testing::Values(Isa::kScalar, Isa::kAvx2, Isa::kAvx512);
}

}  // namespace penstock::test
