// Invariants
//   * stream(l, m) holds the residual stream that entered layer l in this step's forward, until the
//     backward of that step ends; stream(layers, m) what entered the final norm.
//   * stream_gradient(m) is the gradient of the stream behind the visit that runs next.
//   * shared_ holds the activations of (shared_layer_, shared_micro_) made with this step's
//   weights.

#include "train/transformer.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "train/embedding.hpp"

namespace penstock {

std::span<std::uint32_t> Transformer::token_scratch() {
  return {token_scratch_, size(options_.batch.rows())};
}

Status Transformer::check_tokens(const TokenBatch& batch) const {
  const std::size_t rows = size(options_.batch.rows());
  const std::size_t count = batch.inputs.size();
  if (count == 0 || count % rows != 0 || count > size(options_.batch.tokens()) ||
      batch.targets.size() != count) {
    return make_error(
        Errc::kArgument,
        fmt::format("a batch of {} tokens and {} targets is not 1 to {} micro-batches "
                    "of {}",
                    count, batch.targets.size(), options_.batch.micro_batches, rows));
  }
  for (const auto tokens : {batch.inputs, batch.targets}) {
    const auto largest = std::max_element(tokens.begin(), tokens.end());
    if (static_cast<std::int64_t>(*largest) >= options_.config.vocab) {
      return make_error(Errc::kArgument,
                        fmt::format("token {} is outside the vocabulary of {}; check --vocab and "
                                    "the token file's type",
                                    *largest, options_.config.vocab));
    }
  }
  return ok();
}

bool Transformer::keeps(std::int64_t layer) const {
  return layer >= options_.config.layers - kept_layers_;
}

const Activations& Transformer::activations(std::int64_t layer, std::int64_t micro) const {
  if (!keeps(layer)) return shared_;
  const std::int64_t number = layer - (options_.config.layers - kept_layers_);
  return kept_[size(number * options_.batch.micro_batches + micro)];
}

GroupWeights Transformer::load_layer(std::int64_t layer, const std::uint16_t* weights) {
  GroupWeights loaded;
  float* vector = vectors_;
  float* matrix = widened_;
  for (TensorId i = 0; i < index_.layer_tensors; ++i) {
    const TensorId id =
        index_.first_layer + static_cast<TensorId>(layer) * index_.layer_tensors + i;
    const std::uint16_t* const source = tensor(weights, id);
    const auto count = static_cast<std::int64_t>(element_count(spec_.tensors[id]));
    float*& next = is_matrix(spec_.tensors[id]) ? matrix : vector;
    if (is_matrix(spec_.tensors[id]) && operand_ == MatmulType::kBf16) {
      loaded.matrix[i] = source;
      continue;
    }
    widen(ops_, count, source, next);
    if (is_matrix(spec_.tensors[id])) {
      loaded.matrix[i] = next;
    } else {
      loaded.vector[i] = next;
    }
    next += padded_elements(static_cast<std::uint64_t>(count));
  }
  return loaded;
}

NormWeights Transformer::load_final_norm(const std::uint16_t* weights) {
  const std::int64_t n = options_.config.hidden;
  NormWeights loaded{vectors_, nullptr};
  widen(ops_, n, tensor(weights, index_.final_norm), vectors_);
  if (index_.final_norm_bias != kNoTensor) {
    float* const bias = vectors_ + padded_elements(static_cast<std::uint64_t>(n));
    widen(ops_, n, tensor(weights, index_.final_norm_bias), bias);
    loaded.bias = bias;
  }
  return loaded;
}

NormStatistics Transformer::final_statistics(std::int64_t micro) const {
  const std::int64_t at = micro * options_.batch.rows();
  return {final_statistics_.mean + at, final_statistics_.rstd + at};
}

Status Transformer::forward(const Visit& visit, const std::uint16_t* weights,
                            const TokenBatch& batch, MicroRange range, const Goal& goal) {
  const std::int64_t rows = options_.batch.rows();
  switch (visit.kind) {
    case VisitKind::kEmbed: {
      shared_layer_ = shared_micro_ = -1;  // a new step: other weights, other tokens
      const bool positions = index_.position_embedding != kNoTensor;
      for (std::int64_t m = range.first; m < range.first + range.count; ++m) {
        embed(ops_, rows, options_.batch.seq, options_.config.hidden,
              tensor(weights, index_.token_embedding),
              positions ? tensor(weights, index_.position_embedding) : nullptr,
              batch.inputs.data() + m * rows, narrow_[0], stream(0, m));
      }
      return ok();
    }
    case VisitKind::kLayer:
      return forward_layer(visit, weights, range);
    case VisitKind::kHead:
      forward_final_norm(weights, range);
      if (options_.config.tie_embeddings) return ok();
      return forward_logits(tensor(weights, index_.logits), batch, range, goal);
    case VisitKind::kLogits:
      return forward_logits(tensor(weights, index_.logits), batch, range, goal);
  }
  return make_error(Errc::kInternal, "forward: a visit of unknown kind");
}

Status Transformer::forward_layer(const Visit& visit, const std::uint16_t* weights,
                                  MicroRange range) {
  const GroupWeights loaded = load_layer(visit.layer, weights);
  for (std::int64_t m = range.first; m < range.first + range.count; ++m) {
    PENSTOCK_CHECK_OK(layer_->forward(ops_, loaded, stream(visit.layer, m),
                                      activations(visit.layer, m), stream(visit.layer + 1, m)));
    if (!keeps(visit.layer)) {
      shared_layer_ = visit.layer;
      shared_micro_ = m;
    }
  }
  return ok();
}

void Transformer::forward_final_norm(const std::uint16_t* weights, MicroRange range) {
  const NormWeights norm = load_final_norm(weights);
  for (std::int64_t m = range.first; m < range.first + range.count; ++m) {
    final_norm_.forward(ops_, options_.batch.rows(), stream(options_.config.layers, m), norm,
                        final_statistics(m), narrow_[0], ops_.at(normed_, m * stream_elements()));
  }
}

Status Transformer::forward_logits(const std::uint16_t* matrix, const TokenBatch& batch,
                                   MicroRange range, const Goal& goal) {
  if (goal.logits == nullptr) {
    return loss_.forward(ops_, matrix, normed_, batch.targets.data(), range);
  }
  const void* const row = ops_.at(normed_, goal.row * options_.config.hidden);
  return loss_.logits(ops_, matrix, row, goal.logits);
}

void Transformer::clear_sums(const Visit& visit) {
  for (const GradientUse& use : visit.uses) zero(ops_, use.count, use.sum);
}

Status Transformer::backward(const Visit& visit, const std::uint16_t* weights,
                             const TokenBatch& batch, MicroRange range, float factor) {
  const std::int64_t rows = options_.batch.rows();
  const bool tied = options_.config.tie_embeddings;
  switch (visit.kind) {
    case VisitKind::kLogits:
      return loss_.backward(ops_, tensor(weights, index_.logits), normed_, batch.targets.data(),
                            range, factor, stream_gradients_, visit.uses.back().sum);
    case VisitKind::kHead:
      if (!tied) {
        PENSTOCK_CHECK_OK(loss_.backward(ops_, tensor(weights, index_.logits), normed_,
                                         batch.targets.data(), range, factor, stream_gradients_,
                                         visit.uses.back().sum));
      }
      backward_final_norm(visit, weights, range);
      return ok();
    case VisitKind::kLayer:
      return backward_layer(visit, weights, range);
    case VisitKind::kEmbed:
      for (std::int64_t m = range.first; m < range.first + range.count; ++m) {
        embed_backward(ops_, rows, options_.batch.seq, options_.config.hidden,
                       batch.inputs.data() + m * rows, stream_gradient(m), visit.uses[0].sum,
                       visit.uses.size() > 1 ? visit.uses[1].sum : nullptr);
      }
      return ok();
  }
  return make_error(Errc::kInternal, "backward: a visit of unknown kind");
}

void Transformer::backward_final_norm(const Visit& visit, const std::uint16_t* weights,
                                      MicroRange range) {
  const NormWeights norm = load_final_norm(weights);
  NormGradients sums{visit.uses[0].sum, nullptr};
  if (index_.final_norm_bias != kNoTensor) sums.bias = visit.uses[1].sum;
  const std::int64_t rows = options_.batch.rows();
  for (std::int64_t m = range.first; m < range.first + range.count; ++m) {
    final_norm_.backward(ops_, rows, stream_gradient(m), stream(options_.config.layers, m), norm,
                         final_statistics(m), narrow_[1], norm_partials_, sums);
    copy_rows(ops_, rows, options_.config.hidden, narrow_[1], stream_gradient(m));
  }
}

Status Transformer::backward_layer(const Visit& visit, const std::uint16_t* weights,
                                   MicroRange range) {
  const GroupWeights loaded = load_layer(visit.layer, weights);
  GroupGradients sums{};
  for (std::size_t i = 0; i < visit.uses.size(); ++i) sums[i] = visit.uses[i].sum;
  for (std::int64_t m = range.first; m < range.first + range.count; ++m) {
    const Activations& kept = activations(visit.layer, m);
    const float* const x = stream(visit.layer, m);
    const bool there = keeps(visit.layer) || (shared_layer_ == visit.layer && shared_micro_ == m);
    if (!there) {
      PENSTOCK_CHECK_OK(layer_->forward(ops_, loaded, x, kept, nullptr));
      shared_layer_ = visit.layer;
      shared_micro_ = m;
    }
    PENSTOCK_CHECK_OK(layer_->backward(ops_, loaded, x, kept, stream_gradient(m), sums));
  }
  return ok();
}

}  // namespace penstock
