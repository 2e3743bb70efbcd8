#pragma once

/// Matrix products, C = A * B or C += A * B: the only room that knows oneDNN.
///
/// A and B are bf16 or fp32, C and every sum are fp32. Rows may be strided, so a head of a wider
///   array is an operand as it lies; transposes are strides too.
/// Memory:  one primitive per shape, made by prepare(); running allocates nothing of ours. The
///   scratch is the caller's: scratchpad_bytes() is what every prepared shape and lane needs.
/// Numbers: one shape gives the same bits for every repeat, offset and thread count on one
///   instruction set: whatever is shared out is cut by the shape alone. The set is pinned for the
///   whole process before the first product; isa() reports it. Products run in the default
///   floating-point mode, so that every thread treats denormals alike.
/// Lanes:   a lane is the room that one running product needs; there are lanes() of them. run()
///   takes them all and belongs to one thread at a time. run_on() multiplies in the calling thread;
///   calls on different lanes may overlap, so that many small products share out the threads.
/// Threads: the executor's for products cut into tiles, OpenMP's (Debian builds oneDNN on libgomp)
///   for those that oneDNN shares out itself (AVX-512). Programs should start with
///   OMP_WAIT_POLICY=passive: libgomp reads it once when loaded, and by default spins on cores that
///   other threads need.
/// Errors:  kUnsupported when oneDNN has no such product here, kArgument for a bad shape or name.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/executor.hpp"
#include "base/result.hpp"

namespace penstock {

enum class MatmulType : std::uint8_t { kF32, kBf16 };  ///< of A and B

[[nodiscard]] constexpr std::size_t size_bytes(MatmulType type) noexcept {
  return type == MatmulType::kBf16 ? 2 : 4;
}

/// C is [m, n], A is [m, k] (stored [k, m] when transpose_a), B is [k, n] (stored [n, k] when
/// transpose_b); row_* are elements from one stored row to the next.
struct MatmulShape {
  MatmulType type = MatmulType::kF32;
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t row_a = 0, row_b = 0, row_c = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;  ///< C += instead of C =
  bool one_thread = false;  ///< for run_on()
  auto operator<=>(const MatmulShape&) const = default;
};

using MatmulId = std::uint32_t;

struct MatmulOptions {
  int threads = 1;
  /// "auto" (the best of this machine that DNNL_MAX_CPU_ISA allows), "avx2", "avx512" (fp32 only)
  /// or "avx512_bf16".
  std::string isa = "auto";
};

/// One product as it was run: enough to run it again on the same buffers.
struct MatmulCall {
  MatmulId product = 0;
  const void* a = nullptr;
  const void* b = nullptr;
  float* c = nullptr;
  int lane = -1;  ///< of run_on()
};

class Matmul {
 public:
  /// Pins the instruction set; kState when the process has already pinned another one.
  /// `executor` must outlive it.
  static Result<std::unique_ptr<Matmul>> create(const MatmulOptions& options, Executor& executor);
  ~Matmul();
  Matmul(const Matmul&) = delete;  // primitives refer to memory objects inside
  Matmul& operator=(const Matmul&) = delete;

  /// The product of that shape, made on the first call.
  Result<MatmulId> prepare(const MatmulShape& shape);
  [[nodiscard]] std::size_t scratchpad_bytes() const;
  /// [scratchpad_bytes()], aligned to 64; stays the caller's.
  void use_scratchpad(void* memory);

  /// Whether the pinned set multiplies bf16 itself (AVX512_BF16); elsewhere widen to fp32 first:
  /// oneDNN's own conversion is several times slower, or missing.
  [[nodiscard]] bool multiplies_bf16() const;

  [[nodiscard]] int lanes() const;

  Status run(MatmulId product, const void* a, const void* b, float* c);
  /// lane: below lanes(), used by no other call meanwhile. The shape says one_thread.
  Status run_on(int lane, MatmulId product, const void* a, const void* b, float* c);

  /// Appends every product run from now on to `calls` (null: no longer), for benchmarks that set a
  /// step against its own products.
  void record(std::vector<MatmulCall>* calls);

  [[nodiscard]] std::string isa() const;                             ///< in oneDNN's words
  [[nodiscard]] std::string implementation(MatmulId product) const;  ///< in oneDNN's words
  [[nodiscard]] std::size_t shape_count() const;
  [[nodiscard]] std::uint64_t executed() const;  ///< primitives executed since create()

 private:
  struct Parts;
  explicit Matmul(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace penstock
