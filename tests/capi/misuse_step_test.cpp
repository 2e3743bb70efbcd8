// Wrong calls while a session runs: out of order, with bad values, from other threads and
// processes.

#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "capi/misuse.hpp"

namespace penstock::capi_testing {
namespace {

TEST(MisuseTest, StepsOutOfOrderAreRefusedAndLeaveTheEngineUsable) {
  Small small, other;
  penstock_engine* e = small.engine.get();
  Outputs o;
  const auto state = PENSTOCK_E_STATE;
  const auto end = [&] { return penstock_step_end(e, &o.input, nullptr, 0, nullptr); };
  EXPECT_REFUSED(state, end());
  EXPECT_REFUSED(state, penstock_grad(e, small.wa, o.values, PENSTOCK_F32, 0, 1));
  EXPECT_REFUSED(state, penstock_eval_end(e));
  EXPECT_REFUSED(state, penstock_wait(e, small.wa, 0));  // level 1 only
  EXPECT_REFUSED(state, penstock_query(e, small.wa, 0, &o.flag));
  EXPECT_REFUSED(state, penstock_release(e, &o.lease));  // never acquired
  small.engine.step_begin();
  EXPECT_REFUSED(state, penstock_step_begin(e));
  EXPECT_REFUSED(state, penstock_eval_begin(e));
  EXPECT_REFUSED(state, penstock_flush(e));
  EXPECT_REFUSED(state, penstock_export_master(e, small.wa, o.values, 100));
  EXPECT_REFUSED(state, penstock_grad(e, small.wa, o.values, PENSTOCK_F32, 0, 1));  // not acquired
  EXPECT_REFUSED(PENSTOCK_E_ARGUMENT, penstock_acquire(e, other.a, &o.lease));
  EXPECT_REFUSED(PENSTOCK_E_ARGUMENT, penstock_acquire(e, small.wa, &o.lease));
  ASSERT_EQ(penstock_acquire(e, small.a, &o.lease), PENSTOCK_OK);
  EXPECT_REFUSED(state, penstock_acquire(e, small.a, &o.lease));  // the struct holds one
  EXPECT_REFUSED(state, end());                                   // a lease is held
  EXPECT_REFUSED(PENSTOCK_E_ARGUMENT, penstock_release(other.engine.get(), &o.lease));
  const auto grad = [&](const void* data, penstock_dtype dtype, std::uint32_t k, std::uint32_t n) {
    return penstock_grad(e, small.wa, data, dtype, k, n);
  };
  EXPECT_REFUSED(PENSTOCK_E_ARGUMENT, grad(o.values, 0, 0, 1));
  EXPECT_REFUSED(PENSTOCK_E_ARGUMENT, grad(o.values, 4, 0, 1));
  EXPECT_REFUSED(PENSTOCK_E_ARGUMENT,
                 grad(reinterpret_cast<const char*>(o.values) + 1, PENSTOCK_F32, 0, 1));
  EXPECT_REFUSED(PENSTOCK_E_ARGUMENT, grad(o.values, PENSTOCK_F32, 1, 1));
  EXPECT_REFUSED(PENSTOCK_E_ARGUMENT, grad(o.values, PENSTOCK_F32, 0, 2));
  EXPECT_REFUSED(PENSTOCK_E_ARGUMENT, penstock_grad(e, other.wa, o.values, PENSTOCK_F32, 0, 1));
  ASSERT_EQ(grad(o.values, PENSTOCK_F32, 0, 1), PENSTOCK_OK) << penstock_last_error();
  EXPECT_REFUSED(state, grad(o.values, PENSTOCK_F32, 0, 1));  // twice
  penstock_lease copy = o.lease;
  ASSERT_EQ(penstock_release(e, &o.lease), PENSTOCK_OK);
  EXPECT_EQ(o.lease.data, nullptr);
  EXPECT_REFUSED(state, penstock_release(e, &o.lease));
  EXPECT_REFUSED(state, penstock_release(e, &copy));
  ASSERT_EQ(end(), PENSTOCK_OK) << penstock_last_error();
  EXPECT_REFUSED(PENSTOCK_E_ARGUMENT, penstock_export_master(e, small.wa, o.values, 99));
  EXPECT_EQ(small.engine.updates(), 1U);
  EXPECT_EQ(penstock_engine_error(e), PENSTOCK_OK);
}

TEST(MisuseTest, HyperParametersOutOfRangeAreRefused) {
  Small small;
  const auto refused = [&](auto change) {
    penstock_step_input input = step_input();
    change(input);
    EXPECT_REFUSED(PENSTOCK_E_ARGUMENT,
                   penstock_step_end(small.engine.get(), &input, nullptr, 0, nullptr));
  };
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  small.engine.step_begin();
  for (const double v : {nan, inf, -1.0, 1e39}) refused([v](auto& i) { i.lr = v; });
  for (const double v : {nan, -0.1, 1.0, inf}) refused([v](auto& i) { i.beta1 = v; });
  for (const double v : {nan, -0.1, 1.0, inf}) refused([v](auto& i) { i.beta2 = v; });
  for (const double v : {nan, 0.0, -1.0, inf}) refused([v](auto& i) { i.eps = v; });
  for (const double v : {nan, -1.0, inf}) refused([v](auto& i) { i.weight_decay = v; });
  for (const double v : {nan, inf, 1e39}) refused([v](auto& i) { i.gradient_scale = v; });
  for (const double v : {nan, inf, -1.0}) refused([v](auto& i) { i.max_norm = v; });
  refused([](auto& i) { i.reserved = 1; });
  EXPECT_FALSE(small.engine.step_skip().applied);
  std::vector<char> blob((1 << 20) + 1);
  small.engine.step_begin();
  EXPECT_REFUSED(PENSTOCK_E_ARGUMENT,
                 penstock_step_skip(small.engine.get(), blob.data(), blob.size(), nullptr));
}

TEST(MisuseTest, MessagesBelongToTheThreadAndTheLastCall) {
  EXPECT_NE(penstock_engine_error(nullptr), PENSTOCK_OK);
  const std::string mine = penstock_last_error();
  EXPECT_NE(mine.find("NULL"), std::string::npos);
  std::thread([] {
    EXPECT_STREQ(penstock_last_error(), "");
    EXPECT_NE(penstock_pool_create(0, nullptr), PENSTOCK_OK);
    EXPECT_STRNE(penstock_last_error(), "");
  }).join();
  EXPECT_EQ(penstock_last_error(), mine);
  EXPECT_EQ(penstock_engine_destroy(nullptr), PENSTOCK_OK);
  EXPECT_STREQ(penstock_last_error(), "");
  EXPECT_STREQ(penstock_status_name(12345), "unknown");
}

TEST(MisuseTest, AForkedChildIsRefusedAndMayMakeItsOwn) {
  Small small;
  const Pool pool(1);
  const pid_t child = ::fork();
  if (child == 0) {
    std::uint64_t step = 0;
    penstock_engine* e = small.engine.get();
    int failed = penstock_step(e, &step) == PENSTOCK_E_STATE ? 0 : 1;
    failed |= penstock_flush(e) == PENSTOCK_E_STATE ? 0 : 2;
    failed |= penstock_engine_destroy(e) == PENSTOCK_E_STATE ? 0 : 4;
    failed |= penstock_pool_destroy(pool.get()) == PENSTOCK_E_STATE ? 0 : 8;
    failed |= std::strlen(penstock_last_error()) > 10 ? 0 : 16;
    penstock_engine* own = nullptr;
    const penstock_engine_options options = small.options(2);
    failed |= penstock_engine_create(&options, &own) == PENSTOCK_OK ? 0 : 32;
    failed |= penstock_engine_destroy(own) == PENSTOCK_OK ? 0 : 64;
    ::_exit(failed);
  }
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  small.engine.step_begin();  // the parent goes on
  EXPECT_EQ(small.engine.step_skip().step, 1U);
}

}  // namespace
}  // namespace penstock::capi_testing
