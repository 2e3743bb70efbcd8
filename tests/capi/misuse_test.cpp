// Every function met with every kind of wrong call: the right status, a message, nothing else.

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "capi/misuse.hpp"

namespace penstock::capi_testing {
namespace {

enum class When { kAny, kBeforeOpen, kOpen };

/// One function of an engine, called with arguments that are right for `small`.
struct Function {
  const char* name;
  When when;
  std::function<penstock_status(penstock_engine*)> call;
};

std::vector<Function> functions(const Small& s, Outputs& o) {
  using E = penstock_engine*;
  o.desc = Small::describe("new", s.a);
  const penstock_group a = s.a;
  const penstock_tensor w = s.wa;
  return {
      {"error", When::kOpen, [](E e) { return penstock_engine_error(e); }},
      {"set_budget", When::kBeforeOpen,
       [](E e) { return penstock_engine_set_budget(e, PENSTOCK_TIER_HOST, 1); }},
      {"group_register", When::kBeforeOpen,
       [&o](E e) { return penstock_group_register(e, "new", &o.group); }},
      {"group_find", When::kAny, [&o](E e) { return penstock_group_find(e, "a", &o.group); }},
      {"tensor_register", When::kBeforeOpen,
       [&o](E e) { return penstock_tensor_register(e, &o.desc, &o.tensor); }},
      {"tensor_find", When::kAny, [&o](E e) { return penstock_tensor_find(e, "a.w", &o.tensor); }},
      {"set_order", When::kBeforeOpen,
       [](E e) { return penstock_set_order(e, nullptr, 0, nullptr, 0); }},
      {"plan_minimum_bytes", When::kAny,
       [&o](E e) { return penstock_plan_minimum_bytes(e, PENSTOCK_TIER_HOST, &o.number); }},
      {"plan_json", When::kAny, [&o](E e) { return penstock_plan_json(e, &o.text); }},
      {"open", When::kBeforeOpen, [](E e) { return penstock_engine_open(e); }},
      {"tensor_elements", When::kOpen,
       [&o, w](E e) { return penstock_tensor_elements(e, w, &o.number); }},
      {"tensor_offset", When::kOpen,
       [&o, w](E e) { return penstock_tensor_offset(e, w, &o.number); }},
      {"workspace", When::kOpen, [&o](E e) { return penstock_workspace(e, &o.data, &o.number); }},
      {"resumed", When::kOpen, [&o](E e) { return penstock_resumed(e, &o.flag); }},
      {"opened_blob", When::kOpen,
       [&o](E e) { return penstock_opened_blob(e, &o.blob, &o.number); }},
      {"step_begin", When::kOpen, [](E e) { return penstock_step_begin(e); }},
      {"acquire", When::kOpen, [&o, a](E e) { return penstock_acquire(e, a, &o.lease); }},
      {"release", When::kOpen, [&o](E e) { return penstock_release(e, &o.lease); }},
      {"grad", When::kOpen,
       [&o, w](E e) { return penstock_grad(e, w, o.values, PENSTOCK_F32, 0, 1); }},
      {"step_end", When::kOpen,
       [&o](E e) { return penstock_step_end(e, &o.input, nullptr, 0, nullptr); }},
      {"step_skip", When::kOpen, [](E e) { return penstock_step_skip(e, nullptr, 0, nullptr); }},
      {"eval_begin", When::kOpen, [](E e) { return penstock_eval_begin(e); }},
      {"eval_end", When::kOpen, [](E e) { return penstock_eval_end(e); }},
      {"wait", When::kOpen, [w](E e) { return penstock_wait(e, w, 0); }},
      {"query", When::kOpen, [&o, w](E e) { return penstock_query(e, w, 0, &o.flag); }},
      {"flush", When::kOpen, [](E e) { return penstock_flush(e); }},
      {"export_master", When::kOpen,
       [&o, w](E e) { return penstock_export_master(e, w, o.values, 100); }},
      {"checkpoint", When::kOpen, [](E e) { return penstock_checkpoint(e, "x", 1); }},
      {"checkpoint_drop", When::kOpen, [](E e) { return penstock_checkpoint_drop(e, "x"); }},
      {"checkpoints_json", When::kOpen,
       [&o](E e) { return penstock_checkpoints_json(e, &o.text); }},
      {"copy_store", When::kOpen, [](E e) { return penstock_copy_store(e, "x"); }},
      {"copy_json", When::kOpen, [&o](E e) { return penstock_copy_json(e, &o.text); }},
      {"step", When::kOpen, [&o](E e) { return penstock_step(e, &o.number); }},
      {"updates", When::kOpen, [&o](E e) { return penstock_updates(e, &o.number); }},
      {"committed_step", When::kOpen, [&o](E e) { return penstock_committed_step(e, &o.number); }},
      {"stats_json", When::kOpen, [&o](E e) { return penstock_stats_json(e, &o.text); }},
      {"destroy", When::kAny, [](E e) { return penstock_engine_destroy(e); }},
  };
}

TEST(MisuseTest, HandlesThatAreNotLiveEnginesAreRefusedByEveryFunction) {
  Small small;
  Outputs outputs;
  const Pool pool(1);
  Small gone;
  penstock_engine* const stale = gone.engine.get();
  gone.engine.destroy();
  int local = 0;
  const std::vector<Function> all = functions(small, outputs);
  for (const Function& f : all) {
    SCOPED_TRACE(f.name);
    if (std::strcmp(f.name, "destroy") == 0) {
      EXPECT_EQ(f.call(nullptr), PENSTOCK_OK);
    } else {
      EXPECT_REFUSED(PENSTOCK_E_ARGUMENT, f.call(nullptr));
    }
    EXPECT_REFUSED(PENSTOCK_E_STATE, f.call(stale));
    EXPECT_REFUSED(PENSTOCK_E_STATE, f.call(reinterpret_cast<penstock_engine*>(&local)));
    EXPECT_REFUSED(PENSTOCK_E_STATE,
                   f.call(reinterpret_cast<penstock_engine*>(~std::uintptr_t{0})));
    EXPECT_REFUSED(PENSTOCK_E_ARGUMENT, f.call(reinterpret_cast<penstock_engine*>(pool.get())));
  }
  // None of that has touched the live ones.
  EXPECT_EQ(penstock_engine_error(small.engine.get()), PENSTOCK_OK);
}

TEST(MisuseTest, CallsOnTheWrongSideOfOpenAreRefused) {
  Small closed(2, false), open;
  Outputs outputs;
  for (const Function& f : functions(closed, outputs)) {
    SCOPED_TRACE(f.name);
    if (f.when == When::kOpen) EXPECT_REFUSED(PENSTOCK_E_STATE, f.call(closed.engine.get()));
  }
  for (const Function& f : functions(open, outputs)) {
    SCOPED_TRACE(f.name);
    if (f.when == When::kBeforeOpen) EXPECT_REFUSED(PENSTOCK_E_STATE, f.call(open.engine.get()));
  }
}

TEST(MisuseTest, NullOutputsAndInputsAreRefused) {
  Small closed(2, false), open, one(1);
  penstock_engine *c = closed.engine.get(), *e = open.engine.get();
  Outputs o;
  const auto bad = PENSTOCK_E_ARGUMENT;
  penstock_engine_options options = closed.options(2);
  EXPECT_REFUSED(bad, penstock_engine_create(&options, nullptr));
  penstock_engine* made = nullptr;
  EXPECT_REFUSED(bad, penstock_engine_create(nullptr, &made));
  EXPECT_EQ(made, nullptr);
  EXPECT_REFUSED(bad, penstock_group_register(c, "n", nullptr));
  EXPECT_REFUSED(bad, penstock_group_register(c, nullptr, &o.group));
  EXPECT_REFUSED(bad, penstock_group_register(c, "", &o.group));
  EXPECT_REFUSED(bad, penstock_group_find(c, "a", nullptr));
  EXPECT_REFUSED(bad, penstock_group_find(c, nullptr, &o.group));
  o.desc = Small::describe("n", closed.a);
  EXPECT_REFUSED(bad, penstock_tensor_register(c, &o.desc, nullptr));
  EXPECT_REFUSED(bad, penstock_tensor_register(c, nullptr, &o.tensor));
  EXPECT_REFUSED(bad, penstock_tensor_find(c, "a.w", nullptr));
  EXPECT_REFUSED(bad, penstock_tensor_find(c, nullptr, &o.tensor));
  EXPECT_REFUSED(bad, penstock_set_order(c, nullptr, 1, nullptr, 0));
  EXPECT_REFUSED(bad, penstock_set_order(c, nullptr, 0, nullptr, 1));
  EXPECT_REFUSED(bad, penstock_plan_minimum_bytes(c, PENSTOCK_TIER_HOST, nullptr));
  EXPECT_REFUSED(bad, penstock_plan_json(c, nullptr));
  EXPECT_REFUSED(bad, penstock_tensor_elements(e, open.wa, nullptr));
  EXPECT_REFUSED(bad, penstock_tensor_offset(e, open.wa, nullptr));
  EXPECT_REFUSED(bad, penstock_workspace(e, nullptr, &o.number));
  EXPECT_REFUSED(bad, penstock_workspace(e, &o.data, nullptr));
  EXPECT_REFUSED(bad, penstock_resumed(e, nullptr));
  EXPECT_REFUSED(bad, penstock_opened_blob(e, nullptr, &o.number));
  EXPECT_REFUSED(bad, penstock_opened_blob(e, &o.blob, nullptr));
  EXPECT_REFUSED(bad, penstock_acquire(e, open.a, nullptr));
  EXPECT_REFUSED(bad, penstock_release(e, nullptr));
  EXPECT_REFUSED(bad, penstock_grad(e, open.wa, nullptr, PENSTOCK_F32, 0, 1));
  EXPECT_REFUSED(bad, penstock_step_end(e, nullptr, nullptr, 0, nullptr));
  EXPECT_REFUSED(bad, penstock_step_end(e, &o.input, nullptr, 1, nullptr));
  EXPECT_REFUSED(bad, penstock_step_skip(e, nullptr, 1, nullptr));
  EXPECT_REFUSED(bad, penstock_query(one.engine.get(), one.wa, 0, nullptr));
  EXPECT_REFUSED(bad, penstock_export_master(e, open.wa, nullptr, 100));
  EXPECT_REFUSED(bad, penstock_step(e, nullptr));
  EXPECT_REFUSED(bad, penstock_updates(e, nullptr));
  EXPECT_REFUSED(bad, penstock_committed_step(e, nullptr));
  EXPECT_REFUSED(bad, penstock_stats_json(e, nullptr));
  EXPECT_REFUSED(bad, penstock_pool_create(1, nullptr));
  EXPECT_EQ(penstock_pool_destroy(nullptr), PENSTOCK_OK);
  penstock_free(nullptr);
}

/// init and use of a struct with sizes that were never shipped, and with newer ones.
template <class T, class Init, class Use>
void try_sizes(Init init, Use use) {
  struct Newer {
    T known;
    unsigned char later[64];
  } newer;
  auto* value = &newer.known;
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{4}, sizeof(T) - 1, std::size_t{1} << 20}) {
    EXPECT_REFUSED(PENSTOCK_E_ARGUMENT, init(value, size));
    ASSERT_EQ(init(value, sizeof(T)), PENSTOCK_OK);
    value->struct_size = static_cast<std::uint32_t>(size);
    EXPECT_REFUSED(PENSTOCK_E_ARGUMENT, use(value));
  }
  EXPECT_REFUSED(PENSTOCK_E_ARGUMENT, init(nullptr, sizeof(T)));
  std::memset(&newer, 0xff, sizeof newer);
  ASSERT_EQ(init(value, sizeof(T)), PENSTOCK_OK);
  EXPECT_EQ(newer.later[0], 0xff) << "init wrote past the caller's struct";
  ASSERT_EQ(init(value, sizeof newer), PENSTOCK_OK);
  EXPECT_EQ(newer.later[63], 0) << "init left the newer members unset";
  EXPECT_EQ(value->struct_size, sizeof newer);
  newer.later[63] = 1;
  EXPECT_REFUSED(PENSTOCK_E_ARGUMENT, use(value));
  newer.later[63] = 0;
  EXPECT_EQ(use(value), PENSTOCK_OK) << penstock_last_error();
}

TEST(MisuseTest, StructsOfOtherSizesAreRefusedUnlessTheirTailIsZero) {
  Small open, closed(2, false);
  penstock_engine* e = open.engine.get();
  try_sizes<penstock_engine_options>(&penstock_engine_options_init,
                                     [&](penstock_engine_options* options) {
                                       const std::string store = open.directory.store();
                                       options->directory = store.c_str();
                                       penstock_engine* made = nullptr;
                                       const auto status = penstock_engine_create(options, &made);
                                       if (status == PENSTOCK_OK) penstock_engine_destroy(made);
                                       return status;
                                     });
  try_sizes<penstock_tensor_desc>(&penstock_tensor_desc_init, [&](penstock_tensor_desc* desc) {
    desc->name = "late";
    desc->group = closed.a;
    desc->rank = 1;
    desc->shape[0] = 5;
    penstock_tensor tensor = 0;
    return penstock_tensor_register(closed.engine.get(), desc, &tensor);
  });
  try_sizes<penstock_lease>(&penstock_lease_init, [&](penstock_lease* lease) {
    const auto status = penstock_acquire(e, open.a, lease);
    if (status == PENSTOCK_OK) check(penstock_release(e, lease));
    return status;
  });
  try_sizes<penstock_step_input>(&penstock_step_input_init, [&](penstock_step_input* input) {
    check(penstock_step_begin(e));
    const auto status = penstock_step_end(e, input, nullptr, 0, nullptr);
    const std::string message = penstock_last_error();
    if (status == PENSTOCK_OK) return status;
    check(penstock_step_skip(e, nullptr, 0, nullptr));
    return penstock_step_end(e, input, nullptr, 0, nullptr);  // the same refusal, and its message
  });
  try_sizes<penstock_step_report>(&penstock_step_report_init, [&](penstock_step_report* report) {
    check(penstock_step_begin(e));
    const auto status = penstock_step_skip(e, nullptr, 0, report);
    if (status == PENSTOCK_OK) return status;
    check(penstock_step_skip(e, nullptr, 0, nullptr));
    return penstock_step_skip(e, nullptr, 0, report);
  });
  float p = 0, m = 0, v = 0, g = 1;
  std::int32_t applied = 0;
  penstock_optimizer_args good_args = optimizer_args();
  penstock_optimizer_arrays good_arrays = optimizer_arrays();
  const auto fill = [&](penstock_optimizer_arrays& arrays) {
    arrays.n = 1;
    arrays.p = &p, arrays.m = &m, arrays.v = &v, arrays.grad = &g;
  };
  fill(good_arrays);
  try_sizes<penstock_optimizer_args>(
      &penstock_optimizer_args_init, [&](penstock_optimizer_args* args) {
        return penstock_cpu_optimizer_step(args, &good_arrays, nullptr, &applied);
      });
  try_sizes<penstock_optimizer_arrays>(
      &penstock_optimizer_arrays_init, [&](penstock_optimizer_arrays* arrays) {
        fill(*arrays);
        return penstock_cpu_optimizer_step(&good_args, arrays, nullptr, &applied);
      });
}

TEST(MisuseTest, BadOptionsAreRefused) {
  Small small(2, false);
  penstock_engine* made = nullptr;
  const auto refused = [&](penstock_status expected, auto change) {
    penstock_engine_options options = small.options(2);
    change(options);
    EXPECT_REFUSED(expected, penstock_engine_create(&options, &made));
    EXPECT_EQ(made, nullptr);
  };
  const auto bad = PENSTOCK_E_ARGUMENT;
  refused(bad, [](auto& o) { o.level = 0; });
  refused(bad, [](auto& o) { o.level = 3; });
  refused(bad, [](auto& o) { o.directory = nullptr; });
  refused(bad, [](auto& o) { o.directory = ""; });
  refused(bad, [](auto& o) { o.mode = 0; });
  refused(bad, [](auto& o) { o.mode = 4; });
  refused(bad, [](auto& o) { o.scratch = 2; });
  refused(PENSTOCK_E_UNSUPPORTED, [](auto& o) { o.device_budget_bytes = 1; });
  refused(bad, [](auto& o) { o.workspace_bytes = ~std::uint64_t{0}; });
  refused(bad, [](auto& o) { o.block_elements = 1000; });
  refused(bad, [](auto& o) { o.threads = 1U << 20; });
  refused(bad, [](auto& o) { o.isa = "sse9"; });
  refused(bad, [](auto& o) { o.queue = "carrier pigeons"; });
  refused(bad, [](auto& o) { o.description_json = "{"; });
  refused(bad, [](auto& o) { o.description_json = "[1]"; });
  refused(bad, [](auto& o) { o.deadline_ns = 0; });
  refused(bad, [](auto& o) { o.reserved = 1; });
  refused(bad, [](auto& o) {
    o.log = [](void*, penstock_log_level, const char*, int32_t, const char*) {};
    o.log_min_level = 9;
  });
}

TEST(MisuseTest, BadTensorsAndTiersAreRefused) {
  Small small(2, false), other(2, false), one(1, false);
  penstock_engine* e = small.engine.get();
  alignas(8) char array[512] = {};
  const auto refused = [&](auto change, penstock_engine* engine = nullptr) {
    penstock_tensor tensor = 0;
    penstock_tensor_desc desc = Small::describe("new", engine == nullptr ? small.a : one.a);
    change(desc);
    EXPECT_REFUSED(PENSTOCK_E_ARGUMENT,
                   penstock_tensor_register(engine == nullptr ? e : engine, &desc, &tensor));
  };
  const std::string long_name(256, 'x');
  refused([](auto& d) { d.name = nullptr; });
  refused([](auto& d) { d.name = ""; });
  refused([&](auto& d) { d.name = long_name.c_str(); });
  refused([](auto& d) { d.name = "a.w"; });
  refused([](auto& d) { d.group = 0; });
  refused([&](auto& d) { d.group = other.a; });
  refused([&](auto& d) { d.group = small.wa; });
  refused([](auto& d) { d.group += 100; });
  refused([](auto& d) { d.rank = 0; });
  refused([](auto& d) { d.rank = 9; });
  refused([](auto& d) { d.shape[0] = 0; });
  refused([](auto& d) { d.shape[0] = -1; });
  refused([](auto& d) { d.rank = 2, d.shape[0] = d.shape[1] = std::int64_t{1} << 40; });
  refused([](auto& d) { d.trainable = 2; });
  refused([](auto& d) { d.trainable = 0; });  // its group is trainable
  refused([](auto& d) { d.decay = -1; });
  refused([](auto& d) { d.contributions = 0; });
  refused([](auto& d) { d.init = 0; });
  refused([](auto& d) { d.init = 6; });
  refused([](auto& d) { d.init = PENSTOCK_INIT_VALUES; });
  refused([](auto& d) { d.init = PENSTOCK_INIT_FROM_WEIGHTS; });
  refused([&](auto& d) { d.weights = array, d.weights_dtype = PENSTOCK_BF16; });  // level 2
  penstock_engine* level1 = one.engine.get();
  refused([&](auto& d) { d.weights = array; }, level1);
  refused([&](auto& d) { d.weights_dtype = PENSTOCK_F32; }, level1);
  refused([&](auto& d) { d.weights = array, d.weights_dtype = 9; }, level1);
  refused([&](auto& d) { d.weights = array + 1, d.weights_dtype = PENSTOCK_F32; }, level1);
  refused([&](auto& d) { d.weights = array, d.weights_dtype = PENSTOCK_F32, d.lent = 1; }, level1);
  refused([&](auto& d) { d.weights = array, d.weights_dtype = PENSTOCK_BF16, d.lent = 2; }, level1);
  penstock_group group = 0;
  EXPECT_REFUSED(PENSTOCK_E_ARGUMENT, penstock_group_register(e, "a", &group));
  EXPECT_REFUSED(PENSTOCK_E_ARGUMENT, penstock_group_find(e, "nobody", &group));
  EXPECT_REFUSED(PENSTOCK_E_ARGUMENT, penstock_set_order(e, &other.a, 1, nullptr, 0));
  EXPECT_REFUSED(PENSTOCK_E_ARGUMENT, penstock_set_order(level1, nullptr, 0, &one.a, 1));
  EXPECT_REFUSED(PENSTOCK_E_ARGUMENT, penstock_engine_set_budget(e, 9, 1));
  EXPECT_REFUSED(PENSTOCK_E_UNSUPPORTED, penstock_engine_set_budget(e, PENSTOCK_TIER_DEVICE, 1));
  EXPECT_REFUSED(PENSTOCK_E_UNSUPPORTED, penstock_engine_set_budget(e, PENSTOCK_TIER_NVME, 1));
  std::uint64_t bytes = 0;
  EXPECT_REFUSED(PENSTOCK_E_ARGUMENT, penstock_plan_minimum_bytes(e, PENSTOCK_TIER_NVME, &bytes));
}

TEST(MisuseTest, ModelsThatCannotRunAreRefusedAtOpen) {
  Small small(2, false);
  small.engine.set_host_budget(4096);
  EXPECT_REFUSED(PENSTOCK_E_NO_MEMORY, penstock_engine_open(small.engine.get()));
  small.engine.set_host_budget(small.engine.minimum_host_bytes());
  small.engine.open();  // a refused open may be tried again

  Small empty_group(2, false);
  (void)empty_group.engine.add_group("nothing");
  EXPECT_REFUSED(PENSTOCK_E_STATE, penstock_engine_open(empty_group.engine.get()));

  Small one(1, false);
  std::vector<float> array(200);
  for (int i = 0; i < 2; ++i) {
    penstock_tensor_desc desc = Small::describe(i == 0 ? "x" : "y", one.b);
    desc.weights = array.data() + i * 50;
    desc.weights_dtype = PENSTOCK_F32;
    (void)one.engine.add_tensor(desc);
  }
  EXPECT_REFUSED(PENSTOCK_E_ARGUMENT, penstock_engine_open(one.engine.get()));
}

}  // namespace
}  // namespace penstock::capi_testing
