#pragma once

/// The model: forward and backward of each group over ranges of micro-batches, on the caller's
/// memory. It knows no engine: weights come as the leased bf16 array of a group, gradients leave as
/// fp32 sums.
///
/// Use: create, workspace_bytes, bind, then visits in order; trainer.hpp does that against an
/// Engine. Memory: all of it lies in the bound span: the residual stream before every layer for
/// every
///   micro-batch (checkpoints), the activations of one layer and micro-batch, of `kept_layers`
///   layers for all micro-batches besides, sums of one group's gradients, scratch. What is not kept
///   is computed again in the backward, to the same bits. No visit allocates.
/// Numbers: with ComputeMode::kBf16 products read bf16 and give fp32, on processors without
///   AVX512_BF16 they read fp32; the residual stream and everything else is fp32. The bits depend
///   on model, batch, mode and matrix library, not on threads, kept layers or the kernels' ISA.
/// Threads: one caller; loops over rows run on the executor.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/executor.hpp"
#include "train/layer.hpp"
#include "train/loss.hpp"
#include "train/shape.hpp"

namespace penstock {

enum class ComputeMode : std::uint8_t { kBf16, kF32 };

/// Vertical: all micro-batches of a group before the next group. Horizontal (one micro-batch after
/// another, for comparison) needs the gradient sums of all groups at once.
enum class StepOrder : std::uint8_t { kVertical, kHorizontal };

struct TransformerOptions {
  ModelConfig config;
  BatchShape batch;
  ComputeMode compute = ComputeMode::kBf16;
  StepOrder order = StepOrder::kVertical;
  MatmulOptions matmul;
  Isa isa = Isa::kScalar;  ///< of our kernels
  /// Of the logits of one vocabulary chunk, about; decides the order of sums.
  std::int64_t logit_chunk_bytes = 16 << 20;
};

/// Tokens of a step: [micro_batches][micro][seq], targets the tokens that follow.
struct TokenBatch {
  std::span<const std::uint32_t> inputs;
  std::span<const std::uint32_t> targets;
};

enum class VisitKind : std::uint8_t {
  kEmbed,
  kLayer,
  kHead,    ///< final norm; untied: and the logits
  kLogits,  ///< tied: the token embedding as the matrix of the logits
};

/// One gradient contribution and its sum.
struct GradientUse {
  TensorId tensor = 0;
  std::uint32_t k = 0, n = 1;  ///< contribution k of n
  std::int64_t count = 0;
  float* sum = nullptr;
};

/// One use of a group, in one direction.
struct Visit {
  VisitKind kind = VisitKind::kEmbed;
  GroupId group = 0;
  std::int64_t layer = 0;         ///< of kLayer
  std::vector<GradientUse> uses;  ///< backward: what it adds to
};

class Transformer {
 public:
  /// `executor` must outlive it.
  static Result<std::unique_ptr<Transformer>> create(const TransformerOptions& options,
                                                     Executor& executor);

  [[nodiscard]] const ModelSpec& spec() const { return spec_; }
  [[nodiscard]] const TransformerOptions& options() const { return options_; }
  [[nodiscard]] const Matmul& matmul() const { return *matmul_; }
  [[nodiscard]] Matmul& matmul() { return *matmul_; }
  /// The type that products read: kF32 also in bf16 mode where the processor lacks AVX512_BF16.
  [[nodiscard]] MatmulType operand() const { return operand_; }

  /// Exact bytes of the span for bind().
  [[nodiscard]] std::size_t workspace_bytes(std::int64_t kept_layers) const;
  /// The most layers whose activations fit in `extra_bytes` above workspace_bytes(0).
  [[nodiscard]] std::int64_t kept_layers_within(std::size_t extra_bytes) const;

  /// `memory`: aligned to 64, at least workspace_bytes(kept_layers). `offsets`: of each tensor in
  /// its group's array, in elements. kNoMemory when it is too small.
  Status bind(std::span<std::byte> memory, std::int64_t kept_layers,
              std::vector<std::uint64_t> offsets);

  [[nodiscard]] std::span<const Visit> forward_visits() const { return forward_; }
  [[nodiscard]] std::span<const Visit> backward_visits() const { return backward_; }

  /// kArgument when counts or a token are out of range. Fewer micro-batches than bound are allowed.
  Status check_tokens(const TokenBatch& batch) const;

  /// What the logits' visit of a forward computes.
  struct Goal {
    float* logits = nullptr;  ///< [vocab]: those of `row` of the first micro-batch; null: the loss
    std::int64_t row = 0;
  };
  /// weights: the leased array of the visit's group. Visits come in the order of forward_visits().
  Status forward(const Visit& visit, const std::uint16_t* weights, const TokenBatch& batch,
                 MicroRange range, const Goal& goal);
  /// Sum of the cross entropies of the range's tokens, after its forward.
  [[nodiscard]] double loss_sum(MicroRange range) { return loss_.loss_sum(ops_, range); }

  /// Sets the visit's sums to 0.
  void clear_sums(const Visit& visit);
  /// Adds the gradients of the range; factor: the weight of one token in the loss.
  Status backward(const Visit& visit, const std::uint16_t* weights, const TokenBatch& batch,
                  MicroRange range, float factor);

  /// A token array of one micro-batch, for callers that pad: [rows].
  [[nodiscard]] std::span<std::uint32_t> token_scratch();

 private:
  Transformer(const TransformerOptions& options, std::unique_ptr<Matmul> matmul, Executor& executor,
              MatmulType operand);
  Status prepare();
  void make_visits();
  void carve(Carver& carver);
  void carve_sums(Carver& carver);

  [[nodiscard]] std::int64_t stream_elements() const {
    return options_.batch.rows() * options_.config.hidden;
  }
  /// The residual stream that enters `layer` (layers: the final norm).
  [[nodiscard]] float* stream(std::int64_t layer, std::int64_t micro) const {
    return streams_ + (layer * options_.batch.micro_batches + micro) * stream_elements();
  }
  [[nodiscard]] float* stream_gradient(std::int64_t micro) const {
    return stream_gradients_ + micro * stream_elements();
  }
  [[nodiscard]] const std::uint16_t* tensor(const std::uint16_t* weights, TensorId id) const {
    return weights + offsets_[id];
  }
  [[nodiscard]] bool keeps(std::int64_t layer) const;
  [[nodiscard]] const Activations& activations(std::int64_t layer, std::int64_t micro) const;

  GroupWeights load_layer(std::int64_t layer, const std::uint16_t* weights);
  NormWeights load_final_norm(const std::uint16_t* weights);
  Status forward_layer(const Visit& visit, const std::uint16_t* weights, MicroRange range);
  Status backward_layer(const Visit& visit, const std::uint16_t* weights, MicroRange range);
  Status forward_logits(const std::uint16_t* matrix, const TokenBatch& batch, MicroRange range,
                        const Goal& goal);
  void forward_final_norm(const std::uint16_t* weights, MicroRange range);
  void backward_final_norm(const Visit& visit, const std::uint16_t* weights, MicroRange range);
  [[nodiscard]] NormStatistics final_statistics(std::int64_t micro) const;

  TransformerOptions options_;
  std::unique_ptr<Matmul> matmul_;
  MatmulType operand_;
  Ops ops_;
  ModelSpec spec_;
  ModelIndex index_;
  std::unique_ptr<Layer> layer_;
  LossHead loss_;
  Norm final_norm_;
  std::vector<Visit> forward_, backward_;
  std::vector<std::uint64_t> offsets_;
  std::size_t base_bytes_ = 0;        // workspace without kept layers
  std::size_t kept_layer_bytes_ = 0;  // activations of one layer, all micro-batches
  std::int64_t kept_layers_ = 0;      // the last ones

  // In the workspace.
  float* streams_ = nullptr;           // [layers + 1][micro_batches][rows, hidden]
  float* stream_gradients_ = nullptr;  // [micro_batches][rows, hidden]
  void* normed_ = nullptr;             // operand [micro_batches][rows, hidden], final norm's output
  NormStatistics final_statistics_;    // [micro_batches][rows]
  float* narrow_[2] = {};              // [rows, hidden]
  float* norm_partials_ = nullptr;     // [kMaxRowParts, 2 hidden]
  float* vectors_ = nullptr;           // norm weights and biases of a group, widened
  float* widened_ = nullptr;           // matrices of a layer; fp32 operands only
  std::uint32_t* token_scratch_ = nullptr;  // [rows]
  Activations shared_;                      // of the layer and micro-batch at work
  std::vector<Activations> kept_;           // [kept_layers][micro_batches]
  // Whose activations `shared_` holds since this step's forward; -1: nobody's.
  std::int64_t shared_layer_ = -1, shared_micro_ = -1;
};

}  // namespace penstock
