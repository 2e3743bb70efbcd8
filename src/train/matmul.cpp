#include "train/matmul.hpp"

#include <xmmintrin.h>

#include <algorithm>
#include <array>
#include <deque>
#include <exception>
#include <map>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.hpp>

// The one call we need of OpenMP's runtime; omp.h of a compiler may belong to another runtime.
extern "C" void omp_set_num_threads(int);  // NOLINT

namespace penstock {
namespace {

constexpr unsigned kDefaultMxcsr = 0x1f80;  // exceptions masked, nearest even, denormals kept

/// Products need one floating-point mode on every thread; workers inherit it when they are made.
class DefaultFloatMode {
 public:
  DefaultFloatMode() noexcept : saved_(_mm_getcsr()) { _mm_setcsr(kDefaultMxcsr); }
  ~DefaultFloatMode() { _mm_setcsr(saved_); }
  DefaultFloatMode(const DefaultFloatMode&) = delete;
  DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;

 private:
  unsigned saved_;
};

std::optional<dnnl::cpu_isa> isa_named(const std::string& name) {
  if (name == "auto") return dnnl::cpu_isa::all;
  if (name == "avx2") return dnnl::cpu_isa::avx2;
  if (name == "avx512") return dnnl::cpu_isa::avx512_core;
  if (name == "avx512_bf16") return dnnl::cpu_isa::avx512_core_bf16;
  return std::nullopt;
}

std::string name_of(dnnl::cpu_isa isa) {
  switch (isa) {
    case dnnl::cpu_isa::sse41:
      return "sse41";
    case dnnl::cpu_isa::avx:
      return "avx";
    case dnnl::cpu_isa::avx2:
      return "avx2";
    case dnnl::cpu_isa::avx2_vnni:
      return "avx2_vnni";
    case dnnl::cpu_isa::avx512_core:
      return "avx512_core";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "avx512_core_vnni";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "avx512_core_bf16";
    case dnnl::cpu_isa::avx512_core_amx:
      return "avx512_core_amx";
    default:
      return fmt::format("isa {:#x}", static_cast<unsigned>(isa));
  }
}

std::string describe(const MatmulShape& shape) {
  return fmt::format("product [{}, {}] x [{}, {}] of {}", shape.m, shape.k, shape.k, shape.n,
                     shape.type == MatmulType::kBf16 ? "bf16" : "f32");
}

Status check(const MatmulShape& shape) {
  const bool positive = shape.m > 0 && shape.n > 0 && shape.k > 0;
  const bool rows_fit = shape.row_a >= (shape.transpose_a ? shape.m : shape.k) &&
                        shape.row_b >= (shape.transpose_b ? shape.k : shape.n) &&
                        shape.row_c >= shape.n;
  if (positive && rows_fit) return ok();
  return make_error(Errc::kArgument, describe(shape) +
                                         ": a size is not positive or a row stride "
                                         "is shorter than its row; fix the caller");
}

dnnl::memory::desc matrix(std::int64_t rows, std::int64_t columns, std::int64_t row,
                          bool transposed, dnnl::memory::data_type type) {
  using Dims = dnnl::memory::dims;
  return {Dims{rows, columns}, type, transposed ? Dims{1, row} : Dims{row, 1}};
}

/// A primitive and the memory objects of its arguments; only their addresses change.
struct Primitive {
  MatmulShape shape;
  std::string implementation;
  std::size_t scratchpad_bytes = 0;
  int threads = 1;
  dnnl::matmul primitive;
  dnnl::memory a, b, c, scratchpad;
};

// Where oneDNN 2.6.3 shares out one sum over threads, the bits depend on their number. Measured
// over 3072 shapes with 1 to 32 threads: its "brg:" implementations (AVX-512) do it only for a
// transposed A, k >= 2048 and few columns; we cut such sums into slices ourselves. Its other
// implementations
// ("gemm:", below AVX-512) do it for many shapes, so they run on one thread.
constexpr std::int64_t kSharedSum = 2048;
constexpr std::int64_t kSlice = 1024;

/// One slice of a sum: a primitive over some of k, starting at these elements of A and B.
struct Slice {
  std::size_t primitive = 0;
  std::int64_t a_offset = 0, b_offset = 0;
};

struct Product {
  MatmulShape shape;
  std::vector<Slice> slices;
};

}  // namespace

struct Matmul::Parts {
  int threads = 1;
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<MatmulShape, MatmulId> ids;
  std::map<MatmulShape, std::size_t> primitive_ids;
  std::deque<Product> products;
  std::deque<Primitive> primitives;
  void* scratchpad = nullptr;
  std::uint64_t executed = 0;

  Primitive make(const MatmulShape& shape);
  std::size_t primitive_for(const MatmulShape& shape);
  Product cut(const MatmulShape& shape);
  Status run(Primitive& primitive, const void* a, const void* b, float* c);

  std::vector<MatmulCall>* recorder = nullptr;
};

std::size_t Matmul::Parts::primitive_for(const MatmulShape& shape) {
  if (const auto found = primitive_ids.find(shape); found != primitive_ids.end()) {
    return found->second;
  }
  primitives.push_back(make(shape));
  return primitive_ids.emplace(shape, primitives.size() - 1).first->second;
}

Product Matmul::Parts::cut(const MatmulShape& shape) {
  Product product{shape, {}};
  const std::int64_t most = shape.transpose_a && shape.k >= kSharedSum ? kSlice : shape.k;
  for (std::int64_t first = 0; first < shape.k; first += most) {
    MatmulShape slice = shape;
    slice.k = std::min(most, shape.k - first);
    slice.accumulate = shape.accumulate || first > 0;
    product.slices.push_back({primitive_for(slice), shape.transpose_a ? first * shape.row_a : first,
                              shape.transpose_b ? first : first * shape.row_b});
  }
  return product;
}

Primitive Matmul::Parts::make(const MatmulShape& shape) {
  const auto type = shape.type == MatmulType::kBf16 ? dnnl::memory::data_type::bf16
                                                    : dnnl::memory::data_type::f32;
  const auto a = matrix(shape.m, shape.k, shape.row_a, shape.transpose_a, type);
  const auto b = matrix(shape.k, shape.n, shape.row_b, shape.transpose_b, type);
  const auto c = matrix(shape.m, shape.n, shape.row_c, false, dnnl::memory::data_type::f32);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (shape.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0F);
    attributes.set_post_ops(sum);
  }
  const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(a, b, c), attributes, engine);
  Primitive made;
  made.shape = shape;
  made.implementation = description.impl_info_str();
  made.threads = made.implementation.starts_with("brg") ? threads : 1;
  made.scratchpad_bytes = description.scratchpad_desc().get_size();
  made.primitive = dnnl::matmul(description);
  made.a = dnnl::memory(a, engine, nullptr);
  made.b = dnnl::memory(b, engine, nullptr);
  made.c = dnnl::memory(c, engine, nullptr);
  made.scratchpad = dnnl::memory(description.scratchpad_desc(), engine, nullptr);
  return made;
}

Matmul::Matmul(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Matmul::~Matmul() = default;

Result<std::unique_ptr<Matmul>> Matmul::create(const MatmulOptions& options) {
  if (options.threads < 1) {
    return make_error(Errc::kArgument, fmt::format("matrix products with {} threads: give at "
                                                   "least 1",
                                                   options.threads));
  }
  const auto isa = isa_named(options.isa);
  if (!isa) {
    return make_error(Errc::kArgument,
                      fmt::format("matrix instruction set \"{}\" is unknown: use auto, avx2, "
                                  "avx512 or avx512_bf16",
                                  options.isa));
  }
  try {
    // "auto" leaves the choice to oneDNN and its DNNL_MAX_CPU_ISA. Setting is refused once the
    // process has used oneDNN; then what is in force must be what is asked for.
    const bool chosen = *isa != dnnl::cpu_isa::all;
    const bool set = chosen && dnnl::set_max_cpu_isa(*isa) == dnnl::status::success;
    const auto effective = dnnl::get_effective_cpu_isa();
    if (chosen && !set && effective != *isa) {
      return make_error(Errc::kState,
                        fmt::format("matrix instruction set \"{}\" cannot be pinned: this process "
                                    "already multiplies with {}; pin before the first product",
                                    options.isa, name_of(effective)));
    }
    const DefaultFloatMode mode;
    omp_set_num_threads(options.threads);
    auto parts = std::make_unique<Parts>();
    parts->threads = options.threads;
    return std::unique_ptr<Matmul>(new Matmul(std::move(parts)));
  } catch (const std::exception& failure) {
    return make_error(Errc::kUnsupported,
                      fmt::format("start oneDNN: {}; check the package libdnnl2", failure.what()));
  }
}

Result<MatmulId> Matmul::prepare(const MatmulShape& shape) {
  PENSTOCK_CHECK_OK(check(shape));
  const DefaultFloatMode mode;
  try {
    if (const auto found = parts_->ids.find(shape); found != parts_->ids.end()) {
      return found->second;
    }
    omp_set_num_threads(parts_->threads);
    const auto id = static_cast<MatmulId>(parts_->products.size());
    parts_->products.push_back(parts_->cut(shape));
    parts_->ids.emplace(shape, id);
    return id;
  } catch (const dnnl::error& failure) {
    return make_error(Errc::kUnsupported,
                      fmt::format("{}: oneDNN on {} refuses it ({}); try --compute fp32",
                                  describe(shape), isa(), failure.what()));
  } catch (const std::bad_alloc&) {
    return make_error(Errc::kNoMemory, describe(shape) + ": out of memory making it; free some");
  }
}

std::size_t Matmul::scratchpad_bytes() const {
  std::size_t largest = 0;
  for (const Primitive& primitive : parts_->primitives) {
    largest = std::max(largest, primitive.scratchpad_bytes);
  }
  return largest;
}

void Matmul::use_scratchpad(void* memory) {
  parts_->scratchpad = memory;
}

Status Matmul::run(MatmulId product, const void* a, const void* b, float* c) {
  if (parts_->recorder != nullptr) parts_->recorder->push_back({product, a, b, c});
  const Product& whole = parts_->products[product];
  const auto bytes = static_cast<std::int64_t>(size_bytes(whole.shape.type));
  for (const Slice& slice : whole.slices) {
    PENSTOCK_CHECK_OK(parts_->run(parts_->primitives[slice.primitive],
                                  static_cast<const std::byte*>(a) + slice.a_offset * bytes,
                                  static_cast<const std::byte*>(b) + slice.b_offset * bytes, c));
  }
  return ok();
}

Status Matmul::Parts::run(Primitive& p, const void* a, const void* b, float* c) {
  const std::array<std::pair<dnnl_memory_t, void*>, 4> addresses = {{
      {p.a.get(), const_cast<void*>(a)},  // oneDNN has one kind of pointer; inputs are only read
      {p.b.get(), const_cast<void*>(b)},
      {p.c.get(), c},
      {p.scratchpad.get(), scratchpad},
  }};
  for (const auto& [memory, address] : addresses) {
    if (dnnl_memory_set_data_handle(memory, address) != dnnl_success) {
      return make_error(Errc::kInternal, describe(p.shape) + ": oneDNN refuses an argument");
    }
  }
  // The C call with an array: the C++ one builds a hash map, which allocates.
  const std::array<dnnl_exec_arg_t, 4> arguments = {{
      {DNNL_ARG_SRC, p.a.get()},
      {DNNL_ARG_WEIGHTS, p.b.get()},
      {DNNL_ARG_DST, p.c.get()},
      {DNNL_ARG_SCRATCHPAD, p.scratchpad.get()},
  }};
  const DefaultFloatMode mode;
  omp_set_num_threads(p.threads);  // of this thread, which need not be the one that prepared
  const auto status = dnnl_primitive_execute(p.primitive.get(), stream.get(),
                                             static_cast<int>(arguments.size()), arguments.data());
  ++executed;
  if (status == dnnl_success) return ok();
  return make_error(Errc::kInternal, fmt::format("{}: oneDNN failed with status {}; run with "
                                                 "DNNL_VERBOSE=1 and report it",
                                                 describe(p.shape), static_cast<int>(status)));
}

void Matmul::record(std::vector<MatmulCall>* calls) {
  parts_->recorder = calls;
}

bool Matmul::multiplies_bf16() const {
  const auto isa = dnnl::get_effective_cpu_isa();
  return isa == dnnl::cpu_isa::avx512_core_bf16 || isa == dnnl::cpu_isa::avx512_core_amx;
}

std::string Matmul::isa() const {
  return name_of(dnnl::get_effective_cpu_isa());
}

std::string Matmul::implementation(MatmulId product) const {
  const Slice& first = parts_->products[product].slices.front();
  return parts_->primitives[first.primitive].implementation;
}

std::size_t Matmul::shape_count() const {
  return parts_->products.size();
}

std::uint64_t Matmul::executed() const {
  return parts_->executed;
}

}  // namespace penstock
