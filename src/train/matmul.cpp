// lint: long because only this file sees oneDNN, so it holds all that names its types

#include "train/matmul.hpp"

#include <xmmintrin.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.hpp>

#include "train/lanes.hpp"

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

/// The memory objects of one lane; only their addresses change.
struct Arguments {
  dnnl::memory a, b, c, scratchpad;
};

struct Primitive {
  MatmulShape shape;
  std::string implementation;
  std::size_t scratchpad_bytes = 0;  ///< of each lane
  int threads = 1;                   ///< OpenMP's
  dnnl::matmul primitive;
  std::vector<Arguments> lanes;
};

// Where oneDNN 2.6.3 shares out one sum over threads, the bits depend on their number. Measured
// over 3072 shapes with 1 to 32 threads: its "brg:" implementations (AVX-512) do it only for a
// transposed A, k >= 2048 and few columns; we cut such sums into slices ourselves. Its other
// implementations ("gemm:": below AVX-512, or a strided C) do it for many shapes, and use one
// thread for others; we cut their C into tiles, each on one thread.
constexpr std::int64_t kSharedSum = 2048;
constexpr std::int64_t kSlice = 1024;
constexpr std::int64_t kTileRows = 256, kTileColumns = 256;

/// One slice of a sum or one tile of C, starting at these elements of A, B and C.
struct Piece {
  std::size_t primitive = 0;
  std::int64_t a_offset = 0, b_offset = 0, c_offset = 0;
};

struct Product {
  MatmulShape shape;
  std::vector<Piece> pieces;
  bool is_tiled = false;  ///< pieces are independent; else they add up, in order
};

/// See above; a property of the shape and the instruction set alone.
bool is_shared_by_onednn(const dnnl::matmul::primitive_desc& description) {
  return std::string_view(description.impl_info_str()).starts_with("brg");
}

/// Equal parts of at most `most`, whole vectors each: the length of all but the last.
std::int64_t even_part(std::int64_t length, std::int64_t most) {
  constexpr std::int64_t kWhole = 16;
  const std::int64_t parts = (length + most - 1) / most;
  const std::int64_t even = (length + parts - 1) / parts;
  return std::min(length, (even + kWhole - 1) / kWhole * kWhole);
}

}  // namespace

struct Matmul::Parts {
  Parts(int thread_count, Executor& runner) : threads(thread_count), executor(runner) {}

  int threads;  ///< and lanes
  Executor& executor;
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<MatmulShape, MatmulId> ids;
  std::map<MatmulShape, std::size_t> primitive_ids;
  std::deque<Product> products;
  std::deque<Primitive> primitives;
  std::byte* scratchpad = nullptr;
  std::size_t lane_bytes = 0;  ///< of the scratchpad, for each lane
  std::atomic<std::uint64_t> executed = 0;

  dnnl::matmul::primitive_desc description_of(const MatmulShape& shape);
  Primitive make(const MatmulShape& shape);
  std::size_t primitive_for(const MatmulShape& shape);
  Product cut(const MatmulShape& shape);
  void cut_sum(Product& product);
  void cut_tiles(Product& product);
  [[nodiscard]] std::size_t largest_lane_bytes() const;
  Status run(const Product& product, const Piece& piece, int lane, const MatmulCall& call);
  Status execute(Primitive& p, int lane, const void* a, const void* b, float* c);
  void note(const MatmulCall& call);

  std::mutex recorder_mutex;
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
  Product product{shape, {}, false};
  if (shape.one_thread) {
    product.pieces.push_back({primitive_for(shape)});
  } else if (is_shared_by_onednn(description_of(shape))) {
    cut_sum(product);
  } else {
    cut_tiles(product);
  }
  return product;
}

void Matmul::Parts::cut_sum(Product& product) {
  const MatmulShape& shape = product.shape;
  const std::int64_t most = shape.transpose_a && shape.k >= kSharedSum ? kSlice : shape.k;
  for (std::int64_t first = 0; first < shape.k; first += most) {
    MatmulShape slice = shape;
    slice.k = std::min(most, shape.k - first);
    slice.accumulate = shape.accumulate || first > 0;
    product.pieces.push_back({primitive_for(slice), shape.transpose_a ? first * shape.row_a : first,
                              shape.transpose_b ? first : first * shape.row_b});
  }
}

void Matmul::Parts::cut_tiles(Product& product) {
  const MatmulShape& shape = product.shape;
  const std::int64_t rows = even_part(shape.m, kTileRows);
  const std::int64_t columns = even_part(shape.n, kTileColumns);
  product.is_tiled = true;
  for (std::int64_t i = 0; i < shape.m; i += rows) {
    for (std::int64_t j = 0; j < shape.n; j += columns) {
      MatmulShape tile = shape;
      tile.m = std::min(rows, shape.m - i);
      tile.n = std::min(columns, shape.n - j);
      tile.one_thread = true;
      product.pieces.push_back({primitive_for(tile), shape.transpose_a ? i : i * shape.row_a,
                                shape.transpose_b ? j * shape.row_b : j, i * shape.row_c + j});
    }
  }
}

dnnl::matmul::primitive_desc Matmul::Parts::description_of(const MatmulShape& shape) {
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
  omp_set_num_threads(shape.one_thread ? 1 : threads);  // a primitive remembers its threads
  return {dnnl::matmul::desc(a, b, c), attributes, engine};
}

Primitive Matmul::Parts::make(const MatmulShape& shape) {
  const auto description = description_of(shape);
  Primitive made;
  made.shape = shape;
  made.implementation = description.impl_info_str();
  made.threads = !shape.one_thread && is_shared_by_onednn(description) ? threads : 1;
  made.scratchpad_bytes = (description.scratchpad_desc().get_size() + 63) / 64 * 64;
  made.primitive = dnnl::matmul(description);
  made.lanes.resize(static_cast<std::size_t>(shape.one_thread ? threads : 1));
  for (Arguments& lane : made.lanes) {
    lane.a = dnnl::memory(description.src_desc(), engine, nullptr);
    lane.b = dnnl::memory(description.weights_desc(), engine, nullptr);
    lane.c = dnnl::memory(description.dst_desc(), engine, nullptr);
    lane.scratchpad = dnnl::memory(description.scratchpad_desc(), engine, nullptr);
  }
  return made;
}

Matmul::Matmul(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Matmul::~Matmul() = default;

Result<std::unique_ptr<Matmul>> Matmul::create(const MatmulOptions& options, Executor& executor) {
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
    return std::unique_ptr<Matmul>(new Matmul(std::make_unique<Parts>(options.threads, executor)));
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

std::size_t Matmul::Parts::largest_lane_bytes() const {
  std::size_t largest = 0;
  for (const Primitive& primitive : primitives) {
    if (primitive.shape.one_thread) largest = std::max(largest, primitive.scratchpad_bytes);
  }
  return largest;
}

std::size_t Matmul::scratchpad_bytes() const {
  std::size_t largest = parts_->largest_lane_bytes() * static_cast<std::size_t>(parts_->threads);
  for (const Primitive& primitive : parts_->primitives) {
    largest = std::max(largest, primitive.scratchpad_bytes);
  }
  return largest;
}

void Matmul::use_scratchpad(void* memory) {
  parts_->scratchpad = static_cast<std::byte*>(memory);
  parts_->lane_bytes = parts_->largest_lane_bytes();
}

int Matmul::lanes() const {
  return parts_->threads;
}

void Matmul::Parts::note(const MatmulCall& call) {
  if (recorder == nullptr) return;
  const std::lock_guard lock(recorder_mutex);
  recorder->push_back(call);
}

Status Matmul::run(MatmulId product, const void* a, const void* b, float* c) {
  const MatmulCall call{product, a, b, c};
  parts_->note(call);
  const Product& whole = parts_->products[product];
  if (whole.is_tiled) {
    return for_lanes(
        parts_->executor, parts_->threads, static_cast<std::int64_t>(whole.pieces.size()),
        [&](int lane, std::int64_t piece) {
          return parts_->run(whole, whole.pieces[static_cast<std::size_t>(piece)], lane, call);
        });
  }
  for (const Piece& piece : whole.pieces) {
    PENSTOCK_CHECK_OK(parts_->run(whole, piece, 0, call));
  }
  return ok();
}

Status Matmul::run_on(int lane, MatmulId product, const void* a, const void* b, float* c) {
  const MatmulCall call{product, a, b, c, lane};
  parts_->note(call);
  const Product& whole = parts_->products[product];
  return parts_->run(whole, whole.pieces.front(), lane, call);
}

Status Matmul::Parts::run(const Product& product, const Piece& piece, int lane,
                          const MatmulCall& call) {
  const auto bytes = static_cast<std::int64_t>(size_bytes(product.shape.type));
  return execute(primitives[piece.primitive], lane,
                 static_cast<const std::byte*>(call.a) + piece.a_offset * bytes,
                 static_cast<const std::byte*>(call.b) + piece.b_offset * bytes,
                 call.c + piece.c_offset);
}

Status Matmul::Parts::execute(Primitive& p, int lane, const void* a, const void* b, float* c) {
  const auto index = static_cast<std::size_t>(lane);
  Arguments& own = p.lanes[index];
  std::byte* const scratch =
      p.shape.one_thread && scratchpad != nullptr ? scratchpad + index * lane_bytes : scratchpad;
  const std::array<std::pair<dnnl_memory_t, void*>, 4> addresses = {{
      {own.a.get(), const_cast<void*>(a)},  // oneDNN has one kind of pointer; inputs are only read
      {own.b.get(), const_cast<void*>(b)},
      {own.c.get(), c},
      {own.scratchpad.get(), scratch},
  }};
  for (const auto& [memory, address] : addresses) {
    if (dnnl_memory_set_data_handle(memory, address) != dnnl_success) {
      return make_error(Errc::kInternal, describe(p.shape) + ": oneDNN refuses an argument");
    }
  }
  // The C call with an array: the C++ one builds a hash map, which allocates.
  const std::array<dnnl_exec_arg_t, 4> arguments = {{
      {DNNL_ARG_SRC, own.a.get()},
      {DNNL_ARG_WEIGHTS, own.b.get()},
      {DNNL_ARG_DST, own.c.get()},
      {DNNL_ARG_SCRATCHPAD, own.scratchpad.get()},
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
  const Piece& first = parts_->products[product].pieces.front();
  return parts_->primitives[first.primitive].implementation;
}

std::size_t Matmul::shape_count() const {
  return parts_->products.size();
}

std::uint64_t Matmul::executed() const {
  return parts_->executed;
}

}  // namespace penstock
