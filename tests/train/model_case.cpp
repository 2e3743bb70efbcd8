#include "train/model_case.hpp"

#include "base/random.hpp"
#include "base/timeline.hpp"

namespace penstock::test {
namespace {

constexpr std::uint64_t kSeed = 20240229;
constexpr std::uint64_t kTokenStream = 1 << 20;

ModelConfig llama(std::int64_t layers, std::int64_t hidden, std::int64_t heads,
                  std::int64_t kv_heads, std::int64_t head_dim, std::int64_t intermediate,
                  std::int64_t vocab) {
  ModelConfig c;
  c.family = ModelFamily::kLlama;
  c.layers = layers;
  c.hidden = hidden;
  c.heads = heads;
  c.kv_heads = kv_heads;
  c.head_dim = head_dim;
  c.intermediate = intermediate;
  c.vocab = vocab;
  c.max_positions = 512;
  c.norm_eps = 1e-5;
  c.rope_theta = 10000.0;
  return c;
}

ModelConfig gpt2(std::int64_t layers, std::int64_t heads, std::int64_t head_dim, std::int64_t vocab,
                 std::int64_t positions) {
  ModelConfig c =
      llama(layers, heads * head_dim, heads, heads, head_dim, 4 * heads * head_dim, vocab);
  c.family = ModelFamily::kGpt2;
  c.max_positions = positions;
  c.tie_embeddings = true;
  return c;
}

ModelConfig tied(ModelConfig config) {
  config.tie_embeddings = true;
  return config;
}

std::vector<ModelCase> make_cases() {
  std::vector<ModelCase> cases = {
      {"llama-golden", llama(2, 20, 4, 2, 6, 28, 61), {2, 2, 13}, true},
      {"llama-tied-golden", tied(llama(2, 16, 4, 1, 4, 24, 61)), {2, 1, 17}, true},
      {"llama-blocks-golden", llama(1, 12, 2, 1, 6, 20, 300), {1, 1, 301}, true, 1},
      {"gpt2-golden", gpt2(2, 3, 6, 61, 19), {2, 2, 13}, true},
      {"llama", llama(3, 64, 6, 2, 10, 150, 1000), {2, 3, 37}},
      {"llama-tied", tied(llama(2, 64, 4, 4, 16, 172, 256)), {2, 2, 61}},
      {"llama-blocks", llama(2, 48, 3, 1, 16, 80, 1000), {2, 1, 300}, false, 1},
      {"gpt2", gpt2(3, 4, 16, 256, 64), {2, 2, 45}},
      {"gpt2-blocks", gpt2(2, 2, 24, 1000, 300), {2, 1, 300}, false, 1},
      {"llama-4", llama(2, 32, 4, 2, 8, 48, 100), {4, 1, 21}},
      {"gpt2-4", gpt2(2, 4, 8, 100, 21), {4, 1, 21}},
  };
  for (ModelCase& which : cases) which.config.name = which.name;
  return cases;
}

std::vector<std::uint32_t> tokens(const ModelCase& which, std::uint64_t stream) {
  std::vector<std::uint32_t> values(static_cast<std::size_t>(which.batch.tokens()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<std::uint32_t>(mix64(kSeed, kTokenStream + stream, i) %
                                           static_cast<std::uint64_t>(which.config.vocab));
  }
  return values;
}

}  // namespace

const std::vector<ModelCase>& model_cases() {
  static const std::vector<ModelCase> cases = make_cases();
  return cases;
}

const ModelCase& model_case(const std::string& name) {
  for (const ModelCase& which : model_cases()) {
    if (which.name == name) return which;
  }
  static const ModelCase none;
  return none;
}

ModelRun::~ModelRun() = default;

Result<std::unique_ptr<ModelRun>> ModelRun::make(const ModelCase& which,
                                                 const RunOptions& options) {
  std::unique_ptr<ModelRun> run(new ModelRun());
  run->case_ = which;
  run->timeline_ = std::make_unique<Timeline>(options.seed);
  run->executor_ = options.deterministic_executor ? make_deterministic_executor(*run->timeline_)
                                                  : make_tbb_executor(options.threads);
  TransformerOptions model;
  model.config = which.config;
  model.batch = which.batch;
  model.compute = options.compute;
  model.order = options.order;
  model.matmul.threads = options.threads;
  model.logit_chunk_bytes = which.logit_chunk_bytes;
  PENSTOCK_TRY(isa, options.isa ? Result<Isa>(*options.isa) : choose_isa(), "choose kernels");
  model.isa = isa;
  PENSTOCK_TRY(created, Transformer::create(model, *run->executor_), "create");
  run->model_ = std::move(created);
  run->engine_ = std::make_unique<FakeEngine>(
      run->model_->spec(),
      run->model_->workspace_bytes(options.kept_layers) - options.lacking_bytes, kSeed, 0.15F);
  PENSTOCK_TRY(trainer, Trainer::create(*run->engine_, *run->model_, options.kept_layers), "bind");
  run->trainer_ = std::move(trainer);
  run->inputs_ = tokens(which, 0);
  run->targets_ = tokens(which, 1);
  return run;
}

std::vector<float> ModelRun::gradients() const {
  std::vector<float> all;
  for (TensorId id = 0; id < model_->spec().tensors.size(); ++id) {
    const std::vector<float> one = engine_->gradient_of(id);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

Result<Outcome> outcome_of(const ModelCase& which, const RunOptions& options) {
  PENSTOCK_TRY(run, ModelRun::make(which, options), "run");
  Outcome outcome;
  PENSTOCK_TRY(report, run->step(), "step");
  outcome.loss = report.loss;
  outcome.gradients = run->gradients();
  outcome.logits.resize(static_cast<std::size_t>(which.config.vocab));
  const auto seq = static_cast<std::size_t>(which.batch.seq);
  PENSTOCK_CHECK_OK(
      run->trainer().next_token_logits(run->batch().inputs.first(seq), outcome.logits));
  return outcome;
}

}  // namespace penstock::test
