// Writes one case as our trainer computes it, for reference.py: train_dump CASE f32|bf16 DIRECTORY.
// case.json describes it; weights.f32, inputs.u32, targets.u32 and ours.f32 (logits after the first
// sequence, then the gradients, tensor after tensor) are raw little-endian arrays.

#include <cstdio>
#include <fstream>
#include <string>

#include <nlohmann/json.hpp>

#include "train/model_case.hpp"

namespace penstock::test {
namespace {

template <class T>
void write_array(const std::string& path, const T* data, std::size_t count) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(count * sizeof(T)));
}

nlohmann::json describe(const ModelRun& run, const ModelSpec& spec, double loss) {
  const ModelConfig& c = run.which().config;
  const BatchShape& b = run.which().batch;
  nlohmann::json json = {
      {"name", run.which().name},
      {"family", c.family == ModelFamily::kLlama ? "llama" : "gpt2"},
      {"layers", c.layers},
      {"hidden", c.hidden},
      {"heads", c.heads},
      {"kv_heads", c.kv_heads},
      {"head_dim", c.head_dim},
      {"vocab", c.vocab},
      {"norm_eps", c.norm_eps},
      {"rope_theta", c.rope_theta},
      {"tied", c.tie_embeddings},
      {"sequences", b.micro_batches * b.micro},
      {"seq", b.seq},
      {"loss", loss},
  };
  for (const TensorSpec& tensor : spec.tensors) {
    json["tensors"].push_back({{"name", tensor.name}, {"shape", tensor.shape}});
  }
  return json;
}

Status dump(const ModelCase& which, const RunOptions& options, const std::string& directory) {
  PENSTOCK_TRY(run, ModelRun::make(which, options), "run");
  PENSTOCK_TRY(report, run->step(), "step");
  std::vector<float> ours(static_cast<std::size_t>(which.config.vocab));
  const TokenBatch batch = run->batch();
  const auto seq = static_cast<std::size_t>(which.batch.seq);
  PENSTOCK_CHECK_OK(run->trainer().next_token_logits(batch.inputs.first(seq), ours));
  const std::vector<float> gradients = run->gradients();
  ours.insert(ours.end(), gradients.begin(), gradients.end());
  std::vector<float> weights;
  const ModelSpec& spec = run->model().spec();
  for (TensorId id = 0; id < spec.tensors.size(); ++id) {
    const std::vector<float> one = run->engine().weights_of(id);
    weights.insert(weights.end(), one.begin(), one.end());
  }
  write_array(directory + "/weights.f32", weights.data(), weights.size());
  write_array(directory + "/inputs.u32", batch.inputs.data(), batch.inputs.size());
  write_array(directory + "/targets.u32", batch.targets.data(), batch.targets.size());
  write_array(directory + "/ours.f32", ours.data(), ours.size());
  std::ofstream(directory + "/case.json") << describe(*run, spec, report.loss).dump(1) << '\n';
  return ok();
}

int run(const std::string& name, const std::string& mode, const std::string& directory) {
  const ModelCase& which = model_case(name);
  if (which.name.empty()) {
    std::fprintf(stderr, "no case is named %s\n", name.c_str());
    return 2;
  }
  RunOptions options;
  options.compute = mode == "bf16" ? ComputeMode::kBf16 : ComputeMode::kF32;
  if (const Status status = dump(which, options, directory); !status) {
    std::fprintf(stderr, "%s\n", status.error().message.c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace penstock::test

int main(int count, char** arguments) {
  if (count != 4) {
    std::fprintf(stderr, "usage: train_dump CASE f32|bf16 DIRECTORY\n");
    return 2;
  }
  return penstock::test::run(arguments[1], arguments[2], arguments[3]);
}
