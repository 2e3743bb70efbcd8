#pragma once

/// Steps of training, evaluation and next-token logits of a Transformer against an Engine.
///
/// A step in vertical order: for each group forward, lease it and run all micro-batches; likewise
/// backward, and hand over each tensor's gradient before the lease ends. One lease is held at a
/// time.
/// Threads: the engine's trainer thread. Errors: arguments are checked before the step begins;
///   later failures come from the engine and leave its step unfinished.

#include <cstdint>
#include <memory>
#include <span>

#include "engine/engine.hpp"
#include "train/transformer.hpp"

namespace penstock {

/// Where a pass's time went, in seconds.
struct PassTime {
  double wall = 0.0;
  double waited = 0.0;  ///< of it, inside the engine
  [[nodiscard]] double compute() const { return wall - waited; }
};

struct TrainReport {
  double loss = 0.0;  ///< mean cross entropy (nats) over the step's tokens, before the update
  PassTime forward, backward;  ///< the backward includes the end of the step
  StepReport step;
};

class Trainer {
 public:
  /// Binds the model to the engine's workspace. Both must outlive the trainer; the engine was made
  /// from model.spec().
  static Result<std::unique_ptr<Trainer>> create(Engine& engine, Transformer& model,
                                                 std::int64_t kept_layers);

  /// One attempt: forward, backward, record. `blob`: see Engine::step_end.
  Result<TrainReport> step(const TokenBatch& batch, const StepInput& input,
                           std::span<const std::byte> blob);

  /// Mean cross entropy without gradients. For several batches put eval_begin() and eval_end() of
  /// the engine around the calls.
  Result<double> evaluate(const TokenBatch& batch);

  /// Logits of the token after `context` (1 to seq tokens), between eval_begin() and eval_end().
  /// out: [vocab].
  Status next_token_logits(std::span<const std::uint32_t> context, std::span<float> out);

 private:
  Trainer(Engine& engine, Transformer& model) : engine_(engine), model_(model) {}
  [[nodiscard]] MicroRange all_of(const TokenBatch& batch) const;
  Status forward(const TokenBatch& batch, MicroRange range, const Transformer::Goal& goal);
  Status backward(const TokenBatch& batch, MicroRange range, float factor, bool deliver);
  Status deliver(const Visit& visit);
  Result<double> vertical(const TokenBatch& batch);
  Result<double> horizontal(const TokenBatch& batch);

  PassTime lap();  ///< since the last lap

  Engine& engine_;
  Transformer& model_;
  std::uint64_t lap_ns_ = 0, lap_waited_ns_ = 0;
  PassTime forward_time_;
};

}  // namespace penstock
