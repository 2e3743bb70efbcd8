// Every element-wise kernel of optimizer.hpp: any length, any offset, not a byte beyond the end,
// any cut, the same bits on every instruction set, the caller's float mode neither used nor
// changed.
//
// Method: one table describes each kernel by the size and role of its arrays, so that the tests can
// run all of them on raw bytes; what the values mean is tested elsewhere.

#include <immintrin.h>

#include <functional>
#include <memory>

#include "kernels/cpu/optimizer.hpp"
#include "kernels/float_modes.hpp"
#include "kernels/kernel_test_support.hpp"

namespace penstock::test {
namespace {

using Arrays = std::vector<std::byte*>;

float* f32(std::byte* p) {
  return reinterpret_cast<float*>(p);
}
std::uint16_t* u16(std::byte* p) {
  return reinterpret_cast<std::uint16_t*>(p);
}

struct KernelCase {
  const char* name;
  std::vector<std::size_t> element_bytes;
  std::vector<bool> written;
  std::function<void(const OptimizerKernels&, std::size_t n, const Arrays&)> run;
};

const std::vector<KernelCase>& kernel_cases() {
  using K = const OptimizerKernels&;
  using A = const Arrays&;
  static const std::vector<KernelCase> cases = {
      {"split",
       {4, 2, 2},
       {false, true, true},
       [](K k, std::size_t n, A a) { k.split(n, f32(a[0]), u16(a[1]), u16(a[2])); }},
      {"join",
       {2, 2, 4},
       {false, false, true},
       [](K k, std::size_t n, A a) { k.join(n, u16(a[0]), u16(a[1]), f32(a[2])); }},
      {"f32_to_bf16",
       {4, 2},
       {false, true},
       [](K k, std::size_t n, A a) { k.f32_to_bf16(n, f32(a[0]), u16(a[1])); }},
      {"bf16_to_f32",
       {2, 4},
       {false, true},
       [](K k, std::size_t n, A a) { k.bf16_to_f32(n, u16(a[0]), f32(a[1])); }},
      {"f32_to_f16",
       {4, 2},
       {false, true},
       [](K k, std::size_t n, A a) { k.f32_to_f16(n, f32(a[0]), u16(a[1])); }},
      {"f16_to_f32",
       {2, 4},
       {false, true},
       [](K k, std::size_t n, A a) { k.f16_to_f32(n, u16(a[0]), f32(a[1])); }},
      {"add_f32",
       {4, 4},
       {false, true},
       [](K k, std::size_t n, A a) { k.add_f32(n, f32(a[0]), f32(a[1])); }},
      {"add_bf16",
       {2, 4},
       {false, true},
       [](K k, std::size_t n, A a) { k.add_bf16(n, u16(a[0]), f32(a[1])); }},
      {"add_f16",
       {2, 4},
       {false, true},
       [](K k, std::size_t n, A a) { k.add_f16(n, u16(a[0]), f32(a[1])); }},
  };
  return cases;
}

using Bytes = std::vector<std::vector<std::byte>>;

Bytes random_arrays(const KernelCase& kernel, std::size_t n, std::uint64_t seed) {
  RandomBits random(seed);
  Bytes arrays;
  for (const std::size_t size : kernel.element_bytes) {
    std::vector<std::byte> bytes(n * size);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next() & 0xffU);
    arrays.push_back(std::move(bytes));
  }
  return arrays;
}

/// The first n elements of `arrays` after the kernel of `isa`.
Bytes run_on_copy(const KernelCase& kernel, Isa isa, std::size_t n, Bytes arrays) {
  Arrays pointers;
  for (auto& array : arrays) pointers.push_back(array.data());
  kernel.run(optimizer_kernels(isa), n, pointers);
  return arrays;
}

class KernelLayoutTest : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isa, KernelLayoutTest, all_isas(), isa_test_name);

TEST_P(KernelLayoutTest, GivesTheBitsOfTheScalarKernelsForAnyInput) {
  constexpr std::size_t kCount = 1U << 20;
  for (const KernelCase& kernel : kernel_cases()) {
    const Bytes old = random_arrays(kernel, kCount, 5);
    const Bytes want = run_on_copy(kernel, Isa::kScalar, kCount, old);
    const Bytes got = run_on_copy(kernel, GetParam(), kCount, old);
    for (std::size_t a = 0; a < want.size(); ++a) {
      EXPECT_EQ(std::memcmp(got[a].data(), want[a].data(), want[a].size()), 0)
          << kernel.name << ", array " << a;
      // The comparison means something only if the kernel wrote, and only where it may.
      EXPECT_EQ(want[a] != old[a], kernel.written[a]) << kernel.name << ", array " << a;
    }
  }
}

/// Runs n elements that start `offset_elements` into guarded memory; the last ends at the guard.
void check_guarded(const KernelCase& kernel, Isa isa, std::size_t n, std::size_t offset_elements,
                   const Bytes& old, const Bytes& want) {
  std::vector<std::unique_ptr<GuardedBuffer>> buffers;
  Arrays pointers;
  for (std::size_t a = 0; a < old.size(); ++a) {
    const std::size_t size = kernel.element_bytes[a];
    const std::size_t offset = offset_elements * size;
    buffers.push_back(std::make_unique<GuardedBuffer>(offset + n * size));
    ASSERT_NE(buffers.back()->data(), nullptr);
    std::memset(buffers.back()->data(), 0x5a, offset);
    if (n != 0) std::memcpy(buffers.back()->data() + offset, old[a].data(), n * size);
    pointers.push_back(buffers.back()->data() + offset);
  }
  kernel.run(optimizer_kernels(isa), n, pointers);
  for (std::size_t a = 0; a < old.size(); ++a) {
    const std::size_t bytes = n * kernel.element_bytes[a];
    const std::byte* front = buffers[a]->data();
    if (bytes != 0) {
      ASSERT_EQ(std::memcmp(pointers[a], want[a].data(), bytes), 0)
          << kernel.name << ", array " << a << ", n " << n;
    }
    for (const std::byte* p = front; p < pointers[a]; ++p) {
      ASSERT_EQ(*p, std::byte{0x5a}) << kernel.name << ", array " << a << ", n " << n;
    }
  }
}

TEST_P(KernelLayoutTest, TakesEveryLengthAndStaysWithinIt) {
  std::vector<std::size_t> lengths;
  for (std::size_t n = 0; n <= 100; ++n) lengths.push_back(n);
  for (const std::size_t n : {255U, 256U, 257U, 4095U, 4096U, 4097U}) lengths.push_back(n);
  for (const KernelCase& kernel : kernel_cases()) {
    const Bytes old = random_arrays(kernel, lengths.back(), 7);
    const Bytes want = run_on_copy(kernel, Isa::kScalar, lengths.back(), old);
    for (const std::size_t n : lengths) check_guarded(kernel, GetParam(), n, 3, old, want);
  }
}

TEST_P(KernelLayoutTest, TakesAnyOffset) {
  // The end lies at the guard page, so lengths 64..95 start at every element of a cache line; the
  // offset shifts the untouched bytes in front.
  for (const KernelCase& kernel : kernel_cases()) {
    const Bytes old = random_arrays(kernel, 96, 11);
    const Bytes want = run_on_copy(kernel, Isa::kScalar, 96, old);
    for (std::size_t n = 64; n < 96; ++n) {
      for (const std::size_t offset : {0U, 1U, 15U, 31U}) {
        check_guarded(kernel, GetParam(), n, offset, old, want);
      }
    }
  }
}

TEST_P(KernelLayoutTest, GivesTheSameBitsWhereverAnArrayIsCut) {
  constexpr std::size_t kCount = 100;
  for (const KernelCase& kernel : kernel_cases()) {
    const Bytes old = random_arrays(kernel, kCount, 13);
    const Bytes want = run_on_copy(kernel, GetParam(), kCount, old);
    for (std::size_t cut = 0; cut <= kCount; ++cut) {
      Bytes got = old;
      Arrays front, back;
      for (std::size_t a = 0; a < got.size(); ++a) {
        front.push_back(got[a].data());
        back.push_back(got[a].data() + cut * kernel.element_bytes[a]);
      }
      kernel.run(optimizer_kernels(GetParam()), kCount - cut, back);
      kernel.run(optimizer_kernels(GetParam()), cut, front);
      ASSERT_EQ(got, want) << kernel.name << ", cut at " << cut;
    }
  }
}

TEST_P(KernelLayoutTest, NeitherUsesNorChangesTheCallersFloatMode) {
  constexpr std::size_t kCount = 4099;
  for (const KernelCase& kernel : kernel_cases()) {
    const Bytes old = random_arrays(kernel, kCount, 19);
    const Bytes want = run_on_copy(kernel, GetParam(), kCount, old);
    for (const unsigned mode : kFloatModes) {
      Bytes got = old;
      Arrays pointers;
      for (auto& array : got) pointers.push_back(array.data());
      unsigned after;
      {
        const Mxcsr caller(mode);
        kernel.run(optimizer_kernels(GetParam()), kCount, pointers);
        after = _mm_getcsr();
      }
      EXPECT_EQ(after, mode) << kernel.name;
      EXPECT_EQ(got, want) << kernel.name << " in mode " << mode;
    }
  }
}

}  // namespace
}  // namespace penstock::test
