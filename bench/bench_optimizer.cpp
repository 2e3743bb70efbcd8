// AdamW on the split master against a loop that moves the same bytes and computes nothing (26
// B/element: reads hi, lo, m, v and the gradient, writes all but the gradient). The step is
// bandwidth bound, so that loop is the honest roof, not a STREAM figure.
//
// How to read it: ratio_to_traffic near 1 is as fast as memory allows. Both loops run alternately
// within one benchmark, so that a change of the machine's pace meets both. Samples in which the
// thread was interrupted are dropped; `kept` counts the others. Windows of 6.8 MB, walked over 327
// MB, on huge pages where the system grants them; one thread.

#include <benchmark/benchmark.h>
#include <immintrin.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "kernels/cpu/update.hpp"
#include "measure/statistics.hpp"

namespace {

using penstock::Isa;

constexpr std::size_t kWindow = std::size_t{1} << 18;  // elements a sample covers: 6.8 MB
constexpr std::size_t kWindows = 48;                   // walked in turn, so a sample starts cold
constexpr std::size_t kCount = kWindow * kWindows;

/// Zeroed memory on 2 MiB pages where the system grants them.
template <class T>
class HugeArray {
 public:
  explicit HugeArray(std::size_t count) : bytes_(count * sizeof(T)) {
    void* p =
        mmap(nullptr, bytes_ + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return;
    base_ = p;
    const auto address = reinterpret_cast<std::uintptr_t>(p);
    data_ = reinterpret_cast<T*>((address + kPage - 1) / kPage * kPage);
    madvise(data_, bytes_, MADV_HUGEPAGE);  // advice: plain pages do as well
    std::memset(data_, 0, bytes_);
  }
  ~HugeArray() {
    if (base_ != nullptr) munmap(base_, bytes_ + kPage);
  }
  HugeArray(const HugeArray&) = delete;
  HugeArray& operator=(const HugeArray&) = delete;
  [[nodiscard]] T* data() const { return data_; }

 private:
  static constexpr std::size_t kPage = std::size_t{2} << 20;
  std::size_t bytes_;
  void* base_ = nullptr;
  T* data_ = nullptr;
};

struct Arrays {
  HugeArray<std::uint16_t> hi{kCount}, lo{kCount}, gradient{kCount};
  HugeArray<float> m{kCount}, v{kCount};
  [[nodiscard]] bool ok() const {
    return hi.data() != nullptr && lo.data() != nullptr && gradient.data() != nullptr &&
           m.data() != nullptr && v.data() != nullptr;
  }
};

/// The same streams with one integer operation each. Baseline vectors suffice: out of memory,
/// wider ones are no faster.
[[gnu::noinline]] void move_same_bytes(std::size_t n, std::uint16_t* __restrict hi,
                                       std::uint16_t* __restrict lo, float* __restrict m,
                                       float* __restrict v,
                                       const std::uint16_t* __restrict gradient) {
  const auto at = [](auto* p) { return reinterpret_cast<__m128i*>(p); };
  for (std::size_t i = 0; i < n; i += 8) {
    const __m128i g = _mm_loadu_si128(reinterpret_cast<const __m128i*>(gradient + i));
    _mm_storeu_si128(at(hi + i), _mm_xor_si128(_mm_loadu_si128(at(hi + i)), g));
    _mm_storeu_si128(at(lo + i), _mm_xor_si128(_mm_loadu_si128(at(lo + i)), g));
    for (std::size_t j = i; j < i + 8; j += 4) {
      _mm_storeu_si128(at(m + j), _mm_xor_si128(_mm_loadu_si128(at(m + j)), g));
      _mm_storeu_si128(at(v + j), _mm_xor_si128(_mm_loadu_si128(at(v + j)), g));
    }
  }
}

struct Sample {
  double wall_s, cpu_s;
  /// Whether the thread had the processor all the time.
  [[nodiscard]] bool undisturbed() const { return wall_s <= 1.02 * cpu_s; }
};

double seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <class Run>
Sample take_sample(Run run) {
  const double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_THREAD_CPUTIME_ID);
  run();
  const double cpu_end = seconds(CLOCK_THREAD_CPUTIME_ID);
  return {seconds(CLOCK_MONOTONIC) - wall, cpu_end - cpu};
}

void adamw_split(benchmark::State& state, Isa isa) {
  if (!penstock::isa_supported(isa)) {
    state.SkipWithError("this machine lacks the instruction set");
    return;
  }
  const Arrays arrays;
  if (!arrays.ok()) {
    state.SkipWithError("not enough memory");
    return;
  }
  const penstock::UpdateRule rule{.weight_decay = 0.1};
  const auto kernel =
      penstock::update_kernel(isa, rule, penstock::DType::kBf16, penstock::Master::kSplit);
  const auto scalars = penstock::update_scalars(rule, 10, 1.0);
  std::vector<double> step_s, traffic_s;
  std::size_t window = 0;
  for (auto _ : state) {
    const auto next_window = [&] { return (window = (window + 1) % kWindows) * kWindow; };
    // The gradient stays zero, so xor leaves the state what it was.
    const Sample traffic = take_sample([&, i = next_window()] {
      move_same_bytes(kWindow, arrays.hi.data() + i, arrays.lo.data() + i, arrays.m.data() + i,
                      arrays.v.data() + i, arrays.gradient.data() + i);
    });
    const Sample step = take_sample([&, i = next_window()] {
      penstock::UpdateArrays at;
      at.n = kWindow;
      at.hi = arrays.hi.data() + i;
      at.lo = arrays.lo.data() + i;
      at.m = arrays.m.data() + i;
      at.v = arrays.v.data() + i;
      at.gradient = arrays.gradient.data() + i;
      kernel(scalars, at);
    });
    state.SetIterationTime(step.wall_s);
    if (!traffic.undisturbed() || !step.undisturbed()) continue;
    traffic_s.push_back(traffic.wall_s);
    step_s.push_back(step.wall_s);
  }
  if (step_s.empty()) {
    state.SkipWithError("every sample was interrupted; run on a quieter machine");
    return;
  }
  const double step = penstock::median(step_s);
  const double elements = static_cast<double>(kWindow);
  state.counters["ratio_to_traffic"] = penstock::median(traffic_s) / step;
  state.counters["Mparam/s"] = elements / step * 1e-6;
  state.counters["GB/s"] = elements * 26.0 / step * 1e-9;
  state.counters["kept"] = static_cast<double>(step_s.size());
}

BENCHMARK_CAPTURE(adamw_split, scalar, Isa::kScalar)->UseManualTime()->Iterations(25);
BENCHMARK_CAPTURE(adamw_split, avx2, Isa::kAvx2)->UseManualTime()->Iterations(401);
BENCHMARK_CAPTURE(adamw_split, avx512, Isa::kAvx512)->UseManualTime()->Iterations(401);

}  // namespace

BENCHMARK_MAIN();
