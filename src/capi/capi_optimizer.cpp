// Exported: level 0, the fused optimizer step on the caller's arrays.

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

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

constexpr std::uint32_t kMostPoolThreads = 4096;
constexpr std::uint64_t kMostStepElements = std::uint64_t{1} << 48;
/// Elements of one task; a multiple of a cache line of every type, so that no two tasks share one.
constexpr std::size_t kTaskElements = 65536;
/// sqrt(FLT_MAX): larger gradients have no square, and second moments would stay infinite.
constexpr double kLargestGradient = 0x1.fffffep+63;

struct Pool final : Object {
  static constexpr HandleKind kKind = HandleKind::kPool;
  std::unique_ptr<Executor> executor;
};

Result<UpdateRule> read_rule(const penstock_optimizer_args& args) {
  if (args.kind < PENSTOCK_ADAMW || args.kind > PENSTOCK_LION) {
    return argument(fmt::format("kind is {}; it is PENSTOCK_ADAMW (1) to PENSTOCK_LION ({})",
                                args.kind, PENSTOCK_LION));
  }
  const std::pair<const char*, std::int32_t> flags[] = {
      {"nesterov", args.nesterov},
      {"amsgrad", args.amsgrad},
      {"maximize", args.maximize},
      {"gradients_checked", args.gradients_checked}};
  for (const auto& [name, value] : flags) {
    if (value != 0 && value != 1) {
      return argument(fmt::format("{} is {}; it is 0 or 1", name, value));
    }
  }
  if (args.t == 0) return argument("t is 0; the first update has number 1");
  const UpdateRule rule = {.rule = static_cast<Rule>(args.kind - PENSTOCK_ADAMW),
                           .amsgrad = args.amsgrad == 1,
                           .nesterov = args.nesterov == 1,
                           .maximize = args.maximize == 1,
                           .lr = args.lr,
                           .weight_decay = args.weight_decay,
                           .beta1 = args.beta1,
                           .beta2 = args.beta2,
                           .eps = args.eps,
                           .momentum = args.momentum,
                           .dampening = args.dampening,
                           .lr_decay = args.lr_decay};
  PENSTOCK_CHECK_OK(check_hyper(rule));
  PENSTOCK_CHECK_OK(check_factor("gradient_factor", args.gradient_factor));
  return rule;
}

std::optional<DType> dtype(penstock_dtype type) {
  if (type == PENSTOCK_F32) return DType::kF32;
  if (type == PENSTOCK_F16) return DType::kF16;
  if (type == PENSTOCK_BF16) return DType::kBf16;
  return std::nullopt;
}

Error wrong_type(const char* name, penstock_dtype type, const char* further) {
  return argument(fmt::format("{} is {}; it is PENSTOCK_F32, PENSTOCK_F16{} PENSTOCK_BF16{}", name,
                              type, *further == '\0' ? " or" : ",", further));
}

/// The arrays as kernels take them, each present if it is needed; whether they are sound comes
/// next.
Result<UpdateArrays> read_arrays(const penstock_optimizer_arrays& given, const UpdateRule& rule) {
  UpdateArrays out;
  const auto gradient_type = dtype(given.grad_dtype), out_type = dtype(given.out_dtype);
  if (!gradient_type) return wrong_type("grad_dtype", given.grad_dtype, "");
  if (!out_type && given.out_dtype != PENSTOCK_DTYPE_NONE) {
    return wrong_type("out_dtype", given.out_dtype, " or PENSTOCK_DTYPE_NONE");
  }
  if (given.state_dtype != PENSTOCK_F32 && given.state_dtype != PENSTOCK_BF16 &&
      given.state_dtype != PENSTOCK_I8) {
    return argument(fmt::format(
        "state_dtype is {}; it is PENSTOCK_F32, PENSTOCK_BF16 or PENSTOCK_I8", given.state_dtype));
  }
  if (out_type.has_value() != (given.out != nullptr)) {
    return argument("out and out_dtype come together or not at all");
  }
  if (given.n == 0) return argument("n is 0; there is nothing to update");
  if (given.n > kMostStepElements) return argument(fmt::format("n is {}; at most 2^48", given.n));
  if (given.first_element > kMostStepElements) {
    return argument(fmt::format("first_element is {}; at most 2^48", given.first_element));
  }
  const UpdateStates states = update_states(rule);
  out.n = given.n;
  out.p = given.p;
  out.hi = given.hi;
  out.lo = given.lo;
  out.lo8 = given.lo8;
  if (states.m) out.m = given.m;
  if (states.v) out.v = given.v;
  if (states.v_max) out.v_max = given.v_max;
  out.state_type = given.state_dtype == PENSTOCK_BF16 ? DType::kBf16 : DType::kF32;
  if (given.state_dtype == PENSTOCK_I8) {
    out.m_scale = given.m_scale;
    out.v_scale = given.v_scale;
  }
  out.first_element = given.first_element;
  out.gradient = given.grad;
  out.gradient_type = *gradient_type;
  out.out = given.out;
  out.out_type = out_type.value_or(DType::kBf16);
  return out;
}

/// The form of the weights that is given, and that the rule and its states have.
Result<Master> read_master(const penstock_optimizer_arrays& given, const UpdateRule& rule) {
  if (given.bf16_weights != 0 && given.bf16_weights != 1) {
    return argument(fmt::format("bf16_weights is {}; it is 0 or 1", given.bf16_weights));
  }
  const bool rest = given.lo != nullptr || given.lo8 != nullptr;
  const bool halves = given.hi != nullptr || rest;
  if ((given.p != nullptr) == halves) {
    return argument(halves ? "p and hi, lo are set; the weights are the one or the others"
                           : "p is NULL, and so are hi and lo; one form of the weights is needed");
  }
  const bool plain_adam = (rule.rule == Rule::kAdamW || rule.rule == Rule::kAdam) && !rule.amsgrad;
  if (given.state_dtype == PENSTOCK_I8) {
    if (!plain_adam) {
      return argument("state_dtype is PENSTOCK_I8; only ADAMW and ADAM without amsgrad have it");
    }
    if (given.first_element % kStateBlock != 0) {
      return argument(fmt::format("first_element is {}; with 8-bit states it is a multiple of {}",
                                  given.first_element, kStateBlock));
    }
  }
  if (given.bf16_weights == 1) {
    if (given.p != nullptr || rest) {
      return argument("bf16_weights is 1, and p, lo or lo8 is set; the weights are hi alone");
    }
    if (!plain_adam) {
      return argument("bf16_weights is 1; only ADAMW and ADAM without amsgrad have it");
    }
    return Master::kBf16;
  }
  if (given.lo8 != nullptr) {
    if (given.lo != nullptr)
      return argument("lo and lo8 are set; the rest is the one or the other");
    if (given.state_dtype != PENSTOCK_I8) {
      return argument("lo8 is set; it goes with state_dtype PENSTOCK_I8 only");
    }
    return Master::kSplit8;
  }
  return halves ? Master::kSplit : Master::kF32;
}

/// Non-null, aligned to their elements, and apart.
Status check_arrays(const UpdateArrays& a, const UpdateStates& states, Master master, bool bytes) {
  struct Extent {
    const char* name;
    const void* at;
    std::uint64_t element;
    bool needed;
    std::uint64_t count;
  };
  const bool halves = master != Master::kF32;
  const std::size_t state = bytes ? 1 : size_bytes(a.state_type);
  const std::uint64_t blocks = (a.n + kStateBlock - 1) / kStateBlock;
  const std::array<Extent, 11> all = {
      {{"p", a.p, 4, !halves, a.n},
       {"hi", a.hi, 2, halves, a.n},
       {"lo", a.lo, 2, master == Master::kSplit, a.n},
       {"lo8", a.lo8, 1, master == Master::kSplit8, a.n},
       {"m", a.m, state, states.m, a.n},
       {"v", a.v, state, states.v, a.n},
       {"v_max", a.v_max, state, states.v_max, a.n},
       {"m_scale", a.m_scale, 4, bytes, blocks},
       {"v_scale", a.v_scale, 4, bytes, blocks},
       {"grad", a.gradient, size_bytes(a.gradient_type), true, a.n},
       {"out", a.out, size_bytes(a.out_type), a.out != nullptr, a.n}}};
  const auto address = [](const void* at) { return reinterpret_cast<std::uintptr_t>(at); };
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::uintptr_t begin = address(all[i].at);
    if (!all[i].needed) continue;
    if (begin == 0) return argument(fmt::format("{} is NULL", all[i].name));
    if (begin % all[i].element != 0) {
      return argument(fmt::format("{} is not aligned to its elements", all[i].name));
    }
    if (all[i].count * all[i].element > std::numeric_limits<std::uintptr_t>::max() - begin) {
      return argument(fmt::format("n is {}; {} would not end in memory", a.n, all[i].name));
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (all[j].needed && begin < address(all[j].at) + all[j].count * all[j].element &&
          address(all[j].at) < begin + all[i].count * all[i].element) {
        return argument(fmt::format("{} and {} overlap", all[j].name, all[i].name));
      }
    }
  }
  return ok();
}

/// body(first, count) for all parts, on the pool or, without one, here.
template <class Body>
void for_each_part(Pool* pool, std::uint64_t n, const Body& body) {
  if (pool == nullptr) return body(0, n);
  pool->executor->parallel_for((n + kTaskElements - 1) / kTaskElements, [&](std::size_t i) {
    const std::uint64_t first = i * kTaskElements;
    body(first, std::min<std::uint64_t>(kTaskElements, n - first));
  });
}

/// Whether every gradient times the factor is finite and has a square.
bool gradients_fit(Isa isa, const UpdateArrays& arrays, double factor, Pool* pool) {
  // A factor below 2^-65 lets every finite gradient through, 0 too; the limit is rounded down.
  const double limit = kLargestGradient / std::max(std::fabs(factor), 0x1p-65);
  const auto largest = static_cast<float>(
      std::min(limit * (1.0 - 0x1p-23), double{std::numeric_limits<float>::max()}));
  std::atomic<bool> fit = true;
  for_each_part(pool, arrays.n, [&](std::uint64_t first, std::uint64_t count) {
    if (!fit.load(std::memory_order_relaxed)) return;
    const UpdateArrays part = arrays.part(first, count);
    if (!all_within(isa, count, part.gradient, part.gradient_type, largest)) fit = false;
  });
  return fit;
}

Result<bool> optimizer_step(const penstock_optimizer_args* args,
                            const penstock_optimizer_arrays* arrays, penstock_pool* handle) {
  if (in_callback()) return wrong_state("called inside a callback");
  PENSTOCK_TAKE(given, read_struct(args));
  PENSTOCK_TAKE(given_arrays, read_struct(arrays));
  PENSTOCK_TAKE(rule, read_rule(given));
  PENSTOCK_TAKE(all, read_arrays(given_arrays, rule));
  PENSTOCK_TAKE(master, read_master(given_arrays, rule));
  const bool bytes = given_arrays.state_dtype == PENSTOCK_I8;
  PENSTOCK_CHECK_OK(check_arrays(all, update_states(rule), master, bytes));
  std::shared_ptr<Pool> pool;  // shared with the table, while this call runs
  if (handle != nullptr) {
    PENSTOCK_TAKE(found, find<Pool>(handle));
    pool = std::move(found);
  }
  PENSTOCK_TAKE(isa, choose_isa());
  if (given.gradients_checked == 0 && !gradients_fit(isa, all, given.gradient_factor, pool.get())) {
    return false;
  }
  UpdateScalars scalars = update_scalars(rule, given.t, given.gradient_factor);
  scalars.key = rounding_key(given.seed, given_arrays.tensor, given.t);
  const UpdateKernel kernel =
      bytes ? update_kernel_int8(isa, rule, all.gradient_type, master)
            : update_kernel(isa, rule, all.gradient_type, master, all.state_type);
  for_each_part(pool.get(), all.n, [&](std::uint64_t first, std::uint64_t count) {
    kernel(scalars, all.part(first, count));
  });
  return true;
}

}  // namespace
}  // namespace penstock::capi

extern "C" {

penstock_status penstock_pool_create(uint32_t threads, penstock_pool** out) {
  return capi::guarded([&]() -> Status {
    if (out == nullptr) return capi::argument("pool_create: the output is NULL");
    if (capi::in_callback()) return capi::wrong_state("pool_create: called inside a callback");
    if (threads < 1 || threads > capi::kMostPoolThreads) {
      return capi::argument(fmt::format("pool_create: threads is {}; it is 1 to {}", threads,
                                        capi::kMostPoolThreads));
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

penstock_status penstock_cpu_optimizer_step(const penstock_optimizer_args* args,
                                            const penstock_optimizer_arrays* arrays,
                                            penstock_pool* pool, int32_t* applied) {
  return capi::guarded([&]() -> Status {
    if (applied == nullptr) return capi::argument("cpu_optimizer_step: applied is NULL");
    auto result = capi::optimizer_step(args, arrays, pool);
    if (!result) return std::move(result).error().in("cpu_optimizer_step");
    *applied = result.value() ? 1 : 0;
    return ok();
  });
}

}  // extern "C"
