// Adam with states of 8 bits: bits against the formulas written down again, any length and offset,
// any input, any cut at blocks, every form of the weights. What the values are worth is tested in
// update_int8_values_test.cpp.

#include <immintrin.h>

#include <memory>

#include "kernels/float_modes.hpp"
#include "kernels/update_int8_model.hpp"

namespace penstock::test {
namespace {

class UpdateInt8Test : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isa, UpdateInt8Test, all_isas(), isa_test_name);

constexpr Master kMasters[] = {Master::kF32, Master::kSplit, Master::kSplit8, Master::kBf16};
constexpr DType kGradientTypes[] = {DType::kF32, DType::kF16, DType::kBf16};
constexpr DType kOutTypes[] = {DType::kU32, DType::kBf16, DType::kF16, DType::kF32};  // U32: none

std::vector<UpdateRule> adams() {
  return {{.rule = Rule::kAdamW, .weight_decay = 0.1},
          {.rule = Rule::kAdamW, .maximize = true},
          {.rule = Rule::kAdam, .weight_decay = 0.1}};
}

void run(Isa isa, const UpdateRule& rule, std::uint64_t t, std::uint64_t key, Master master,
         const UpdateArrays& arrays) {
  UpdateScalars scalars = update_scalars(rule, t, 1.0);
  scalars.key = key;
  update_kernel_int8(isa, rule, arrays.gradient_type, master)(scalars, arrays);
}

/// Blocks of all sorts: usual ones, of zeros, of very different sizes, with something infinite.
Int8Tensor random_tensor(std::size_t n, Master master, std::uint64_t seed) {
  RandomBits random(seed);
  Int8Tensor x(n, master);
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t sort = i / kStateBlock % 6;
    x.set_weight(i, static_cast<float>(random.normal()));
    x.gradient[i] = static_cast<float>(random.normal());
    x.m[i] = static_cast<std::int8_t>(random.next() % 255 - 127);
    x.v[i] = static_cast<std::uint8_t>(random.next());
    if (sort == 1) x.gradient[i] = 0.0F;
    if (sort == 2) x.gradient[i] *= static_cast<float>(std::exp(4.0 * random.normal()));
    if (sort == 3 && i % 64 == 5) x.gradient[i] = float_of(random.next_u32() | 0x7f800000U);
    if (sort == 4) x.gradient[i] *= 1e-36F;
    if (sort == 5 && i % 7 == 0) x.gradient[i] = 0.0F;
  }
  for (std::size_t b = 0; b < x.m_scale.size(); ++b) {
    const std::size_t sort = b % 6;
    const bool none = sort == 1 || sort == 4;
    x.m_scale[b] = none ? 0.0F : static_cast<float>(random.uniform());
    x.v_scale[b] = none ? 0.0F : static_cast<float>(random.uniform());
  }
  return x;
}

TEST_P(UpdateInt8Test, GivesTheBitsOfTheFormulas) {
  constexpr std::size_t kCount = 64 * kStateBlock + 77;
  for (const UpdateRule& rule : adams()) {
    for (const Master master : kMasters) {
      // The index of an element passes 2^32 on the way.
      constexpr std::uint64_t kFirst = (1ULL << 32) - 4 * kStateBlock;
      const Int8Tensor old = random_tensor(kCount, master, 3);
      Int8Tensor got = old, want = old;
      for (std::uint64_t t = 5; t < 8; ++t) {
        const std::uint64_t key = rounding_key(1, 2, t);
        run(GetParam(), rule, t, key, master, got.arrays(kFirst));
        Int8Model(rule, t, key).step(want, kFirst);
        for (std::size_t i = 0; i < kCount; ++i) {
          ASSERT_EQ(canonical_bits(got.weight(i)), canonical_bits(want.weight(i))) << i;
          ASSERT_EQ(got.m[i], want.m[i]) << i << " t " << t;
          ASSERT_EQ(got.v[i], want.v[i]) << i << " t " << t;
        }
        for (std::size_t b = 0; b < got.m_scale.size(); ++b) {
          ASSERT_EQ(bits_of(got.m_scale[b]), canonical_bits(want.m_scale[b])) << b;
          ASSERT_EQ(bits_of(got.v_scale[b]), canonical_bits(want.v_scale[b])) << b;
        }
      }
    }
  }
}

TEST_P(UpdateInt8Test, HangsOnTheElementAndNotOnHowArraysAreCut) {
  constexpr std::size_t kCount = 9 * kStateBlock + 100;
  for (const Master master : kMasters) {
    const UpdateRule rule = adams()[0];
    const Int8Tensor old = random_tensor(kCount, master, 9);
    Int8Tensor want = old;
    constexpr std::uint64_t kFirst = (1ULL << 33) - 3 * kStateBlock;
    run(GetParam(), rule, 3, 77, master, want.arrays(kFirst));
    for (std::size_t cut = 0; cut <= kCount; cut += kStateBlock) {
      Int8Tensor got = old;
      run(GetParam(), rule, 3, 77, master, got.arrays(kFirst).part(cut, kCount - cut));
      run(GetParam(), rule, 3, 77, master, got.arrays(kFirst).part(0, cut));
      ASSERT_TRUE(got == want) << cut;
    }
    Int8Tensor other = old;
    run(GetParam(), rule, 3, 78, master, other.arrays(kFirst));
    EXPECT_NE(other.m, want.m);
    EXPECT_NE(other.v, want.v);
    const bool rounds = master == Master::kSplit8 || master == Master::kBf16;
    EXPECT_EQ(other.hi != want.hi || other.lo8 != want.lo8, rounds);
  }
}

// ==== raw bytes ===============================================================================

struct Form {
  UpdateRule rule;
  DType gradient;
  Master master;
  DType out;
  [[nodiscard]] std::string name() const {
    return "rule " + std::to_string(static_cast<int>(rule.rule)) + ", master " +
           std::to_string(static_cast<int>(master)) + ", gradient " +
           std::string(name_of(gradient)) + ", out " + std::string(name_of(out));
  }
};

std::vector<Form> all_forms() {
  std::vector<Form> forms;
  for (const UpdateRule& rule : adams()) {
    for (const DType gradient : kGradientTypes) {
      for (const Master master : kMasters) {
        forms.push_back({rule, gradient, master, kOutTypes[forms.size() % 4]});
      }
    }
  }
  return forms;
}

/// The arrays of a form: bytes of an element, or of a block, and whether they are written.
struct Plane {
  std::size_t bytes, of_elements;
  bool written;
  [[nodiscard]] std::size_t size(std::size_t n) const {
    return (n + of_elements - 1) / of_elements * bytes;
  }
};
std::vector<Plane> planes(const Form& form) {
  std::vector<Plane> out = {{1, 1, true},
                            {1, 1, true},
                            {4, kStateBlock, true},
                            {4, kStateBlock, true},
                            {size_bytes(form.gradient), 1, false}};
  out.push_back({form.master == Master::kF32 ? 4U : 2U, 1, true});
  if (form.master == Master::kSplit) out.push_back({2, 1, true});
  if (form.master == Master::kSplit8) out.push_back({1, 1, true});
  if (form.out != DType::kU32) out.push_back({size_bytes(form.out), 1, true});
  return out;
}

using Pointers = std::vector<std::byte*>;
UpdateArrays arrays_at(const Form& form, std::size_t n, const Pointers& at) {
  UpdateArrays a{.n = n, .gradient_type = form.gradient};
  a.m = at[0];
  a.v = at[1];
  a.m_scale = reinterpret_cast<float*>(at[2]);
  a.v_scale = reinterpret_cast<float*>(at[3]);
  a.gradient = at[4];
  if (form.master == Master::kF32) a.p = reinterpret_cast<float*>(at[5]);
  if (form.master != Master::kF32) a.hi = reinterpret_cast<std::uint16_t*>(at[5]);
  if (form.master == Master::kSplit) a.lo = reinterpret_cast<std::uint16_t*>(at[6]);
  if (form.master == Master::kSplit8) a.lo8 = reinterpret_cast<std::int8_t*>(at[6]);
  if (form.out != DType::kU32) a.out = at.back();
  if (form.out != DType::kU32) a.out_type = form.out;
  return a;
}

using Bytes = std::vector<std::vector<std::byte>>;
/// Random bits; `special`: of 256 floats and halves this many are denormal, infinite or NaN.
Bytes random_bytes(const Form& form, std::size_t n, std::uint64_t special) {
  RandomBits random(n + special);
  Bytes out;
  for (const Plane& plane : planes(form)) {
    std::vector<std::byte> bytes(plane.size(n));
    constexpr std::uint32_t kExponents[4] = {0, 1, 254, 255};
    for (std::size_t i = 0; i < bytes.size(); i += plane.bytes) {
      std::uint32_t word = random.next_u32();
      if (plane.bytes > 1) word = (word & 0xbfffffffU) | 0x20000000U;  // of a usual size
      if (plane.bytes > 1 && random.next() % 256 < special) {
        word = (word & 0x807fffffU) | (kExponents[random.next() % 4] << 23);
      }
      std::memcpy(&bytes[i], reinterpret_cast<const std::byte*>(&word) + (4 - plane.bytes),
                  plane.bytes);
    }
    out.push_back(std::move(bytes));
  }
  return out;
}
Pointers pointers_to(Bytes& arrays) {
  Pointers out;
  for (auto& array : arrays) out.push_back(array.data());
  return out;
}
UpdateScalars scalars_of(const Form& form) {
  UpdateScalars scalars = update_scalars(form.rule, 12, 1.0);
  scalars.key = 0x123456789abcdefU;
  return scalars;
}
void run_form(Isa isa, const Form& form, const UpdateArrays& arrays) {
  update_kernel_int8(isa, form.rule, form.gradient, form.master)(scalars_of(form), arrays);
}

TEST_P(UpdateInt8Test, GivesTheBitsOfTheScalarKernelsForAnyInput) {
  constexpr std::size_t kCount = (1U << 17) + 99;
  for (const Form& form : all_forms()) {
    for (const std::uint64_t special : {0U, 1U, 128U}) {
      const Bytes old = random_bytes(form, kCount, special);
      Bytes want = old, got = old;
      run_form(Isa::kScalar, form, arrays_at(form, kCount, pointers_to(want)));
      run_form(GetParam(), form, arrays_at(form, kCount, pointers_to(got)));
      for (std::size_t a = 0; a < want.size(); ++a) {
        EXPECT_EQ(std::memcmp(got[a].data(), want[a].data(), want[a].size()), 0)
            << form.name() << ", array " << a;
        EXPECT_EQ(want[a] != old[a], planes(form)[a].written) << form.name() << ", array " << a;
      }
    }
  }
}

// Ends lie at a page that cannot be read, so starts lie at every offset that elements allow.
TEST_P(UpdateInt8Test, TakesEveryLengthAtAnyOffsetAndStaysWithinIt) {
  constexpr std::size_t kLongest = 4097, kFront = 64;
  std::size_t which = 0;
  for (const Form& form : all_forms()) {
    std::vector<std::unique_ptr<GuardedBuffer>> buffers;
    for (const Plane& plane : planes(form)) {
      buffers.push_back(std::make_unique<GuardedBuffer>(kFront + plane.size(kLongest)));
      ASSERT_NE(buffers.back()->data(), nullptr);
    }
    const std::size_t share = which++ % 36;
    for (std::size_t n = 0; n <= kLongest; ++n) {
      if (n > 40 && n % 36 != share && (n < 250 || n > 262) && n < 4095) continue;
      const Bytes old = random_bytes(form, n, 1);
      Bytes want = old;
      run_form(Isa::kScalar, form, arrays_at(form, n, pointers_to(want)));
      Pointers at;
      for (std::size_t a = 0; a < old.size(); ++a) {
        at.push_back(buffers[a]->data() + buffers[a]->bytes() - old[a].size());
        std::memset(at[a] - kFront, 0x5a, kFront);
        if (!old[a].empty()) std::memcpy(at[a], old[a].data(), old[a].size());
      }
      run_form(GetParam(), form, arrays_at(form, n, at));
      for (std::size_t a = 0; a < old.size(); ++a) {
        ASSERT_TRUE(want[a].empty() || std::memcmp(at[a], want[a].data(), want[a].size()) == 0)
            << form.name() << ", n " << n << ", array " << a;
        for (std::size_t i = 1; i <= kFront; ++i) {
          ASSERT_EQ(at[a][-static_cast<std::ptrdiff_t>(i)], std::byte{0x5a}) << form.name();
        }
      }
    }
  }
}

TEST_P(UpdateInt8Test, NeitherUsesNorChangesTheCallersFloatMode) {
  constexpr std::size_t kCount = 1027;
  for (const Form& form : all_forms()) {
    const Bytes old = random_bytes(form, kCount, 20);
    Bytes want = old;
    run_form(GetParam(), form, arrays_at(form, kCount, pointers_to(want)));
    for (const unsigned mode : kFloatModes) {
      Bytes got = old;
      const UpdateArrays arrays = arrays_at(form, kCount, pointers_to(got));
      const UpdateScalars scalars = scalars_of(form);
      const UpdateKernel kernel =
          update_kernel_int8(GetParam(), form.rule, form.gradient, form.master);
      unsigned after;
      {
        const Mxcsr caller(mode);
        kernel(scalars, arrays);
        after = _mm_getcsr();
      }
      EXPECT_EQ(after, mode) << form.name();
      EXPECT_TRUE(got == want) << form.name() << " in mode " << mode;
    }
  }
}

}  // namespace
}  // namespace penstock::test
