// Exported: level 0, the fused optimizer step on the caller's arrays.

#include <algorithm>
#include <array>

#include "base/executor.hpp"
#include "capi/hyper.hpp"
#include "capi/registry.hpp"
#include "capi/versioned.hpp"

namespace capi = penstock::capi;
using penstock::ok;
using penstock::Result;
using penstock::Status;

namespace penstock::capi {
namespace {

constexpr std::uint32_t kMostThreads = 4096;
constexpr std::uint64_t kMostElements = std::uint64_t{1} << 48;
constexpr std::size_t kTaskElements = 65536;

struct Pool final : Object {
  static constexpr HandleKind kKind = HandleKind::kPool;
  std::unique_ptr<Executor> executor;
};

struct Arrays {
  std::uint64_t n = 0;
  float *p = nullptr, *m = nullptr, *v = nullptr;
  const void* gradient = nullptr;
  penstock_dtype gradient_dtype = PENSTOCK_DTYPE_NONE;
  std::uint16_t* out = nullptr;
  penstock_dtype out_dtype = PENSTOCK_DTYPE_NONE;
};

Status check_types(const Arrays& arrays) {
  if (arrays.gradient_dtype != PENSTOCK_F32 && arrays.gradient_dtype != PENSTOCK_F16 &&
      arrays.gradient_dtype != PENSTOCK_BF16) {
    return argument(
        fmt::format("grad_dtype is {}; it is PENSTOCK_F32, PENSTOCK_F16 or "
                    "PENSTOCK_BF16",
                    arrays.gradient_dtype));
  }
  const bool is_half = arrays.out_dtype == PENSTOCK_F16 || arrays.out_dtype == PENSTOCK_BF16;
  if (!is_half && arrays.out_dtype != PENSTOCK_DTYPE_NONE) {
    return argument(
        fmt::format("out_dtype is {}; it is PENSTOCK_F16, PENSTOCK_BF16 or "
                    "PENSTOCK_DTYPE_NONE",
                    arrays.out_dtype));
  }
  if (arrays.n > 0 && is_half != (arrays.out != nullptr)) {
    return argument("out and out_dtype come together or not at all");
  }
  return ok();
}

/// Non-null, aligned to their elements, and apart.
Status check_arrays(const Arrays& arrays) {
  struct Extent {
    const char* name;
    std::uintptr_t begin;
    std::uint64_t element;
  };
  const auto address = [](const void* at) { return reinterpret_cast<std::uintptr_t>(at); };
  const std::array<Extent, 5> all = {
      {{"p", address(arrays.p), 4},
       {"m", address(arrays.m), 4},
       {"v", address(arrays.v), 4},
       {"grad", address(arrays.gradient), arrays.gradient_dtype == PENSTOCK_F32 ? 4U : 2U},
       {"out", address(arrays.out), 2}}};
  const std::size_t count = arrays.out != nullptr ? 5 : 4;
  for (std::size_t i = 0; i < count; ++i) {
    if (all[i].begin == 0) return argument(fmt::format("{} is NULL", all[i].name));
    if (all[i].begin % all[i].element != 0) {
      return argument(fmt::format("{} is not aligned to its elements", all[i].name));
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (all[i].begin < all[j].begin + arrays.n * all[j].element &&
          all[j].begin < all[i].begin + arrays.n * all[i].element) {
        return argument(fmt::format("{} and {} overlap", all[j].name, all[i].name));
      }
    }
  }
  return ok();
}

DType dtype(penstock_dtype type) {
  if (type == PENSTOCK_F32) return DType::kF32;
  return type == PENSTOCK_F16 ? DType::kF16 : DType::kBf16;
}

Status optimizer_step(const penstock_optimizer_args* args, const Arrays& arrays,
                      penstock_pool* handle) {
  if (in_callback()) return wrong_state("called inside a callback");
  PENSTOCK_TAKE(given, read_struct(args));
  if (given.kind != PENSTOCK_ADAMW) {
    return argument(fmt::format("kind is {}; this version has PENSTOCK_ADAMW", given.kind));
  }
  if (given.t == 0) return argument("t is 0; the first update has number 1");
  const AdamW hyper{given.lr, given.beta1, given.beta2, given.eps, given.weight_decay};
  PENSTOCK_CHECK_OK(check_hyper(hyper));
  PENSTOCK_CHECK_OK(check_factor("gradient_factor", given.gradient_factor));
  PENSTOCK_CHECK_OK(check_types(arrays));
  if (arrays.n > kMostElements) return argument(fmt::format("n is {}; at most 2^48", arrays.n));
  std::shared_ptr<Pool> pool;  // shared with the table, while this call runs
  if (handle != nullptr) {
    PENSTOCK_TAKE(found, find<Pool>(handle));
    pool = std::move(found);
  }
  PENSTOCK_TAKE(isa, choose_isa());
  if (arrays.n == 0) return ok();
  PENSTOCK_CHECK_OK(check_arrays(arrays));
  const UpdateRule rule = update_rule(hyper);
  const UpdateScalars scalars = update_scalars(rule, given.t, given.gradient_factor);
  UpdateArrays all;
  all.n = arrays.n;
  all.p = arrays.p;
  all.m = arrays.m;
  all.v = arrays.v;
  all.gradient = arrays.gradient;
  all.gradient_type = dtype(arrays.gradient_dtype);
  all.out = arrays.out;
  all.out_type = dtype(arrays.out_dtype);
  const UpdateKernel kernel = update_kernel(isa, rule, all.gradient_type, false);
  if (pool == nullptr) {
    kernel(scalars, all);
    return ok();
  }
  pool->executor->parallel_for((arrays.n + kTaskElements - 1) / kTaskElements, [&](std::size_t i) {
    const std::uint64_t first = i * kTaskElements;
    kernel(scalars, all.part(first, std::min<std::uint64_t>(kTaskElements, arrays.n - first)));
  });
  return ok();
}

}  // namespace
}  // namespace penstock::capi

extern "C" {

penstock_status penstock_pool_create(uint32_t threads, penstock_pool** out) {
  return capi::guarded([&]() -> Status {
    if (out == nullptr) return capi::argument("pool_create: the output is NULL");
    if (capi::in_callback()) return capi::wrong_state("pool_create: called inside a callback");
    if (threads < 1 || threads > capi::kMostThreads) {
      return capi::argument(
          fmt::format("pool_create: threads is {}; it is 1 to {}", threads, capi::kMostThreads));
    }
    auto pool = std::make_shared<capi::Pool>();
    pool->executor = penstock::make_tbb_executor(static_cast<int>(threads));
    if (pool->executor == nullptr) {
      return penstock::make_error(penstock::Errc::kNoMemory,
                                  "pool_create: the system refuses another thread");
    }
    const std::uint64_t handle = capi::new_handle(capi::Pool::kKind);
    capi::publish(handle, std::move(pool));
    *out = capi::as_pointer<penstock_pool>(handle);
    return ok();
  });
}

penstock_status penstock_pool_destroy(penstock_pool* pool) {
  return capi::guarded([&]() -> Status {
    if (pool == nullptr) return ok();
    PENSTOCK_TRY(object, capi::take_object(pool, capi::Pool::kKind), "pool_destroy");
    object.reset();
    return ok();
  });
}

penstock_status penstock_cpu_optimizer_step(const penstock_optimizer_args* args, uint64_t n,
                                            float* p, float* m, float* v, const void* grad,
                                            penstock_dtype grad_dtype, void* out,
                                            penstock_dtype out_dtype, penstock_pool* pool) {
  return capi::guarded([&]() -> Status {
    const capi::Arrays arrays{n,        p, m, v, grad, grad_dtype, static_cast<std::uint16_t*>(out),
                              out_dtype};
    Status status = capi::optimizer_step(args, arrays, pool);
    if (!status) return std::move(status).error().in("cpu_optimizer_step");
    return status;
  });
}

}  // extern "C"
