// Sessions through penstock.hpp: owners, resuming, reports, callbacks.

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "capi/half.hpp"
#include "penstock/penstock.hpp"
#include "temporary_directory.hpp"

namespace penstock::capi_testing {
namespace {

using testing::TemporaryDirectory;

constexpr std::int64_t kElements = 20000;

penstock_engine_options options_for(const std::string& store) {
  penstock_engine_options options = engine_options();
  options.directory = store.c_str();
  options.threads = 1;
  options.block_elements = 16384;
  options.description_json = R"({"batch": 8})";
  return options;
}

/// Two groups of one tensor each; they share a frame at the smallest budget.
void describe(Engine& engine, penstock_tensor_desc desc = tensor_desc()) {
  for (const char* name : {"a", "b"}) {
    desc.name = name;
    desc.group = engine.add_group(name);
    desc.rank = 2;
    desc.shape[0] = kElements / 100;
    desc.shape[1] = 100;
    (void)engine.add_tensor(desc);
  }
  engine.set_host_budget(engine.minimum_host_bytes());
}

void run_step(Engine& engine, const std::string& blob, float gradient = 0.5F) {
  const std::vector<float> values(kElements, gradient);
  engine.step_begin();
  for (const char* name : {"a", "b"}) engine.acquire(engine.group(name)).release();
  for (const char* name : {"b", "a"}) {
    const Lease lease = engine.acquire(engine.group(name));
    engine.gradient(engine.tensor(name), values.data(), PENSTOCK_F32);
  }
  engine.step_end(step_input(), blob.data(), blob.size());
}

penstock_status status_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_GT(std::strlen(error.what()), 10U);
    return error.status();
  }
  return PENSTOCK_OK;
}

TEST(SessionTest, ResumesWithTheBlobOfTheCommittedStep) {
  const TemporaryDirectory directory;
  const std::string store = directory.store();
  std::vector<float> before;
  {
    Engine engine(options_for(store));
    describe(engine);
    engine.open();
    EXPECT_FALSE(engine.resumed());
    EXPECT_TRUE(engine.opened_blob().empty());
    run_step(engine, "first");
    run_step(engine, "second");
    engine.flush();
    EXPECT_EQ(engine.committed_step(), 2U);
    before = engine.export_master(engine.tensor("a"));
    EXPECT_LT(before[0], 0.0F);

    // In use by this engine: another one must not have it.
    penstock_engine_options options = options_for(store);
    Engine second(options);
    describe(second);
    EXPECT_EQ(status_of([&] { second.open(); }), PENSTOCK_E_STATE);
  }
  penstock_engine_options options = options_for(store);
  options.description_json = R"({"batch": 9})";
  Engine other(options);
  describe(other);
  EXPECT_EQ(status_of([&] { other.open(); }), PENSTOCK_E_STATE) << "another batch went unnoticed";
  other.destroy();

  options = options_for(store);
  options.mode = PENSTOCK_RESUME;
  Engine engine(options);
  describe(engine);
  engine.open();
  EXPECT_TRUE(engine.resumed());
  EXPECT_EQ(engine.step(), 2U);
  EXPECT_EQ(engine.updates(), 2U);
  const std::vector<std::byte> blob = engine.opened_blob();
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(blob.data()), blob.size()), "second");
  EXPECT_EQ(engine.export_master(engine.tensor("a")), before);
}

TEST(SessionTest, KeepsCheckpointsOnSeveralDrives) {
  const TemporaryDirectory directory;
  const std::string store = directory.store(), other = store + "-1";
  penstock_engine_options options = options_for(store);
  const char* further[] = {other.c_str()};
  options.further_directories = further;
  options.further_count = 1;
  options.checkpoint_room = 2;
  {
    Engine engine(options);
    describe(engine);
    engine.open();
    run_step(engine, "first");
    engine.checkpoint("one");
    for (int step = 2; step < 5; ++step) {
      run_step(engine, "more");
      engine.rotate_checkpoints(1);
    }
    EXPECT_EQ(status_of([&] { engine.checkpoint("one"); }), PENSTOCK_E_STATE);
    EXPECT_EQ(status_of([&] { engine.checkpoint("two"); }), PENSTOCK_E_NO_SPACE);
    EXPECT_EQ(status_of([&] { engine.checkpoint("a/b"); }), PENSTOCK_E_ARGUMENT);
    EXPECT_EQ(status_of([&] { engine.checkpoint(""); }), PENSTOCK_E_ARGUMENT);
    engine.flush();
    const auto kept = nlohmann::json::parse(engine.checkpoints_json());
    EXPECT_EQ(kept["schema"], "penstock.checkpoints/1");
    EXPECT_EQ(kept["room"], 2);
    ASSERT_EQ(kept["checkpoints"].size(), 2U);
    EXPECT_EQ(kept["checkpoints"][0]["name"], "one");
    EXPECT_EQ(kept["checkpoints"][0]["step"], 1);
    EXPECT_EQ(kept["checkpoints"][1]["name"], "step-4");
    EXPECT_EQ(kept["checkpoints"][1]["rotating"], true);
    engine.drop_checkpoint("one");
    EXPECT_EQ(status_of([&] { engine.drop_checkpoint("one"); }), PENSTOCK_E_STATE);
    EXPECT_EQ(penstock_checkpoint_drop(engine.get(), nullptr), PENSTOCK_E_ARGUMENT);
    EXPECT_EQ(penstock_checkpoints_json(engine.get(), nullptr), PENSTOCK_E_ARGUMENT);
  }
  options.further_count = 0;
  Engine half(options);
  describe(half);
  EXPECT_EQ(status_of([&] { half.open(); }), PENSTOCK_E_STATE) << "a drive is missing";
  half.destroy();
  options.further_count = 1;
  Engine engine(options);
  describe(engine);
  engine.open();
  EXPECT_EQ(engine.step(), 4U);
  further[0] = nullptr;
  EXPECT_EQ(status_of([&] { Engine bad(options); }), PENSTOCK_E_ARGUMENT);
  options.further_directories = nullptr;
  EXPECT_EQ(status_of([&] { Engine bad(options); }), PENSTOCK_E_ARGUMENT);
  options.further_count = 0;
  options.checkpoint_room = 1000;
  EXPECT_EQ(status_of([&] { Engine bad(options); }), PENSTOCK_E_ARGUMENT);
}

TEST(SessionTest, CopiesItsStoreWhileItGoesOn) {
  const TemporaryDirectory directory;
  const std::string store = directory.store(), copy = store + "-copy";
  std::vector<float> at_two;
  {
    Engine engine(options_for(store));
    describe(engine);
    engine.open();
    EXPECT_EQ(nlohmann::json::parse(engine.copy_json())["state"], "none");
    run_step(engine, "one");
    run_step(engine, "two");
    engine.copy_store(copy);
    at_two = engine.export_master(engine.tensor("a"));
    run_step(engine, "three");
    engine.flush();
    const auto report = nlohmann::json::parse(engine.copy_json());
    EXPECT_EQ(report["schema"], "penstock.copy/1");
    EXPECT_EQ(report["state"], "done") << report.dump();
    EXPECT_EQ(report["step"], 2);
    EXPECT_EQ(report["directory"], copy);
    EXPECT_EQ(status_of([&] { engine.copy_store(copy); }), PENSTOCK_E_STATE) << "it is taken";
    EXPECT_EQ(status_of([&] { engine.copy_store(""); }), PENSTOCK_E_ARGUMENT);
    EXPECT_EQ(penstock_copy_store(engine.get(), nullptr), PENSTOCK_E_ARGUMENT);
    EXPECT_EQ(penstock_copy_json(engine.get(), nullptr), PENSTOCK_E_ARGUMENT);
  }
  Engine engine(options_for(copy));
  describe(engine);
  engine.open();
  EXPECT_EQ(engine.step(), 2U);
  const std::vector<std::byte> blob = engine.opened_blob();
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(blob.data()), blob.size()), "two");
  EXPECT_EQ(engine.export_master(engine.tensor("a")), at_two);
}

TEST(SessionTest, ReportsArePlainJson) {
  const TemporaryDirectory directory;
  const std::string store = directory.store();
  penstock_engine_options options = options_for(store);
  options.queue = "threads";
  options.isa = "scalar";
  options.workspace_bytes = 100000;
  Engine engine(options);
  describe(engine);
  const auto plan = nlohmann::json::parse(engine.plan_json());
  EXPECT_EQ(plan["schema"], "penstock.plan/1");
  EXPECT_EQ(plan["groups"].size(), 2U);
  EXPECT_EQ(plan["groups"][1]["name"], "b");
  EXPECT_EQ(plan["host"]["minimum_bytes"], engine.minimum_host_bytes());
  engine.open();
  EXPECT_EQ(nlohmann::json::parse(engine.plan_json()), plan);
  const Engine::Memory workspace = engine.workspace();
  ASSERT_GE(workspace.bytes, 100000U);
  std::memset(workspace.data, 1, workspace.bytes);
  run_step(engine, "");
  engine.flush();
  const auto stats = nlohmann::json::parse(engine.stats_json());
  EXPECT_EQ(stats["step"], 1);
  EXPECT_EQ(stats["committed_step"], 1);
  EXPECT_EQ(stats["queue"], "threads");
  EXPECT_EQ(stats["isa"], "scalar");
  std::uint64_t written = 0;
  for (const auto& cell : stats["total"]) {
    if (cell["link"] == "drive_write") written += cell["bytes"].get<std::uint64_t>();
  }
  EXPECT_GE(written, 2U * kElements * 12U);
  const auto build = nlohmann::json::parse(penstock_build_info());
  EXPECT_EQ(build["version"], "0.1.0");
}

std::string numbered(int i) {
  std::string name("g");
  name += std::to_string(i);
  return name;
}

TEST(SessionTest, AGroupWhoseFrameIsLeasedIsRefusedInsteadOfWaitedFor) {
  const TemporaryDirectory directory;
  const std::string store = directory.store();
  Engine engine(options_for(store));
  for (int i = 0; i < 6; ++i) {
    penstock_tensor_desc desc = tensor_desc();
    const std::string name = numbered(i);
    desc.name = name.c_str();
    desc.group = engine.add_group(name);
    desc.rank = 1;
    desc.shape[0] = kElements;
    (void)engine.add_tensor(desc);
  }
  engine.set_host_budget(engine.minimum_host_bytes());
  engine.open();
  engine.eval_begin();
  std::vector<Lease> held;
  int refused = 0;
  for (int i = 0; i < 6; ++i) {
    const auto group = engine.group(numbered(i));
    const auto status = status_of([&] { held.push_back(engine.acquire(group)); });
    if (status != PENSTOCK_OK) {
      EXPECT_EQ(status, PENSTOCK_E_STATE);
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(held.size(), 0U);
  EXPECT_EQ(status_of([&] { engine.eval_end(); }), PENSTOCK_E_STATE);
  held.clear();
  engine.acquire(engine.group("g5")).release();
  engine.eval_end();
}

struct Seen {
  std::atomic<int> messages{0};
  std::atomic<bool> refused{false};
  penstock_engine* engine = nullptr;
};

TEST(SessionTest, CallbacksAreCalledAndMayNotCallBack) {
  const TemporaryDirectory directory;
  const std::string store = directory.store();
  Seen seen;
  penstock_engine_options options = options_for(store);
  options.log_user = &seen;
  options.log = [](void* user, penstock_log_level level, const char* file, std::int32_t line,
                   const char* message) {
    auto& s = *static_cast<Seen*>(user);
    EXPECT_GE(level, PENSTOCK_LOG_INFO);
    EXPECT_NE(file, nullptr);
    EXPECT_GT(line, 0);
    EXPECT_GT(std::strlen(message), 0U);
    ++s.messages;
  };
  Engine engine(options);
  seen.engine = engine.get();
  penstock_tensor_desc desc = tensor_desc();
  desc.init = PENSTOCK_INIT_VALUES;
  desc.values_user = &seen;
  desc.values = [](void* user, std::uint64_t first, std::uint64_t count, float* out) {
    auto& s = *static_cast<Seen*>(user);
    std::uint64_t step = 0;
    s.refused = penstock_step(s.engine, &step) == PENSTOCK_E_STATE;
    std::iota(out, out + count, static_cast<float>(first));
  };
  describe(engine, desc);
  engine.open();
  EXPECT_GT(seen.messages, 0);
  EXPECT_TRUE(seen.refused);
  std::vector<float> expected(kElements);
  std::iota(expected.begin(), expected.end(), 0.0F);
  EXPECT_EQ(engine.export_master(engine.tensor("b")), expected);
}

TEST(SessionTest, LevelOneTakesFirstValuesFromHalfWeightsAndWritesThemBack) {
  const TemporaryDirectory directory;
  const std::string store = directory.store();
  std::vector<std::uint16_t> weights(kElements);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = f16_of(static_cast<float>(i) / 16384.0F);
  }
  penstock_engine_options options = options_for(store);
  options.level = 1;
  Engine engine(options);
  penstock_tensor_desc desc = tensor_desc();
  desc.name = "w";
  desc.group = engine.add_group("w");
  desc.rank = 1;
  desc.shape[0] = kElements;
  desc.init = PENSTOCK_INIT_FROM_WEIGHTS;
  desc.weights = weights.data();
  desc.weights_dtype = PENSTOCK_F16;
  const penstock_tensor w = engine.add_tensor(desc);
  engine.set_host_budget(engine.minimum_host_bytes());
  engine.open();
  std::vector<float> master = engine.export_master(w);
  for (std::size_t i = 0; i < master.size(); ++i) {
    ASSERT_EQ(master[i], from_f16(weights[i])) << i;
  }
  const std::vector<std::uint16_t> gradient(kElements, f16_of(1.0F));
  for (int step = 1; step <= 3; ++step) {
    engine.wait(w, engine.updates());
    engine.step_begin();
    engine.gradient(w, gradient.data(), PENSTOCK_F16);
    engine.step_end(step_input());
  }
  // The next gradient would come from weights that were never waited for.
  engine.step_begin();
  EXPECT_EQ(status_of([&] { engine.gradient(w, gradient.data(), PENSTOCK_F16); }),
            PENSTOCK_E_STATE);
  engine.step_skip();
  EXPECT_EQ(status_of([&] { (void)engine.acquire(engine.group("w")); }), PENSTOCK_E_STATE);
  engine.wait(w, 3);
  EXPECT_TRUE(engine.query(w, 3));
  EXPECT_EQ(status_of([&] { engine.wait(w, 4); }), PENSTOCK_E_ARGUMENT);
  master = engine.export_master(w);
  for (std::size_t i = 0; i < master.size(); ++i) {
    ASSERT_EQ(weights[i], f16_of(master[i])) << i;
  }
}

TEST(SessionTest, OwnersMoveAndOutliveEachOther) {
  const TemporaryDirectory directory;
  const std::string store = directory.store();
  penstock_engine_options options = options_for(store);
  options.scratch = 1;
  Engine first(options);
  describe(first);
  first.open();
  Engine engine(std::move(first));
  EXPECT_EQ(first.get(), nullptr);  // NOLINT: what a moved-from owner holds is the point
  Lease lease = engine.acquire(engine.group("a"));
  Lease moved(std::move(lease));
  EXPECT_FALSE(lease.valid());  // NOLINT
  EXPECT_TRUE(moved.valid());
  EXPECT_EQ(moved.bytes() % 2, 0U);
  EXPECT_EQ(moved.version(), 0U);
  penstock_engine* const handle = engine.get();
  engine.destroy();
  EXPECT_EQ(penstock_engine_destroy(handle), PENSTOCK_E_STATE);
  EXPECT_EQ(status_of([&] { moved.release(); }), PENSTOCK_E_STATE);
}

// Facts are asked for, and the engine is destroyed, while another thread is inside a call.
TEST(SessionTest, FactsAndDestroyMayRaceWithCalls) {
  const TemporaryDirectory directory;
  const std::string store = directory.store();
  Engine engine(options_for(store));
  describe(engine);
  engine.open();
  std::atomic<bool> stop{false};
  std::thread watcher([&] {
    while (!stop) {
      std::uint64_t step = 0;
      char* text = nullptr;
      const auto status = penstock_step(engine.get(), &step);
      EXPECT_TRUE(status == PENSTOCK_OK || status == PENSTOCK_E_STATE);
      if (penstock_stats_json(engine.get(), &text) == PENSTOCK_OK) penstock_free(text);
    }
  });
  for (int i = 0; i < 5; ++i) run_step(engine, "x");
  EXPECT_EQ(engine.step(), 5U);
  EXPECT_EQ(penstock_engine_destroy(engine.get()), PENSTOCK_OK);
  stop = true;
  watcher.join();
  EXPECT_EQ(status_of([&] { engine.check_health(); }), PENSTOCK_E_STATE);
}

}  // namespace
}  // namespace penstock::capi_testing
