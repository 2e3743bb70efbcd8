#include "train/trainer.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/clock.hpp"

namespace penstock {

Result<std::unique_ptr<Trainer>> Trainer::create(Engine& engine, Transformer& model,
                                                 std::int64_t kept_layers) {
  std::vector<std::uint64_t> offsets;
  for (TensorId id = 0; id < model.spec().tensors.size(); ++id) {
    if (engine.tensor_elements(id) != element_count(model.spec().tensors[id])) {
      return make_error(Errc::kState,
                        fmt::format("tensor {} has {} elements in the engine: it was made from "
                                    "another model",
                                    model.spec().tensors[id].name, engine.tensor_elements(id)));
    }
    offsets.push_back(engine.tensor_offset(id));
  }
  PENSTOCK_CHECK_OK(model.bind(engine.workspace(), kept_layers, std::move(offsets)));
  return std::unique_ptr<Trainer>(new Trainer(engine, model));
}

MicroRange Trainer::all_of(const TokenBatch& batch) const {
  return {0, static_cast<std::int64_t>(batch.inputs.size()) / model_.options().batch.rows()};
}

Status Trainer::forward(const TokenBatch& batch, MicroRange range, const Transformer::Goal& goal) {
  for (const Visit& visit : model_.forward_visits()) {
    PENSTOCK_TAKE(lease, engine_.acquire(visit.group));
    PENSTOCK_CHECK_OK(model_.forward(visit, lease.data(), batch, range, goal));
  }
  return ok();
}

Status Trainer::deliver(const Visit& visit) {
  for (const GradientUse& use : visit.uses) {
    PENSTOCK_CHECK_OK(engine_.gradient(use.tensor, use.sum, WeightType::kF32, use.k, use.n));
  }
  return ok();
}

Status Trainer::backward(const TokenBatch& batch, MicroRange range, float factor, bool last) {
  const bool turns = model_.options().order == StepOrder::kVertical;
  for (const Visit& visit : model_.backward_visits()) {
    PENSTOCK_TAKE(lease, engine_.acquire(visit.group));
    if (turns || range.first == 0) model_.clear_sums(visit);
    PENSTOCK_CHECK_OK(model_.backward(visit, lease.data(), batch, range, factor));
    if (last) PENSTOCK_CHECK_OK(deliver(visit));
  }
  return ok();
}

PassTime Trainer::lap() {
  const std::uint64_t now = now_ns(), waited = engine_.waited_ns();
  const PassTime time{static_cast<double>(now - lap_ns_) * 1e-9,
                      static_cast<double>(waited - lap_waited_ns_) * 1e-9};
  lap_ns_ = now;
  lap_waited_ns_ = waited;
  return time;
}

Result<double> Trainer::vertical(const TokenBatch& batch) {
  const MicroRange all = all_of(batch);
  const auto tokens = static_cast<double>(batch.inputs.size());
  PENSTOCK_CHECK_OK(forward(batch, all, {}));
  forward_time_ = lap();
  const double loss = model_.loss_sum(all) / tokens;
  PENSTOCK_CHECK_OK(backward(batch, all, static_cast<float>(1.0 / tokens), true));
  return loss;
}

Result<double> Trainer::horizontal(const TokenBatch& batch) {
  const MicroRange all = all_of(batch);
  const auto tokens = static_cast<double>(batch.inputs.size());
  for (std::int64_t m = 0; m < all.count; ++m) {
    PENSTOCK_CHECK_OK(forward(batch, {m, 1}, {}));
    PENSTOCK_CHECK_OK(
        backward(batch, {m, 1}, static_cast<float>(1.0 / tokens), m + 1 == all.count));
  }
  return model_.loss_sum(all) / tokens;
}

Result<TrainReport> Trainer::step(const TokenBatch& batch, const StepInput& input,
                                  std::span<const std::byte> blob) {
  PENSTOCK_CHECK_OK(model_.check_tokens(batch));
  lap();
  PENSTOCK_CHECK_OK(engine_.step_begin());
  const bool is_vertical = model_.options().order == StepOrder::kVertical;
  PENSTOCK_TAKE(loss, is_vertical ? vertical(batch) : horizontal(batch));
  PENSTOCK_TAKE(report, engine_.step_end(input, blob));
  return TrainReport{loss, forward_time_, lap(), std::move(report)};
}

Result<double> Trainer::evaluate(const TokenBatch& batch) {
  PENSTOCK_CHECK_OK(model_.check_tokens(batch));
  const MicroRange all = all_of(batch);
  PENSTOCK_CHECK_OK(forward(batch, all, {}));
  return model_.loss_sum(all) / static_cast<double>(batch.inputs.size());
}

Status Trainer::next_token_logits(std::span<const std::uint32_t> context, std::span<float> out) {
  const auto vocab = static_cast<std::size_t>(model_.options().config.vocab);
  const auto seq = static_cast<std::size_t>(model_.options().batch.seq);
  if (context.empty() || context.size() > seq || out.size() != vocab) {
    return make_error(Errc::kArgument,
                      fmt::format("next-token logits of {} tokens into {} places: give 1 to {} "
                                  "tokens and {} places",
                                  context.size(), out.size(), seq, vocab));
  }
  // Later positions do not reach earlier ones, so any padding will do.
  const std::span<std::uint32_t> tokens = model_.token_scratch();
  std::fill(tokens.begin(), tokens.end(), 0U);
  std::copy(context.begin(), context.end(), tokens.begin());
  const TokenBatch batch{tokens, tokens};
  PENSTOCK_CHECK_OK(model_.check_tokens(batch));
  return forward(batch, {0, 1}, {out.data(), static_cast<std::int64_t>(context.size()) - 1});
}

}  // namespace penstock
