#pragma once

/// Small models and batches that the tests, the golden file and the PyTorch comparison share.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/executor.hpp"
#include "train/fake_engine.hpp"
#include "train/trainer.hpp"

namespace penstock::test {

struct ModelCase {
  std::string name;
  ModelConfig config;
  BatchShape batch;
  bool golden = false;  ///< small enough for the golden file
  std::int64_t logit_chunk_bytes = 16 << 20;
};

/// Between them: both families, tied and untied, shared key-value heads, several query blocks,
/// several vocabulary chunks, several sequences and micro-batches, sizes that are multiples of
/// nothing.
[[nodiscard]] const std::vector<ModelCase>& model_cases();
[[nodiscard]] const ModelCase& model_case(const std::string& name);

struct RunOptions {
  ComputeMode compute = ComputeMode::kF32;
  StepOrder order = StepOrder::kVertical;
  int threads = 2;
  std::optional<Isa> isa;  ///< default: the best here
  std::int64_t kept_layers = 0;
  bool deterministic_executor = false;
  std::uint64_t seed = 1;         ///< of that executor
  std::size_t lacking_bytes = 0;  ///< workspace less than needed
};

/// A model, its fake engine and a trainer.
class ModelRun {
 public:
  static Result<std::unique_ptr<ModelRun>> make(const ModelCase& which, const RunOptions& options);
  ~ModelRun();

  [[nodiscard]] TokenBatch batch() const { return {inputs_, targets_}; }
  [[nodiscard]] const ModelCase& which() const { return case_; }
  Trainer& trainer() { return *trainer_; }
  FakeEngine& engine() { return *engine_; }
  Transformer& model() { return *model_; }

  /// One step; all gradients, tensor after tensor.
  Result<TrainReport> step() { return trainer_->step(batch(), {}, {}); }
  [[nodiscard]] std::vector<float> gradients() const;

 private:
  ModelRun() = default;
  ModelCase case_;
  std::unique_ptr<Timeline> timeline_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Transformer> model_;
  std::unique_ptr<FakeEngine> engine_;
  std::unique_ptr<Trainer> trainer_;
  std::vector<std::uint32_t> inputs_, targets_;
};

/// What a comparison needs of a run.
struct Outcome {
  double loss = 0.0;
  std::vector<float> logits;     ///< after the whole first sequence
  std::vector<float> gradients;  ///< tensor after tensor
};
Result<Outcome> outcome_of(const ModelCase& which, const RunOptions& options);

}  // namespace penstock::test
