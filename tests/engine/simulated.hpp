#pragma once

/// A model of a few thousand elements on the simulated drive, and what is in a store it left.

#include <atomic>
#include <optional>

#include "cli/store_hash.hpp"
#include "engine/harness.hpp"

namespace penstock::testing {

inline constexpr const char* kSimStore = "/sim/store";

/// Four groups of one block each: a tied tensor, two layers, and a head that gets no gradient in a
/// partial step, so that its block stays behind the others'.
inline ModelSpec tiny_model(Level level = Level::kWeights) {
  ModelSpec model;
  model.level = level;
  model.groups = {"embed", "a", "b", "head"};
  add_tensor(model, "wte", {37, 64}, 0, 2, Init::Kind::kNormal);
  add_tensor(model, "a.norm", {64}, 1, 1, Init::Kind::kConstant);
  add_tensor(model, "a.w", {64, 40}, 1, 1, Init::Kind::kNormal);
  add_tensor(model, "b.w", {33, 64}, 2, 1, Init::Kind::kNormal);
  add_tensor(model, "head.norm", {64}, 3, 1, Init::Kind::kConstant);
  if (level == Level::kWeights) {
    model.forward = {0, 1, 2, 3, 0};
    model.backward = {0, 3, 2, 1, 0};
  }
  return model;
}

/// What a store holds: its step, and the hash of everything in it.
struct StoreContent {
  std::uint64_t step = 0;
  Hash128 hash;
};

/// Opens as a restart would, so that a lock left behind would show; a checkpoint for reading only.
inline Result<StoreContent> content_of(Storage& storage, const StoreDirectories& directories,
                                       const std::string& pin = {}) {
  StoreOptions options;
  options.pin = pin;
  PENSTOCK_TRY(store, open_store(storage, directories, options, pin.empty()), "open");
  PENSTOCK_TRY(reader, StoreReader::over(storage, std::move(store)), "description");
  const std::atomic<bool> stop{false};
  PENSTOCK_TRY(hash, hash_store(*reader, stop), "hash");
  return StoreContent{reader->step(), hash};
}

/// The reference's hash after `step`, with the blob that the runner gave.
inline Hash128 expected_hash(const Reference& reference, std::uint64_t step) {
  return reference.hash(step, step == 0 ? std::vector<std::byte>{} : blob_of(step));
}

/// Opens or creates the store on a simulated drive and runs the script to its end from wherever the
/// store is; empty when what is on the drive then has the reference's bits, else what is wrong.
inline std::string finish_script(SimStorage& storage, Timeline& timeline, const Setup& setup,
                                 const Script& script, const Reference& reference,
                                 std::optional<std::uint64_t> resumes_at = std::nullopt) {
  ModelSpec model = tiny_model(setup.level);
  TrainerWeights weights;
  attach_weights(model, setup, weights);
  auto executor = make_deterministic_executor(timeline);
  auto communicators = make_in_process_group(1);
  const EngineParts parts{storage, *executor, *communicators[0], [&] { return timeline.now_ns(); },
                          Logger{}};
  const EngineOptions options = engine_options(setup, model, kSimStore);
  auto engine = make_engine(parts, options, model);
  if (!engine) return "opening: " + engine.error().message;
  if (resumes_at && engine.value()->step() != *resumes_at) {
    return "opened at step " + std::to_string(engine.value()->step()) + ", not " +
           std::to_string(*resumes_at);
  }
  Runner runner(*engine.value(), model, setup, weights);
  for (std::uint64_t step = engine.value()->step() + 1; step <= script.steps.size(); ++step) {
    if (const Status done = runner.run_step(step, script); !done) {
      return "step " + std::to_string(step) + ": " + done.error().message;
    }
    if (runner.norms.back() != reference.norms[step - 1]) {
      return "step " + std::to_string(step) + ": another norm";
    }
  }
  if (const Status done = engine.value()->flush(); !done) return "flush: " + done.error().message;
  engine.value().reset();
  auto content = content_of(storage, store_directories(options));
  if (!content) return "at the end: " + content.error().message;
  if (content.value().step != script.steps.size()) return "the last step is not committed";
  if (content.value().hash != expected_hash(reference, script.steps.size())) {
    return "another hash at the end";
  }
  return {};
}

}  // namespace penstock::testing
