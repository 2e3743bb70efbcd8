// The training of training.c, at each level and with each kind of weights, equals the same one
// through engine.hpp, bit for bit.

#include "capi/training.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/clock.hpp"
#include "engine/engine.hpp"
#include "temporary_directory.hpp"

namespace penstock::capi_testing {
namespace {

using testing::TemporaryDirectory;

struct Outcome {
  std::vector<double> norms;
  std::vector<float> masters;
};

std::size_t all_elements() {
  std::size_t count = 0;
  for (const training_tensor& tensor : kTraining) count += tensor.elements;
  return count;
}

ModelSpec training_model() {
  ModelSpec model;
  model.groups.assign(std::begin(kTrainingGroupNames), std::end(kTrainingGroupNames));
  for (const training_tensor& tensor : kTraining) {
    TensorSpec spec;
    spec.name = tensor.name;
    spec.group = tensor.group;
    spec.shape.assign(tensor.shape, tensor.shape + tensor.rank);
    spec.decay = tensor.rank >= 2;
    spec.contributions = tensor.contributions;
    spec.init.kind = tensor.init == PENSTOCK_INIT_NORMAL     ? Init::Kind::kNormal
                     : tensor.init == PENSTOCK_INIT_CONSTANT ? Init::Kind::kConstant
                                                             : Init::Kind::kZeros;
    spec.init.constant = 1.0F;
    spec.init.deviation = 0.02F;
    model.tensors.push_back(std::move(spec));
  }
  model.forward.assign(std::begin(kTrainingForward), std::end(kTrainingForward));
  model.backward.assign(std::begin(kTrainingBackward), std::end(kTrainingBackward));
  return model;
}

Status step_through_engine(Engine& engine, const ModelSpec& model, std::uint64_t step,
                           Outcome& out) {
  std::vector<float> gradient;
  PENSTOCK_CHECK_OK(engine.step_begin());
  bool tied_seen = false;
  for (const GroupId group : model.backward) {
    PENSTOCK_TRY(lease, engine.acquire(group), "backward");
    for (TensorId t = 0; t < model.tensors.size(); ++t) {
      if (model.tensors[t].group != group) continue;
      const std::uint32_t n = model.tensors[t].contributions;
      const std::uint32_t k = n == 2 && !tied_seen ? 1 : 0;
      gradient.resize(engine.tensor_elements(t));
      for (std::uint64_t i = 0; i < gradient.size(); ++i) {
        gradient[i] = training_gradient(step, t, k, i, lease.data()[engine.tensor_offset(t) + i]);
      }
      PENSTOCK_CHECK_OK(engine.gradient(t, gradient.data(), WeightType::kF32, k, n));
    }
    tied_seen = tied_seen || group == 0;
  }
  penstock_step_input given;
  EXPECT_EQ(penstock_step_input_init(&given, sizeof given), PENSTOCK_OK);
  training_input(step, &given);
  StepInput input;
  input.hyper = {given.lr, given.beta1, given.beta2, given.eps, given.weight_decay};
  input.max_norm = given.max_norm;
  input.gradient_scale = given.gradient_scale;
  auto report = step == kSkippedStep ? engine.step_skip({}) : engine.step_end(input, {});
  if (!report) return std::move(report).error();
  out.norms.push_back(report.value().applied ? report.value().norm : 0.0);
  return ok();
}

Status run_through_engine(Outcome& out) {
  const TemporaryDirectory directory;
  const ModelSpec model = training_model();
  EngineOptions options;
  options.directory = directory.store();
  options.seed = 11;
  options.host_bytes = std::uint64_t{1} << 30;
  const auto storage = make_posix_storage();
  const auto executor = make_tbb_executor(1);
  const auto communicators = make_in_process_group(1);
  const EngineParts parts{*storage, *executor, *communicators[0], [] { return now_ns(); }, {}};
  PENSTOCK_TRY(engine, make_engine(parts, options, model), "reference");
  for (std::uint64_t step = 1; step <= kTrainingSteps; ++step) {
    PENSTOCK_CHECK_OK(step_through_engine(*engine, model, step, out));
  }
  out.masters.resize(all_elements());
  std::size_t at = 0;
  for (TensorId t = 0; t < model.tensors.size(); ++t) {
    PENSTOCK_CHECK_OK(engine->export_master(t, out.masters.data() + at));
    at += engine->tensor_elements(t);
  }
  return ok();
}

const Outcome& reference() {
  static const Outcome outcome = [] {
    Outcome out;
    const Status status = run_through_engine(out);
    EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
    return out;
  }();
  return outcome;
}

struct Case {
  const char* name;
  std::int32_t level;
  std::uint64_t extra_bytes;
  penstock_dtype weights;
  std::int32_t lent;
  std::uint32_t threads;
  const char* queue;
};

class TrainingTest : public ::testing::TestWithParam<Case> {};

TEST_P(TrainingTest, EqualsTheEngineBitForBit) {
  const Case& c = GetParam();
  const TemporaryDirectory directory;
  const std::string store = directory.store();
  const training_options options{store.c_str(), c.level,   c.extra_bytes, c.weights,
                                 c.lent,        c.threads, c.queue,       nullptr};
  std::vector<float> masters(all_elements());
  training_result result{};
  result.masters = masters.data();
  ASSERT_EQ(training_run(&options, &result), 0) << "(a line of training.c) " << result.error;
  EXPECT_EQ(result.updates, static_cast<std::uint64_t>(kTrainingSteps - 2));
  EXPECT_EQ(result.committed_step, static_cast<std::uint64_t>(kTrainingSteps));
  EXPECT_EQ(std::vector<double>(std::begin(result.norms), std::end(result.norms)),
            reference().norms);
  std::size_t differences = 0;
  for (std::size_t i = 0; i < masters.size(); ++i) {
    differences += std::memcmp(&masters[i], &reference().masters[i], sizeof(float)) != 0 ? 1 : 0;
  }
  EXPECT_EQ(differences, 0U);
}

INSTANTIATE_TEST_SUITE_P(Cases, TrainingTest,
                         ::testing::Values(Case{"level2_minimum", 2, 0, 0, 0, 1, "threads"},
                                           Case{"level2_some", 2, 1 << 20, 0, 0, 2, nullptr},
                                           Case{"level2_all", 2, 64 << 20, 0, 0, 1, "auto"},
                                           Case{"level1_f32", 1, 0, PENSTOCK_F32, 0, 1, "threads"},
                                           Case{"level1_bf16", 1, 1 << 20, PENSTOCK_BF16, 0, 2,
                                                nullptr},
                                           Case{"level1_lent", 1, 0, PENSTOCK_BF16, 1, 1, "auto"}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace penstock::capi_testing
