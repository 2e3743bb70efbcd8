// Exported: steps, evaluation, waiting, persistence, facts.

#include "capi/hyper.hpp"
#include "capi/json_report.hpp"
#include "capi/session.hpp"
#include "capi/text.hpp"
#include "capi/versioned.hpp"

namespace capi = penstock::capi;
using capi::Phase;
using capi::Session;
using capi::with_facts;
using capi::with_session;
using penstock::Engine;
using penstock::ok;
using penstock::Result;
using penstock::Status;

namespace {

constexpr uint64_t kLargestBlob = 1 << 20;

Result<std::span<const std::byte>> blob_of(const void* blob, uint64_t bytes) {
  if (blob == nullptr && bytes > 0) return capi::argument("the blob is NULL, but has bytes");
  if (bytes > kLargestBlob) {
    return capi::argument(
        fmt::format("the blob has {} bytes; at most {} are possible", bytes, kLargestBlob));
  }
  return std::span(static_cast<const std::byte*>(blob), bytes);
}

Result<penstock::StepInput> input_of(const penstock_step_input* input) {
  PENSTOCK_TAKE(given, capi::read_struct(input));
  penstock::StepInput out;
  out.hyper = {given.lr, given.beta1, given.beta2, given.eps, given.weight_decay};
  PENSTOCK_CHECK_OK(capi::check_hyper(update_rule(out.hyper)));
  PENSTOCK_CHECK_OK(capi::check_factor("gradient_scale", given.gradient_scale));
  PENSTOCK_CHECK_OK(capi::check_factor("max_norm", given.max_norm));
  if (given.max_norm < 0.0) {
    return capi::argument(
        fmt::format("max_norm is {}; it is positive, or 0 for no clipping", given.max_norm));
  }
  if (given.reserved != 0) return capi::argument("a reserved member is set; leave it zero");
  out.max_norm = given.max_norm;
  out.gradient_scale = given.gradient_scale;
  return out;
}

template <class Get>
penstock_status number(penstock_engine* engine, const char* call, uint64_t* out, Get&& get) {
  return with_facts(engine, call, [&](Session&, Engine& e) -> Status {
    if (out == nullptr) return capi::argument("the output is NULL");
    *out = get(e);
    return ok();
  });
}

}  // namespace

extern "C" {

penstock_status penstock_step_begin(penstock_engine* engine) {
  return with_session(engine, "step_begin", Phase::kOpen,
                      [](Session& s) { return s.step_begin(); });
}

penstock_status penstock_acquire(penstock_engine* engine, penstock_group group,
                                 penstock_lease* lease) {
  return with_session(engine, "acquire", Phase::kOpen,
                      [&](Session& s) { return s.acquire(group, lease); });
}

penstock_status penstock_release(penstock_engine* engine, penstock_lease* lease) {
  return with_session(engine, "release", Phase::kOpen,
                      [&](Session& s) { return s.release(lease); });
}

penstock_status penstock_grad(penstock_engine* engine, penstock_tensor tensor, const void* data,
                              penstock_dtype dtype, uint32_t k, uint32_t n) {
  return with_session(engine, "grad", Phase::kOpen,
                      [&](Session& s) { return s.gradient(tensor, data, dtype, k, n); });
}

penstock_status penstock_step_end(penstock_engine* engine, const penstock_step_input* input,
                                  const void* blob, uint64_t blob_bytes,
                                  penstock_step_report* report) {
  return with_session(engine, "step_end", Phase::kOpen, [&](Session& s) -> Status {
    PENSTOCK_TAKE(checked, input_of(input));
    PENSTOCK_TAKE(bytes, blob_of(blob, blob_bytes));
    return s.step_end(&checked, bytes, report);
  });
}

penstock_status penstock_step_skip(penstock_engine* engine, const void* blob, uint64_t blob_bytes,
                                   penstock_step_report* report) {
  return with_session(engine, "step_skip", Phase::kOpen, [&](Session& s) -> Status {
    PENSTOCK_TAKE(bytes, blob_of(blob, blob_bytes));
    return s.step_end(nullptr, bytes, report);
  });
}

penstock_status penstock_eval_begin(penstock_engine* engine) {
  return with_session(engine, "eval_begin", Phase::kOpen, [](Session& s) { return s.eval(true); });
}

penstock_status penstock_eval_end(penstock_engine* engine) {
  return with_session(engine, "eval_end", Phase::kOpen, [](Session& s) { return s.eval(false); });
}

penstock_status penstock_wait(penstock_engine* engine, penstock_tensor tensor, uint64_t updates) {
  return with_session(engine, "wait", Phase::kOpen,
                      [&](Session& s) { return s.wait(tensor, updates); });
}

penstock_status penstock_query(penstock_engine* engine, penstock_tensor tensor, uint64_t updates,
                               int32_t* ready) {
  return with_session(engine, "query", Phase::kOpen,
                      [&](Session& s) { return s.query(tensor, updates, ready); });
}

penstock_status penstock_flush(penstock_engine* engine) {
  return with_session(engine, "flush", Phase::kOpen, [](Session& s) { return s.flush(); });
}

penstock_status penstock_checkpoint(penstock_engine* engine, const char* name, uint32_t keep) {
  return with_session(engine, "checkpoint", Phase::kOpen,
                      [&](Session& s) { return s.checkpoint(name, keep); });
}

penstock_status penstock_checkpoint_drop(penstock_engine* engine, const char* name) {
  return with_session(engine, "checkpoint_drop", Phase::kOpen,
                      [&](Session& s) { return s.drop_checkpoint(name); });
}

penstock_status penstock_checkpoints_json(penstock_engine* engine, char** out) {
  return with_facts(engine, "checkpoints_json", [&](Session&, Engine& e) -> Status {
    if (out == nullptr) return capi::argument("the output is NULL");
    return capi::copy_text(capi::checkpoints_report(e), out);
  });
}

penstock_status penstock_copy_store(penstock_engine* engine, const char* directory) {
  return with_session(engine, "copy_store", Phase::kOpen,
                      [&](Session& s) { return s.copy_store(directory); });
}

penstock_status penstock_copy_json(penstock_engine* engine, char** out) {
  return with_facts(engine, "copy_json", [&](Session&, Engine& e) -> Status {
    if (out == nullptr) return capi::argument("the output is NULL");
    return capi::copy_text(capi::copy_report(e), out);
  });
}

penstock_status penstock_export_master(penstock_engine* engine, penstock_tensor tensor, float* out,
                                       uint64_t elements) {
  return with_session(engine, "export_master", Phase::kOpen,
                      [&](Session& s) { return s.export_master(tensor, out, elements); });
}

penstock_status penstock_step(penstock_engine* engine, uint64_t* out) {
  return number(engine, "step", out, [](Engine& e) { return e.step(); });
}

penstock_status penstock_updates(penstock_engine* engine, uint64_t* out) {
  return number(engine, "updates", out, [](Engine& e) { return e.updates(); });
}

penstock_status penstock_committed_step(penstock_engine* engine, uint64_t* out) {
  return number(engine, "committed_step", out, [](Engine& e) { return e.committed_step(); });
}

penstock_status penstock_stats_json(penstock_engine* engine, char** out) {
  return with_facts(engine, "stats_json", [&](Session& s, Engine& e) -> Status {
    if (out == nullptr) return capi::argument("the output is NULL");
    return capi::copy_text(capi::stats_report(s, e), out);
  });
}

}  // extern "C"
