// Creation of the model and its layout in the workspace.

#include <utility>

#include <fmt/format.h>

#include "train/transformer.hpp"

namespace penstock {
namespace {

/// Elements of one layer's tensors: matrices, and norm weights with biases.
struct LayerElements {
  std::int64_t matrix = 0, vector = 0;
};

LayerElements layer_elements(const ModelSpec& spec, const ModelIndex& index) {
  LayerElements sum;
  for (TensorId i = 0; i < index.layer_tensors; ++i) {
    const TensorSpec& tensor = spec.tensors[index.first_layer + i];
    (is_matrix(tensor) ? sum.matrix : sum.vector) += padded_elements(element_count(tensor));
  }
  return sum;
}

}  // namespace

Transformer::Transformer(const TransformerOptions& options, std::unique_ptr<Matmul> matmul,
                         Executor& executor, MatmulType operand)
    : options_(options),
      matmul_(std::move(matmul)),
      operand_(operand),
      ops_{transformer_kernels(options.isa), optimizer_kernels(options.isa), executor, *matmul_,
           operand},
      spec_(make_model_spec(options.config)),
      index_(make_model_index(options.config)),
      final_norm_{options.config.family, options.config.hidden,
                  static_cast<float>(options.config.norm_eps)} {}

Result<std::unique_ptr<Transformer>> Transformer::create(const TransformerOptions& options,
                                                         Executor& executor) {
  PENSTOCK_CHECK_OK(check_shape(options.config, options.batch));
  if (!isa_supported(options.isa)) {
    return make_error(Errc::kUnsupported, fmt::format("kernels for {} do not run on this processor",
                                                      isa_name(options.isa)));
  }
  PENSTOCK_TAKE(matmul, Matmul::create(options.matmul, executor));
  const bool bf16 = options.compute == ComputeMode::kBf16 && matmul->multiplies_bf16();
  const MatmulType operand = bf16 ? MatmulType::kBf16 : MatmulType::kF32;
  std::unique_ptr<Transformer> model(
      new Transformer(options, std::move(matmul), executor, operand));
  PENSTOCK_CHECK_OK(model->prepare());
  return model;
}

Status Transformer::prepare() {
  const LayerShape shape{options_.config, options_.batch};
  const bool llama = options_.config.family == ModelFamily::kLlama;
  PENSTOCK_TAKE(layer, llama ? make_llama_layer(*matmul_, operand_, shape)
                             : make_gpt2_layer(*matmul_, operand_, shape));
  layer_ = std::move(layer);
  PENSTOCK_TAKE(loss, LossHead::prepare(*matmul_, operand_, options_.config, options_.batch,
                                        options_.logit_chunk_bytes));
  loss_ = std::move(loss);
  make_visits();
  Carver measure(nullptr);
  carve(measure);
  base_bytes_ = measure.used_bytes();
  Carver one(nullptr);
  carve_activations(one, shape, operand_);
  kept_layer_bytes_ = one.used_bytes() * static_cast<std::size_t>(options_.batch.micro_batches);
  return ok();
}

void Transformer::make_visits() {
  const bool tied = options_.config.tie_embeddings;
  const auto use = [&](TensorId tensor, std::uint32_t k) {
    const TensorSpec& spec = spec_.tensors[tensor];
    return GradientUse{tensor, k, spec.contributions,
                       static_cast<std::int64_t>(element_count(spec)), nullptr};
  };
  Visit embed{VisitKind::kEmbed, index_.embed_group, 0, {use(index_.token_embedding, 0)}};
  if (index_.position_embedding != kNoTensor) {
    embed.uses.push_back(use(index_.position_embedding, 0));
  }
  Visit head{VisitKind::kHead, index_.head_group, 0, {use(index_.final_norm, 0)}};
  if (index_.final_norm_bias != kNoTensor) head.uses.push_back(use(index_.final_norm_bias, 0));
  if (!tied) head.uses.push_back(use(index_.logits, 0));

  forward_.push_back(std::move(embed));
  for (std::int64_t layer = 0; layer < options_.config.layers; ++layer) {
    const auto number = static_cast<std::uint32_t>(layer);
    Visit visit{VisitKind::kLayer, index_.first_layer_group + number, layer, {}};
    for (TensorId i = 0; i < index_.layer_tensors; ++i) {
      visit.uses.push_back(use(index_.first_layer + number * index_.layer_tensors + i, 0));
    }
    forward_.push_back(std::move(visit));
  }
  forward_.push_back(std::move(head));
  if (tied) {
    forward_.push_back({VisitKind::kLogits, index_.embed_group, 0, {use(index_.logits, 1)}});
  }
  backward_.assign(forward_.rbegin(), forward_.rend());
}

void Transformer::carve_sums(Carver& carver) {
  // Vertical: the visits take turns on the bytes of the largest.
  std::byte* base = nullptr;
  std::size_t largest = 0;
  const bool turns = options_.order == StepOrder::kVertical;
  if (turns) {
    for (const Visit& visit : backward_) {
      Carver measure(nullptr);
      for (const GradientUse& use : visit.uses) measure.take(use.count);
      largest = std::max(largest, measure.used_bytes());
    }
    base = static_cast<std::byte*>(carver.take_bytes(largest));
  }
  for (Visit& visit : backward_) {
    Carver turn(base);
    for (GradientUse& use : visit.uses) use.sum = (turns ? turn : carver).take(use.count);
  }
}

void Transformer::carve(Carver& carver) {
  const BatchShape& batch = options_.batch;
  const LayerShape shape{options_.config, batch};
  const std::int64_t hidden = options_.config.hidden;
  const std::int64_t all_streams = batch.micro_batches * stream_elements();
  const LayerElements elements = layer_elements(spec_, index_);
  streams_ = carver.take((options_.config.layers + 1) * all_streams);
  stream_gradients_ = carver.take(all_streams);
  normed_ = carver.take_bytes(static_cast<std::size_t>(all_streams) * size_bytes(operand_));
  final_statistics_.mean = carver.take(batch.tokens());
  final_statistics_.rstd = carver.take(batch.tokens());
  for (float*& array : narrow_) array = carver.take(stream_elements());
  norm_partials_ = carver.take(kMaxRowParts * 2 * hidden);
  vectors_ = carver.take(
      std::max(elements.vector, 2 * padded_elements(static_cast<std::uint64_t>(hidden))));
  if (operand_ == MatmulType::kF32) widened_ = carver.take(elements.matrix);
  token_scratch_ = carver.take<std::uint32_t>(batch.rows());
  carve_sums(carver);
  layer_->carve(carver);
  loss_.carve(carver, operand_);
  matmul_->use_scratchpad(carver.take_bytes(matmul_->scratchpad_bytes()));
  shared_ = carve_activations(carver, shape, operand_);
  kept_.clear();
  for (std::int64_t i = 0; i < kept_layers_ * batch.micro_batches; ++i) {
    kept_.push_back(carve_activations(carver, shape, operand_));
  }
}

std::size_t Transformer::workspace_bytes(std::int64_t kept_layers) const {
  return base_bytes_ + static_cast<std::size_t>(kept_layers) * kept_layer_bytes_;
}

std::int64_t Transformer::kept_layers_within(std::size_t extra_bytes) const {
  return std::min(options_.config.layers,
                  static_cast<std::int64_t>(extra_bytes / kept_layer_bytes_));
}

Status Transformer::bind(std::span<std::byte> memory, std::int64_t kept_layers,
                         std::vector<std::uint64_t> offsets) {
  if (kept_layers < 0 || kept_layers > options_.config.layers ||
      offsets.size() != spec_.tensors.size()) {
    return make_error(Errc::kArgument,
                      fmt::format("bind model {}: {} kept layers or {} offsets do "
                                  "not fit its {} layers and {} tensors",
                                  options_.config.name, kept_layers, offsets.size(),
                                  options_.config.layers, spec_.tensors.size()));
  }
  const std::size_t needed = workspace_bytes(kept_layers);
  if (memory.size() < needed) {
    return make_error(Errc::kNoMemory,
                      fmt::format("bind model {}: its workspace needs {} bytes and got {}; give "
                                  "more memory or smaller micro-batches",
                                  options_.config.name, needed, memory.size()));
  }
  if (reinterpret_cast<std::uintptr_t>(memory.data()) % Carver::kAlignBytes != 0) {
    return make_error(Errc::kArgument, "bind model: the workspace is not aligned to 64 bytes");
  }
  kept_layers_ = kept_layers;
  offsets_ = std::move(offsets);
  Carver carver(memory.data());
  carve(carver);
  if (carver.used_bytes() != needed) {
    return make_error(Errc::kInternal, fmt::format("bind model: laid out {} bytes, measured {}",
                                                   carver.used_bytes(), needed));
  }
  layer_->prepare_tables();
  shared_layer_ = shared_micro_ = -1;
  return ok();
}

}  // namespace penstock
