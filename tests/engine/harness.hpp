#pragma once

/// The many ways to run the small model through the engine, and the comparison with the plain loop.

#include <gtest/gtest.h>

#include <cctype>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/counters.hpp"
#include "engine/reference.hpp"
#include "io/sim_storage.hpp"
#include "temporary_directory.hpp"

namespace penstock::testing {

/// The fastest kernels of this machine; scalar ones take most of a test's time.
inline Isa widest_isa() {
  for (const Isa isa : {Isa::kAvx512, Isa::kAvx2}) {
    if (isa_supported(isa)) return isa;
  }
  return Isa::kScalar;
}

/// How one run differs from another.
struct Setup {
  Level level = Level::kWeights;
  int budget_percent = 0;  ///< of the state, above the minimum
  enum class Queue { kThreads, kUring, kSim } queue = Queue::kThreads;
  int threads = 1;  ///< 0: the deterministic executor (needs kSim)
  Isa isa = widest_isa();
  std::uint32_t block_elements = 16384;
  std::uint32_t commit_every = 1;  ///< 0: auto
  bool scratch = false;
  std::uint32_t checkpoints = 0;           ///< room for so many
  std::size_t drives = 1;                  ///< the others get directories beside the store's
  WeightType weights = WeightType::kNone;  ///< level 1
  bool lent = false;
  std::uint64_t seed = 11;
  SimFaults faults;
  ProtocolFaults protocol_faults;
};

/// GoogleTest has a Setup of its own, which hides ours inside tests.
using RunSetup = Setup;

inline std::string describe(const Setup& s) {
  return "level " + std::to_string(static_cast<int>(s.level)) + " budget +" +
         std::to_string(s.budget_percent) + "% queue " + std::to_string(static_cast<int>(s.queue)) +
         " threads " + std::to_string(s.threads) + " isa " + std::string(isa_name(s.isa)) +
         " block " + std::to_string(s.block_elements) + " K " + std::to_string(s.commit_every) +
         (s.scratch ? " scratch" : "") + (s.lent ? " lent" : "") + " weights " +
         std::to_string(static_cast<int>(s.weights));
}

/// The same as a part of a test's name: letters, digits and underscores.
inline std::string test_name(const Setup& setup) {
  std::string name;
  for (const char c : describe(setup)) {
    const bool word = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (word || (!name.empty() && name.back() != '_')) name += word ? c : '_';
  }
  return name;
}

inline void PrintTo(const Setup& setup, std::ostream* out) {
  *out << describe(setup);
}

/// The world an engine runs in; members die in the right order.
struct World {
  static constexpr const char* kSimRoot = "/sim";

  /// Where the store goes: on the simulated drive, or in the test's own directory.
  [[nodiscard]] std::string store(const TemporaryDirectory& directory) const {
    return sim != nullptr ? std::string(kSimRoot) + "/store" : directory.store();
  }
  explicit World(const Setup& setup) : timeline(setup.seed) {
    if (setup.queue == Setup::Queue::kSim) {
      auto sim_storage = make_sim_storage(timeline, setup.faults);
      sim = sim_storage.get();
      storage = std::move(sim_storage);
      EXPECT_TRUE(storage->make_directory(kSimRoot).ok());
    } else {
      storage = make_posix_storage();
    }
    executor = setup.threads == 0 ? make_deterministic_executor(timeline)
                                  : make_tbb_executor(setup.threads);
    communicators = make_in_process_group(1);
  }
  [[nodiscard]] EngineParts parts(const Setup& setup) {
    const bool is_virtual = setup.threads == 0;
    return {*storage, *executor, *communicators[0],
            [this, is_virtual] { return is_virtual ? timeline.now_ns() : now_ns(); }, logger};
  }
  Timeline timeline;
  SimStorage* sim = nullptr;
  std::unique_ptr<Storage> storage;
  std::unique_ptr<Executor> executor;
  std::vector<std::unique_ptr<Communicator>> communicators;
  Logger logger;
};

inline std::uint64_t state_bytes(const ModelSpec& model) {
  std::uint64_t bytes = 0;
  for (const TensorSpec& tensor : model.tensors) {
    std::uint64_t n = 1;
    for (const std::int64_t d : tensor.shape) n *= static_cast<std::uint64_t>(d);
    bytes += n * 14;  // hi, lo, m, v and the gradient
  }
  return bytes;
}

inline EngineOptions engine_options(const Setup& setup, const ModelSpec& model,
                                    const std::string& directory) {
  EngineOptions options;
  options.directory = directory;
  options.block_elements = setup.block_elements;
  options.commit_every = setup.commit_every;
  options.scratch = setup.scratch;
  options.checkpoints = setup.checkpoints;
  for (std::size_t i = 1; i < setup.drives; ++i) {
    options.further_directories.push_back(directory + "-" + std::to_string(i));
  }
  options.seed = setup.seed;
  options.uuid_seed = setup.seed + 1;
  options.isa = setup.isa;
  options.workspace_bytes = 10000;
  options.deadline_ns = 60'000'000'000;
  options.faults = setup.protocol_faults;
  options.queue.backend =
      setup.queue == Setup::Queue::kThreads ? QueueBackend::kThreads : QueueBackend::kUring;
  options.queue.threads = 2;
  auto minimum = minimum_host_bytes(options, model);
  EXPECT_TRUE(minimum.ok());
  if (minimum.ok()) {
    options.host_bytes = minimum.value() + state_bytes(model) *
                                               static_cast<std::uint64_t>(setup.budget_percent) /
                                               100;
  }
  return options;
}

/// What a trainer keeps of its own at level 1.
struct TrainerWeights {
  std::vector<std::vector<std::byte>> arrays;  // per tensor
};

inline void attach_weights(ModelSpec& model, const Setup& setup, TrainerWeights& weights) {
  if (setup.level != Level::kStates) return;
  weights.arrays.resize(model.tensors.size());
  for (TensorId t = 0; t < model.tensors.size(); ++t) {
    TensorSpec& tensor = model.tensors[t];
    std::uint64_t n = 1;
    for (const std::int64_t d : tensor.shape) n *= static_cast<std::uint64_t>(d);
    weights.arrays[t].resize(n * (setup.weights == WeightType::kF32 ? 4 : 2));
    tensor.weights = weights.arrays[t].data();
    tensor.weight_type = setup.weights;
    tensor.lent = setup.lent;
  }
}

/// The trainer's blob after a step: the step and the data position, so that both can be compared.
inline std::vector<std::byte> blob_of(std::uint64_t step) {
  std::vector<std::byte> blob(16);
  const std::uint64_t words[2] = {step, step * 1000003};
  std::memcpy(blob.data(), words, sizeof words);
  return blob;
}

/// Runs steps first..last (1-based) of the script through an engine.
class Runner {
 public:
  Runner(Engine& engine, const ModelSpec& model, const Setup& setup, const TrainerWeights& weights)
      : engine_(engine), model_(model), setup_(setup), weights_(weights) {}

  Status run_step(std::uint64_t step, const Script& script) {
    const StepKind kind = script.steps[step - 1];
    PENSTOCK_CHECK_OK(engine_.step_begin());
    if (setup_.level == Level::kWeights) {
      PENSTOCK_CHECK_OK(level2(step, kind));
    } else {
      PENSTOCK_CHECK_OK(level1(step, kind));
    }
    const std::vector<std::byte> blob = blob_of(step);
    auto report = kind == StepKind::kSkip
                      ? engine_.step_skip(blob)
                      : engine_.step_end(step_input(step, script.max_norm), blob);
    if (!report) return std::move(report).error();
    norms.push_back(report.value().applied ? report.value().norm : 0.0);
    if (kind == StepKind::kEvalAfter && setup_.level == Level::kWeights) {
      PENSTOCK_CHECK_OK(engine_.eval_begin());
      for (const GroupId group : model_.forward) {
        PENSTOCK_TRY(lease, engine_.acquire(group), "eval");
        EXPECT_EQ(lease.version(), engine_.updates());
      }
      PENSTOCK_CHECK_OK(engine_.eval_end());
    }
    return ok();
  }

  std::vector<double> norms;

 private:
  template <class WeightOf>
  Status give(std::uint64_t step, StepKind kind, TensorId t, std::uint32_t k, WeightOf weight_of) {
    if (!gets_gradient(kind, t)) return ok();
    const std::uint64_t n = engine_.tensor_elements(t);
    gradient_.resize(n);
    for (std::uint64_t i = 0; i < n; ++i) {
      gradient_[i] = synthetic_gradient(step, t, k, i, weight_of(i));
    }
    if (kind == StepKind::kInfinite && t == 3) {
      gradient_[n / 2] = std::numeric_limits<float>::infinity();
    }
    const std::uint32_t contributions = model_.tensors[t].contributions;
    return engine_.gradient(t, gradient_.data(), WeightType::kF32, k, contributions);
  }

  Status level2(std::uint64_t step, StepKind kind) {
    for (const GroupId group : model_.forward) {
      PENSTOCK_TRY(lease, engine_.acquire(group), "forward");
      (void)lease;
    }
    bool tied_seen = false;
    for (const GroupId group : model_.backward) {
      PENSTOCK_TRY(lease, engine_.acquire(group), "backward");
      for (TensorId t = 0; t < model_.tensors.size(); ++t) {
        if (model_.tensors[t].group != group) continue;
        const std::uint16_t* hi = lease.data() + engine_.tensor_offset(t);
        // The last use in forward comes first in backward.
        const std::uint32_t k = model_.tensors[t].contributions == 2 && !tied_seen ? 1 : 0;
        PENSTOCK_CHECK_OK(give(step, kind, t, k, [&](std::uint64_t i) { return widen(hi[i]); }));
      }
      tied_seen = tied_seen || group == 0;
    }
    return ok();
  }

  Status level1(std::uint64_t step, StepKind kind) {
    for (TensorId t = 0; t < model_.tensors.size(); ++t) {
      PENSTOCK_CHECK_OK(engine_.wait(t, engine_.updates()));
      const std::byte* bytes = weights_.arrays[t].data();
      const auto weight_of = [&](std::uint64_t i) {
        if (setup_.weights == WeightType::kF32) {
          std::uint32_t bits = 0;
          std::memcpy(&bits, bytes + i * 4, 4);
          return widen(static_cast<std::uint16_t>((bits + 0x8000U) >> 16));
        }
        std::uint16_t bits = 0;
        std::memcpy(&bits, bytes + i * 2, 2);
        return widen(bits);
      };
      for (std::uint32_t k = 0; k < model_.tensors[t].contributions; ++k) {
        PENSTOCK_CHECK_OK(give(step, kind, t, k, weight_of));
      }
    }
    return ok();
  }

  Engine& engine_;
  const ModelSpec& model_;
  const Setup& setup_;
  const TrainerWeights& weights_;
  std::vector<float> gradient_;
};

/// Compares every master weight with the reference after `step`; returns the number of differences.
inline std::size_t count_differences(Engine& engine, const ModelSpec& model,
                                     const Reference& reference, std::uint64_t step) {
  std::size_t differences = 0, offset = 0;
  for (TensorId t = 0; t < model.tensors.size(); ++t) {
    std::vector<float> master(engine.tensor_elements(t));
    const Status status = engine.export_master(t, master.data());
    EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
    for (std::size_t i = 0; i < master.size(); ++i) {
      std::uint32_t a = 0, b = 0;
      std::memcpy(&a, &master[i], 4);
      std::memcpy(&b, &reference.after[step - 1][offset + i], 4);
      differences += a != b ? 1 : 0;
    }
    offset += master.size();
  }
  return differences;
}

}  // namespace penstock::testing
