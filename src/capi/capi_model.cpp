// Exported: an engine's life, its model and its plan.

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
using penstock::Status;

namespace {

constexpr const char* kNullOutput = "the output is NULL";

/// Writes a Result to an output that must be there.
template <class T, class Make>
Status deliver(T* out, Make&& make) {
  if (out == nullptr) return capi::argument(kNullOutput);
  PENSTOCK_TAKE(value, make());
  *out = static_cast<T>(value);
  return ok();
}

}  // namespace

extern "C" {

penstock_status penstock_engine_create(const penstock_engine_options* options,
                                       penstock_engine** out) {
  return capi::guarded([&]() -> Status {
    if (out == nullptr) return capi::argument("engine_create: the output is NULL");
    if (capi::in_callback()) return capi::wrong_state("engine_create: called inside a callback");
    PENSTOCK_TRY(checked, capi::read_struct(options), "engine_create");
    PENSTOCK_TRY(made, capi::make_session_options(checked), "engine_create");
    const std::uint64_t handle = capi::new_handle(Session::kKind);
    capi::publish(handle, std::make_shared<Session>(handle, std::move(made)));
    *out = capi::as_pointer<penstock_engine>(handle);
    return ok();
  });
}

penstock_status penstock_engine_destroy(penstock_engine* engine) {
  return capi::guarded([&]() -> Status {
    if (engine == nullptr) return ok();
    PENSTOCK_TRY(object, capi::take_object(engine, Session::kKind), "engine_destroy");
    object.reset();
    return ok();
  });
}

penstock_status penstock_engine_error(penstock_engine* engine) {
  return with_facts(engine, "engine_error", [](Session&, Engine& e) { return e.error(); });
}

penstock_status penstock_engine_set_budget(penstock_engine* engine, penstock_tier tier,
                                           uint64_t bytes) {
  return with_session(engine, "engine_set_budget", Phase::kBeforeOpen,
                      [&](Session& s) { return s.set_budget(tier, bytes); });
}

penstock_status penstock_group_register(penstock_engine* engine, const char* name,
                                        penstock_group* out) {
  return with_session(engine, "group_register", Phase::kBeforeOpen,
                      [&](Session& s) { return deliver(out, [&] { return s.add_group(name); }); });
}

penstock_status penstock_group_find(penstock_engine* engine, const char* name,
                                    penstock_group* out) {
  return with_session(engine, "group_find", Phase::kAny,
                      [&](Session& s) { return deliver(out, [&] { return s.find_group(name); }); });
}

penstock_status penstock_tensor_register(penstock_engine* engine, const penstock_tensor_desc* desc,
                                         penstock_tensor* out) {
  return with_session(engine, "tensor_register", Phase::kBeforeOpen, [&](Session& s) -> Status {
    PENSTOCK_TAKE(checked, capi::read_struct(desc));
    return deliver(out, [&] { return s.add_tensor(checked); });
  });
}

penstock_status penstock_tensor_find(penstock_engine* engine, const char* name,
                                     penstock_tensor* out) {
  return with_session(engine, "tensor_find", Phase::kAny, [&](Session& s) {
    return deliver(out, [&] { return s.find_tensor(name); });
  });
}

penstock_status penstock_set_order(penstock_engine* engine, const penstock_group* forward,
                                   size_t forward_count, const penstock_group* backward,
                                   size_t backward_count) {
  return with_session(engine, "set_order", Phase::kBeforeOpen, [&](Session& s) -> Status {
    if ((forward == nullptr && forward_count > 0) || (backward == nullptr && backward_count > 0)) {
      return capi::argument("an order is NULL, but its count is not 0");
    }
    return s.set_order({forward, forward_count}, {backward, backward_count});
  });
}

penstock_status penstock_plan_minimum_bytes(penstock_engine* engine, penstock_tier tier,
                                            uint64_t* out) {
  return with_session(engine, "plan_minimum_bytes", Phase::kAny, [&](Session& s) -> Status {
    if (tier != PENSTOCK_TIER_HOST) {
      return capi::argument(
          fmt::format("tier is {}; only PENSTOCK_TIER_HOST has a minimum in this version", tier));
    }
    return deliver(out, [&] { return s.minimum_bytes(); });
  });
}

penstock_status penstock_plan_json(penstock_engine* engine, char** out) {
  return with_session(engine, "plan_json", Phase::kAny, [&](Session& s) -> Status {
    if (out == nullptr) return capi::argument(kNullOutput);
    PENSTOCK_TAKE(plan, s.plan());
    return capi::copy_text(capi::plan_report(s, plan), out);
  });
}

penstock_status penstock_engine_open(penstock_engine* engine) {
  return with_session(engine, "engine_open", Phase::kBeforeOpen,
                      [](Session& s) { return s.open(); });
}

penstock_status penstock_tensor_elements(penstock_engine* engine, penstock_tensor tensor,
                                         uint64_t* out) {
  return with_session(engine, "tensor_elements", Phase::kOpen, [&](Session& s) -> Status {
    if (out == nullptr) return capi::argument(kNullOutput);
    PENSTOCK_TAKE(id, s.tensor_of(tensor));
    *out = s.engine()->tensor_elements(id);
    return ok();
  });
}

penstock_status penstock_tensor_offset(penstock_engine* engine, penstock_tensor tensor,
                                       uint64_t* out) {
  return with_session(engine, "tensor_offset", Phase::kOpen, [&](Session& s) -> Status {
    if (out == nullptr) return capi::argument(kNullOutput);
    PENSTOCK_TAKE(id, s.tensor_of(tensor));
    *out = s.engine()->tensor_offset(id);
    return ok();
  });
}

penstock_status penstock_workspace(penstock_engine* engine, void** data, uint64_t* bytes) {
  return with_session(engine, "workspace", Phase::kOpen, [&](Session& s) -> Status {
    if (data == nullptr || bytes == nullptr) return capi::argument(kNullOutput);
    const auto memory = s.engine()->workspace();
    *data = memory.empty() ? nullptr : memory.data();
    *bytes = memory.size();
    return ok();
  });
}

penstock_status penstock_resumed(penstock_engine* engine, int32_t* out) {
  return with_facts(engine, "resumed", [&](Session&, Engine& e) -> Status {
    if (out == nullptr) return capi::argument(kNullOutput);
    *out = e.resumed() ? 1 : 0;
    return ok();
  });
}

penstock_status penstock_opened_blob(penstock_engine* engine, const void** data, uint64_t* bytes) {
  return with_facts(engine, "opened_blob", [&](Session&, Engine& e) -> Status {
    if (data == nullptr || bytes == nullptr) return capi::argument(kNullOutput);
    const auto blob = e.opened_blob();
    *data = blob.empty() ? nullptr : blob.data();
    *bytes = blob.size();
    return ok();
  });
}

}  // extern "C"
