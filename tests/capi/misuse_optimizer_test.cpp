// Level 0 called wrongly: each refusal names the argument, and no byte of any array has changed.

#include <cmath>
#include <functional>
#include <limits>

#include "capi/level0.hpp"
#include "capi/misuse.hpp"

namespace penstock::capi_testing {
namespace {

constexpr std::size_t kCount = 64;

/// A call that would succeed, to be spoiled in one place.
struct Call {
  State x{kCount};
  std::vector<float> gradient = std::vector<float>(kCount, 1.0F);
  std::vector<float> out = std::vector<float>(kCount);
  penstock_optimizer_args args = optimizer_args();
  penstock_optimizer_arrays arrays = x.arrays(false);
  penstock_pool* pool = nullptr;
  std::int32_t applied = 7;

  Call() {
    arrays.grad = gradient.data();
    arrays.out = out.data();
    arrays.out_dtype = PENSTOCK_F32;
  }
  penstock_status run() { return penstock_cpu_optimizer_step(&args, &arrays, pool, &applied); }
};

/// `change` must make the call fail with a message that has `name` in it.
template <class Change>
void refused(const char* name, Change change, penstock_status expected = PENSTOCK_E_ARGUMENT) {
  Call call;
  change(call);
  const std::vector<float> gradient = call.gradient;
  EXPECT_REFUSED(expected, call.run());
  const std::string message = penstock_last_error();
  EXPECT_NE(message.find(name), std::string::npos) << name << " is not in: " << message;
  EXPECT_NE(message.find("cpu_optimizer_step"), std::string::npos) << message;
  const std::vector<float> zeros(kCount);
  for (const auto* array : {&call.x.p, &call.x.m, &call.x.v, &call.x.v_max, &call.out}) {
    EXPECT_EQ(*array, zeros) << message;
  }
  EXPECT_EQ(call.gradient, gradient);
  EXPECT_EQ(call.applied, 7);
}

TEST(MisuseOptimizerTest, TheCallThatIsSpoiledBelowSucceeds) {
  for (const NamedArgs& named : every_rule()) {
    Call call;
    call.args = named.args;
    ASSERT_EQ(call.run(), PENSTOCK_OK) << penstock_last_error();
    EXPECT_EQ(call.applied, 1);
    EXPECT_NE(call.x.p[kCount - 1], 0.0F) << named.name;
    EXPECT_EQ(call.out, call.x.p);
  }
}

TEST(MisuseOptimizerTest, MissingArraysAreNamed) {
  refused("p is NULL", [](Call& c) { c.arrays.p = nullptr; });
  refused("hi, lo", [](Call& c) { c.arrays.hi = c.x.hi.data(); });
  refused("lo", [](Call& c) { c.arrays.p = nullptr, c.arrays.hi = c.x.hi.data(); });
  refused("hi", [](Call& c) { c.arrays.p = nullptr, c.arrays.lo = c.x.lo.data(); });
  refused("m is NULL", [](Call& c) { c.arrays.m = nullptr; });
  refused("v is NULL", [](Call& c) { c.arrays.v = nullptr; });
  refused("v_max is NULL", [](Call& c) { c.arrays.v_max = nullptr, c.args.amsgrad = 1; });
  refused("grad is NULL", [](Call& c) { c.arrays.grad = nullptr; });
  refused("out", [](Call& c) { c.arrays.out = nullptr; });
  refused("out", [](Call& c) { c.arrays.out_dtype = PENSTOCK_DTYPE_NONE; });
  refused("n is 0", [](Call& c) { c.arrays.n = 0; });
  refused("n is", [](Call& c) { c.arrays.n = ~std::uint64_t{0}; });
  refused("n is", [](Call& c) { c.arrays.n = (std::uint64_t{1} << 48) + 1; });
  refused("first_element", [](Call& c) { c.arrays.first_element = ~std::uint64_t{0}; });
  Call call;
  EXPECT_REFUSED(PENSTOCK_E_ARGUMENT,
                 penstock_cpu_optimizer_step(nullptr, &call.arrays, nullptr, &call.applied));
  EXPECT_REFUSED(PENSTOCK_E_ARGUMENT,
                 penstock_cpu_optimizer_step(&call.args, nullptr, nullptr, &call.applied));
  EXPECT_REFUSED(PENSTOCK_E_ARGUMENT,
                 penstock_cpu_optimizer_step(&call.args, &call.arrays, nullptr, nullptr));
  EXPECT_EQ(call.x.p, std::vector<float>(kCount));
}

TEST(MisuseOptimizerTest, StatesOfOtherRulesAreNotLookedAt) {
  Call call;
  call.args.kind = PENSTOCK_SGD;
  call.arrays.m = call.arrays.v = call.arrays.v_max = reinterpret_cast<void*>(1);
  EXPECT_EQ(call.run(), PENSTOCK_OK) << penstock_last_error();
}

TEST(MisuseOptimizerTest, MisalignedArraysAreNamed) {
  const auto shifted = [](auto*& at) {
    at = reinterpret_cast<std::remove_reference_t<decltype(at)>>(
        reinterpret_cast<std::uintptr_t>(at) + 1);
  };
  refused("p is not aligned", [&](Call& c) { shifted(c.arrays.p), --c.arrays.n; });
  refused("m is not aligned", [&](Call& c) { shifted(c.arrays.m), --c.arrays.n; });
  refused("v is not aligned", [&](Call& c) { shifted(c.arrays.v), --c.arrays.n; });
  refused("grad is not aligned", [&](Call& c) { shifted(c.arrays.grad), --c.arrays.n; });
  refused("out is not aligned", [&](Call& c) { shifted(c.arrays.out), --c.arrays.n; });
  refused("lo is not aligned", [&](Call& c) {
    c.arrays = c.x.arrays(true), c.arrays.grad = c.gradient.data();
    shifted(c.arrays.lo), --c.arrays.n;
  });
}

TEST(MisuseOptimizerTest, OverlappingArraysAreNamed) {
  refused("p and m overlap", [](Call& c) { c.arrays.m = c.arrays.p; });
  refused("p and v overlap", [](Call& c) { c.arrays.v = c.arrays.p + 63; });
  refused("v and grad overlap", [](Call& c) { c.arrays.grad = c.x.v.data(); });
  refused("grad and out overlap", [](Call& c) { c.arrays.out = c.gradient.data(); });
  refused("m and v_max overlap", [](Call& c) { c.arrays.v_max = c.arrays.m, c.args.amsgrad = 1; });
  refused("p and out overlap",
          [](Call& c) { c.arrays.out = c.arrays.p, c.arrays.out_dtype = PENSTOCK_BF16; });
}

TEST(MisuseOptimizerTest, TypesThatAreNotOfferedAreNamed) {
  for (const penstock_dtype type : {0, 4, -1}) {
    refused("grad_dtype", [type](Call& c) { c.arrays.grad_dtype = type; });
    if (type != PENSTOCK_DTYPE_NONE) {
      refused("out_dtype", [type](Call& c) { c.arrays.out_dtype = type; });
    }
  }
  for (const penstock_dtype type : {0, 2, 5}) {
    refused("state_dtype", [type](Call& c) { c.arrays.state_dtype = type; });
  }
}

/// The call with states of 8 bits.
void eight_bits(Call& c) {
  c.arrays.state_dtype = PENSTOCK_I8;
  c.arrays.m_scale = &c.x.v_max[0];
  c.arrays.v_scale = &c.x.v_max[1];
}

TEST(MisuseOptimizerTest, StatesOf8BitsNeedTheirScalesAndTheRule) {
  Call call;
  eight_bits(call);
  ASSERT_EQ(call.run(), PENSTOCK_OK) << penstock_last_error();
  EXPECT_GT(call.x.v_max[1], 0.0F);
  const auto spoiled = [](const char* name, auto change) {
    refused(name, [&](Call& c) { eight_bits(c), change(c); });
  };
  spoiled("m_scale is NULL", [](Call& c) { c.arrays.m_scale = nullptr; });
  spoiled("v_scale is NULL", [](Call& c) { c.arrays.v_scale = nullptr; });
  spoiled("m_scale and v_scale overlap", [](Call& c) { c.arrays.v_scale = c.arrays.m_scale; });
  spoiled("m and m_scale overlap", [](Call& c) { c.arrays.m_scale = &c.x.m[15]; });
  spoiled("first_element is 255", [](Call& c) { c.arrays.first_element = 255; });
  spoiled("state_dtype", [](Call& c) { c.args.amsgrad = 1; });
  spoiled("state_dtype", [](Call& c) { c.args.kind = PENSTOCK_LION; });
  spoiled("state_dtype", [](Call& c) { c.args.kind = PENSTOCK_SGD; });
}

TEST(MisuseOptimizerTest, FormsOfTheWeightsDoNotMix) {
  const auto hi_alone = [](Call& c) {
    c.arrays.p = nullptr, c.arrays.hi = c.x.hi.data(), c.arrays.bf16_weights = 1;
  };
  const auto hi_and_lo8 = [](Call& c) {
    eight_bits(c);
    c.arrays.p = nullptr, c.arrays.hi = c.x.hi.data();
    c.arrays.lo8 = reinterpret_cast<std::int8_t*>(c.x.lo.data());
  };
  for (const auto& form : {std::function<void(Call&)>(hi_alone), std::function(hi_and_lo8)}) {
    Call call;
    form(call);
    ASSERT_EQ(call.run(), PENSTOCK_OK) << penstock_last_error();
    EXPECT_NE(call.x.hi[kCount - 1], 0);
  }
  const auto spoiled = [](const char* name, const auto& form, auto change) {
    refused(name, [&](Call& c) { form(c), change(c); });
  };
  spoiled("bf16_weights is 2", hi_alone, [](Call& c) { c.arrays.bf16_weights = 2; });
  spoiled("bf16_weights", hi_alone, [](Call& c) { c.arrays.lo = c.x.lo.data(); });
  spoiled("bf16_weights", hi_alone, [](Call& c) { c.args.amsgrad = 1; });
  spoiled("bf16_weights", hi_alone, [](Call& c) { c.args.kind = PENSTOCK_LION; });
  spoiled("p and hi", hi_alone, [](Call& c) { c.arrays.p = c.x.p.data(); });
  spoiled("lo is NULL", hi_alone, [](Call& c) { c.arrays.bf16_weights = 0; });
  spoiled("lo8", hi_and_lo8, [](Call& c) { c.arrays.lo = c.x.lo.data(); });
  spoiled("lo8", hi_and_lo8, [](Call& c) { c.arrays.state_dtype = PENSTOCK_F32; });
  spoiled("hi is NULL", hi_and_lo8, [](Call& c) { c.arrays.hi = nullptr; });
}

TEST(MisuseOptimizerTest, HyperParametersOutOfRangeAreNamed) {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  for (const NamedArgs& named : every_rule()) {
    SCOPED_TRACE(named.name);
    const auto bad = [&](const char* name, auto member, std::initializer_list<double> values) {
      for (const double value : values) {
        refused(name, [&](Call& c) { c.args = named.args, c.args.*member = value; });
      }
    };
    using Args = penstock_optimizer_args;
    const penstock_optimizer kind = named.args.kind;
    bad("lr", &Args::lr, {nan, inf, -1.0, 1e39});
    bad("weight_decay", &Args::weight_decay, {nan, -1.0, inf});
    bad("gradient_factor", &Args::gradient_factor, {nan, inf, 1e39});
    bad("momentum", &Args::momentum, {nan, -0.1, inf});
    bad("dampening", &Args::dampening, {nan, -0.1, 1.1});
    bad("lr_decay", &Args::lr_decay, {nan, -0.1, inf});
    const bool adam = kind == PENSTOCK_ADAMW || kind == PENSTOCK_ADAM;
    if (adam || kind == PENSTOCK_LION) {
      bad("beta1", &Args::beta1, {nan, -0.1, 1.0, inf});
      bad("beta2", &Args::beta2, {nan, -0.1, 1.0, inf});
    }
    if (adam || kind == PENSTOCK_ADAGRAD) bad("eps", &Args::eps, {nan, 0.0, -1.0, 1e-40, inf});
    // What the rule does not have must stay at zero, or it would be ignored in silence.
    if (kind != PENSTOCK_SGD) bad("momentum", &Args::momentum, {0.9});
    if (kind != PENSTOCK_SGD) bad("dampening", &Args::dampening, {0.1});
    if (kind != PENSTOCK_ADAGRAD) bad("lr_decay", &Args::lr_decay, {0.1});
    const auto flag = [&](const char* name, auto member, std::int32_t value) {
      refused(name, [&](Call& c) { c.args = named.args, c.args.*member = value; });
    };
    if (!adam) flag("amsgrad", &Args::amsgrad, 1);
    if (kind != PENSTOCK_SGD || named.args.momentum == 0.0) flag("nesterov", &Args::nesterov, 1);
    flag("maximize", &Args::maximize, 2);
    flag("amsgrad", &Args::amsgrad, -1);
    flag("nesterov", &Args::nesterov, 2);
    flag("gradients_checked", &Args::gradients_checked, 2);
    refused("t is 0", [&](Call& c) { c.args = named.args, c.args.t = 0; });
  }
  for (const penstock_optimizer kind : {0, 6, -1}) {
    refused("kind", [kind](Call& c) { c.args.kind = kind; });
  }
  refused("nesterov", [](Call& c) {
    c.args.kind = PENSTOCK_SGD, c.args.momentum = 0.9;
    c.args.dampening = 0.1, c.args.nesterov = 1;
  });
}

TEST(MisuseOptimizerTest, PoolsThatAreNotOrNoLongerAreRefused) {
  penstock_pool* pool = nullptr;
  EXPECT_REFUSED(PENSTOCK_E_ARGUMENT, penstock_pool_create(0, &pool));
  EXPECT_REFUSED(PENSTOCK_E_ARGUMENT, penstock_pool_create(1U << 30, &pool));
  EXPECT_EQ(pool, nullptr);
  ASSERT_EQ(penstock_pool_create(1, &pool), PENSTOCK_OK);
  ASSERT_EQ(penstock_pool_destroy(pool), PENSTOCK_OK);
  EXPECT_REFUSED(PENSTOCK_E_STATE, penstock_pool_destroy(pool));
  refused(
      "", [pool](Call& c) { c.pool = pool; }, PENSTOCK_E_STATE);
}

}  // namespace
}  // namespace penstock::capi_testing
