// Every update kernel: any length, any offset, not a byte outside its arrays, any cut, the same
// bits on every instruction set, the caller's float mode neither used nor changed.
//
// Method: a form says which arrays a kernel has and how large their elements are; all run on raw
// bytes. What the values mean is tested in update_test.cpp.

#include <immintrin.h>

#include <memory>

#include "kernels/cpu/optimizer.hpp"
#include "kernels/cpu/update.hpp"
#include "kernels/float_modes.hpp"
#include "kernels/kernel_test_support.hpp"
#include "sanitizers.hpp"

namespace penstock::test {
namespace {

/// Which kernel, and where to the weights are copied (kU32: nowhere).
struct Form {
  UpdateRule rule;
  DType gradient;
  bool split;
  DType state;
  DType out;

  [[nodiscard]] Master master() const { return split ? Master::kSplit : Master::kF32; }
  [[nodiscard]] std::string name() const {
    const UpdateStates states = update_states(rule);
    return "rule " + std::to_string(static_cast<int>(rule.rule)) + (states.m ? " m" : "") +
           (states.v_max ? " v_max" : "") + (split ? " split" : "") + ", states " +
           std::string(name_of(state)) + ", gradient " + std::string(name_of(gradient)) + ", out " +
           std::string(name_of(out));
  }
};

constexpr DType kGradients[] = {DType::kF32, DType::kF16, DType::kBf16};
constexpr DType kOuts[] = {DType::kU32, DType::kBf16, DType::kF16, DType::kF32};

std::vector<UpdateRule> loops() {
  return {{.rule = Rule::kAdamW, .weight_decay = 0.1, .eps = 1e-6},
          {.rule = Rule::kAdam, .amsgrad = true, .weight_decay = 0.1, .eps = 1e-6},
          {.rule = Rule::kSgd, .maximize = true, .weight_decay = 0.1},
          {.rule = Rule::kSgd, .nesterov = true, .momentum = 0.9},
          {.rule = Rule::kAdagrad, .weight_decay = 0.1},
          {.rule = Rule::kLion, .weight_decay = 0.1}};
}

std::vector<Form> all_forms() {
  std::vector<Form> forms;
  for (const UpdateRule& rule : loops()) {
    for (const DType gradient : kGradients) {
      for (const bool split : {false, true}) {
        for (const DType state : {DType::kF32, DType::kBf16}) {
          for (const DType out : kOuts) forms.push_back({rule, gradient, split, state, out});
        }
      }
    }
  }
  return forms;
}

/// The arrays of a form, in the order that arrays_at() takes them.
struct Plane {
  std::size_t element_bytes;
  bool written;
};
std::vector<Plane> planes(const Form& form) {
  const UpdateStates states = update_states(form.rule);
  std::vector<Plane> out;
  if (form.split) out.insert(out.end(), 2, {2, true});
  if (!form.split) out.push_back({4, true});
  for (const bool kept : {states.m, states.v, states.v_max}) {
    if (kept) out.push_back({size_bytes(form.state), true});
  }
  out.push_back({size_bytes(form.gradient), false});
  if (form.out != DType::kU32) out.push_back({size_bytes(form.out), true});
  return out;
}

using Pointers = std::vector<std::byte*>;

UpdateArrays arrays_at(const Form& form, std::size_t n, const Pointers& at) {
  const UpdateStates states = update_states(form.rule);
  UpdateArrays a{.n = n, .state_type = form.state, .gradient_type = form.gradient};
  std::size_t next = 0;
  const auto take = [&]<class T>(T*& to) { to = static_cast<T*>(static_cast<void*>(at[next++])); };
  if (form.split) {
    take(a.hi);
    take(a.lo);
  } else {
    take(a.p);
  }
  if (states.m) take(a.m);
  if (states.v) take(a.v);
  if (states.v_max) take(a.v_max);
  a.gradient = at[next++];
  if (form.out != DType::kU32) {
    a.out = at[next++];
    a.out_type = form.out;
  }
  return a;
}

UpdateScalars scalars_of(const Form& form) {
  UpdateScalars scalars = update_scalars(form.rule, 12, 0.75);
  scalars.key = rounding_key(1, 2, 12);
  return scalars;
}

void run(const Form& form, Isa isa, const UpdateArrays& arrays) {
  update_kernel(isa, form.rule, form.gradient, form.master(), form.state)(scalars_of(form), arrays);
}

using Bytes = std::vector<std::vector<std::byte>>;

/// Random bits, half of them drawn so that denormals, infinities and NaNs are common.
const std::vector<std::uint32_t>& bit_pool() {
  static const std::vector<std::uint32_t> pool = [] {
    RandomBits random(5);
    std::vector<std::uint32_t> words((1U << 20) + 4096);
    constexpr std::uint32_t kExponents[8] = {0, 0, 1, 2, 127, 253, 254, 255};
    for (std::uint32_t& word : words) {
      const std::uint64_t bits = random.next();
      word = static_cast<std::uint32_t>(bits);
      if ((bits >> 63) != 0) {
        word = (word & 0x807fffffU) | (kExponents[(bits >> 60) & 7U] << 23);
      }
    }
    return words;
  }();
  return pool;
}

Bytes random_arrays(const Form& form, std::size_t n) {
  Bytes arrays;
  std::size_t offset = 0;
  for (const Plane& plane : planes(form)) {
    std::vector<std::byte> bytes(n * plane.element_bytes);
    // Halves are the words' upper ends, so that they have the special exponents, too.
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint32_t word = bit_pool()[i + offset];
      std::memcpy(&bytes[i * plane.element_bytes],
                  reinterpret_cast<const std::byte*>(&word) + (4 - plane.element_bytes),
                  plane.element_bytes);
    }
    arrays.push_back(std::move(bytes));
    offset += 257;
  }
  return arrays;
}

Pointers pointers_to(Bytes& arrays) {
  Pointers out;
  for (auto& array : arrays) out.push_back(array.data());
  return out;
}

Bytes run_on_copy(const Form& form, Isa isa, std::size_t n, Bytes arrays) {
  run(form, isa, arrays_at(form, n, pointers_to(arrays)));
  return arrays;
}

class UpdateLayoutTest : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isa, UpdateLayoutTest, all_isas(), isa_test_name);

TEST_P(UpdateLayoutTest, GivesTheBitsOfTheScalarKernelsForAnyInput) {
  constexpr std::size_t kCount = testing::fewer_if_sanitized(1U << 20, 16);
  const std::vector<Form> forms = all_forms();
  // Every kernel once, with the copies in turn: all forms on a million elements take half a minute.
  constexpr std::size_t kOutCount = std::size(kOuts);
  for (std::size_t k = 0; k * kOutCount < forms.size(); ++k) {
    const Form& form = forms[k * kOutCount + k % kOutCount];
    const std::vector<Plane> arrays = planes(form);
    const Bytes old = random_arrays(form, kCount);
    const Bytes want = run_on_copy(form, Isa::kScalar, kCount, old);
    const Bytes got = run_on_copy(form, GetParam(), kCount, old);
    for (std::size_t a = 0; a < want.size(); ++a) {
      EXPECT_EQ(std::memcmp(got[a].data(), want[a].data(), want[a].size()), 0)
          << form.name() << ", array " << a;
      // The comparison means something only if the kernel wrote, and only where it may.
      EXPECT_EQ(want[a] != old[a], arrays[a].written) << form.name() << ", array " << a;
    }
  }
}

/// Arrays whose last elements touch an unreadable page, for any length up to a limit.
class GuardedArrays {
 public:
  GuardedArrays(const Form& form, std::size_t limit) : planes_(planes(form)) {
    for (const Plane& plane : planes_) {
      buffers_.push_back(std::make_unique<GuardedBuffer>(kFront + limit * plane.element_bytes));
    }
  }
  [[nodiscard]] bool ready() const {
    for (const auto& buffer : buffers_) {
      if (buffer->data() == nullptr) return false;
    }
    return true;
  }
  Pointers place(const Bytes& from, std::size_t n) {
    Pointers out;
    for (std::size_t a = 0; a < planes_.size(); ++a) {
      const std::size_t bytes = n * planes_[a].element_bytes;
      out.push_back(buffers_[a]->data() + buffers_[a]->bytes() - bytes);
      std::memset(out[a] - kFront, 0x5a, kFront);
      if (n != 0) std::memcpy(out[a], from[a].data(), bytes);
    }
    return out;
  }
  /// The number of the first array that is not `want`, or with a byte changed in front of it.
  std::size_t first_wrong(const Pointers& at, const Bytes& want, std::size_t n) const {
    for (std::size_t a = 0; a < planes_.size(); ++a) {
      if (n != 0 && std::memcmp(at[a], want[a].data(), n * planes_[a].element_bytes) != 0) return a;
      for (std::size_t i = 1; i <= kFront; ++i) {
        if (at[a][-static_cast<std::ptrdiff_t>(i)] != std::byte{0x5a}) return a;
      }
    }
    return planes_.size();
  }

 private:
  static constexpr std::size_t kFront = 64;
  std::vector<Plane> planes_;
  std::vector<std::unique_ptr<GuardedBuffer>> buffers_;
};

// Ends lie at the guard page, so starts lie at every offset that their elements allow.
TEST_P(UpdateLayoutTest, TakesEveryLengthAtAnyOffsetAndStaysWithinIt) {
  constexpr std::size_t kLongest = 4097;
  constexpr std::size_t kShares = testing::kSanitized ? 48 : 12;
  std::size_t which = 0;
  for (const Form& form : all_forms()) {
    GuardedArrays guarded(form, kLongest);
    ASSERT_TRUE(guarded.ready());
    const Bytes old = random_arrays(form, kLongest);
    const Bytes want = run_on_copy(form, Isa::kScalar, kLongest, old);
    // Short lengths for every form; of the long ones every form takes its share.
    const std::size_t share = which++ % kShares;
    for (std::size_t n = 0; n <= kLongest; ++n) {
      if (n > 130 && n % kShares != share && n < 4090) continue;
      const Pointers at = guarded.place(old, n);
      run(form, GetParam(), arrays_at(form, n, at));
      ASSERT_EQ(guarded.first_wrong(at, want, n), want.size()) << form.name() << ", n " << n;
    }
  }
}

TEST_P(UpdateLayoutTest, GivesTheSameBitsWhereverTheArraysAreCut) {
  constexpr std::size_t kCount = 100;
  for (const Form& form : all_forms()) {
    const Bytes old = random_arrays(form, kCount);
    const Bytes want = run_on_copy(form, GetParam(), kCount, old);
    for (std::size_t cut = 0; cut <= kCount; ++cut) {
      Bytes got = old;
      const UpdateArrays whole = arrays_at(form, kCount, pointers_to(got));
      run(form, GetParam(), whole.part(cut, kCount - cut));
      run(form, GetParam(), whole.part(0, cut));
      ASSERT_EQ(got, want) << form.name() << ", cut at " << cut;
    }
  }
}

TEST_P(UpdateLayoutTest, NeitherUsesNorChangesTheCallersFloatMode) {
  constexpr std::size_t kCount = 1027;
  for (const Form& form : all_forms()) {
    const Bytes old = random_arrays(form, kCount);
    const Bytes want = run_on_copy(form, GetParam(), kCount, old);
    for (const unsigned mode : kFloatModes) {
      Bytes got = old;
      const UpdateArrays arrays = arrays_at(form, kCount, pointers_to(got));
      const UpdateScalars scalars = scalars_of(form);
      const UpdateKernel kernel =
          update_kernel(GetParam(), form.rule, form.gradient, form.master(), form.state);
      unsigned after;
      {
        const Mxcsr caller(mode);
        kernel(scalars, arrays);
        after = _mm_getcsr();
      }
      EXPECT_EQ(after, mode) << form.name();
      EXPECT_EQ(got, want) << form.name() << " in mode " << mode;
    }
  }
}

}  // namespace
}  // namespace penstock::test
