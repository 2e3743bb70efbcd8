#include "capi/json_report.hpp"

#include <nlohmann/json.hpp>

#include "base/compiler.hpp"
#include "base/counters.hpp"
#include "kernels/cpu/isa.hpp"

namespace penstock::capi {
namespace {

using nlohmann::json;

/// The cells that are not zero.
json traffic_of(const TrafficTable& table) {
  json out = json::array();
  for (std::size_t l = 0; l < kLinks; ++l) {
    for (std::size_t c = 0; c < kTensorClasses; ++c) {
      for (std::size_t k = 0; k < kTrafficKinds; ++k) {
        const auto link = static_cast<Link>(l);
        const auto tensor_class = static_cast<TensorClass>(c);
        const auto kind = static_cast<TrafficKind>(k);
        const Traffic& cell = table.at(link, tensor_class, kind);
        if (cell.operations == 0) continue;
        out.push_back({{"link", name_of(link)},
                       {"class", name_of(tensor_class)},
                       {"kind", name_of(kind)},
                       {"bytes", cell.bytes},
                       {"operations", cell.operations}});
      }
    }
  }
  return out;
}

/// Names come from the trainer and may be no UTF-8; a report is worth more than an exception.
std::string text_of(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

std::string build_info_json() {
  json isas = json::array();
  for (int i = 0; i < kIsaCount; ++i) {
    const auto isa = static_cast<Isa>(i);
    if (isa_supported(isa)) isas.push_back(isa_name(isa));
  }
  return text_of({{"schema", "penstock.build/1"},
                  {"version", PENSTOCK_VERSION_TEXT},
                  {"compiler", kCompiler},
                  {"build_type", PENSTOCK_BUILD_TYPE_TEXT},
                  {"sanitizers", PENSTOCK_SANITIZERS_TEXT},
                  {"cuda", false},
                  {"queues", {"auto", "io_uring", "threads"}},
                  {"isa", isas}});
}

std::string plan_report(const Session& session, const Plan& plan) {
  json groups = json::array();
  std::uint64_t pinned_states = 0;
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    const GroupPlan& group = plan.groups[g];
    std::uint32_t pinned = 0;
    for (std::uint32_t b = 0; b < group.block_count; ++b) {
      pinned += plan.blocks[group.first_block + b].state_pinned ? 1 : 0;
    }
    pinned_states += pinned;
    groups.push_back({{"name", session.model().groups[g]},
                      {"elements", group.elements},
                      {"blocks", group.block_count},
                      {"hi_home", group.lent        ? "trainer"
                                  : group.hi_pinned ? "host"
                                                    : "nvme"},
                      {"blocks_with_state_in_host", pinned},
                      {"trainable", group.trainable}});
  }
  const EngineOptions& options = session.options().engine;
  return text_of({{"schema", "penstock.plan/1"},
                  {"level", static_cast<int>(plan.level)},
                  {"block_elements", plan.block_elements},
                  {"blocks", plan.blocks.size()},
                  {"blocks_with_state_in_host", pinned_states},
                  {"blocks_with_spilled_gradient", plan.spill_count},
                  {"commit_every", plan.commit_every},
                  {"host",
                   {{"budget_bytes", options.host_bytes},
                    {"used_bytes", plan.host_bytes},
                    {"minimum_bytes", plan.minimum_bytes},
                    {"workspace_bytes", plan.workspace_bytes},
                    {"accumulator_bytes", plan.accumulator_bytes}}},
                  {"bytes_per_step",
                   {{"hi_read", plan.traffic.hi_read},
                    {"hi_write", plan.traffic.hi_write},
                    {"state_read", plan.traffic.state_read},
                    {"state_write", plan.traffic.state_write},
                    {"spill", plan.traffic.spill},
                    {"commit_of_ram_homed", plan.traffic.ram_homed}}},
                  {"groups", groups},
                  {"text", describe(plan)}});
}

std::string checkpoints_report(const Engine& engine) {
  json checkpoints = json::array();
  for (const PinSummary& pin : engine.checkpoints()) {
    checkpoints.push_back({{"name", pin.name},
                           {"step", pin.step},
                           {"updates", pin.updates},
                           {"own_bytes", pin.own_bytes},
                           {"rotating", pin.rotating}});
  }
  return text_of({{"schema", "penstock.checkpoints/1"},
                  {"room", engine.checkpoint_room()},
                  {"checkpoints", checkpoints}});
}

std::string copy_report(const Engine& engine) {
  static constexpr const char* kStates[] = {"none", "copying", "done", "failed"};
  const TeeReport copy = engine.last_tee();
  return text_of({{"schema", "penstock.copy/1"},
                  {"state", kStates[static_cast<std::size_t>(copy.state)]},
                  {"directory", copy.directory},
                  {"step", copy.step},
                  {"read_bytes", copy.read_bytes},
                  {"failure", copy.failure}});
}

std::string stats_report(const Session& session, const Engine& engine) {
  const CounterSnapshot counters = engine.counters().snapshot();
  json value = {
      {"schema", "penstock.stats/1"},
      {"step", engine.step()},
      {"updates", engine.updates()},
      {"committed_step", engine.committed_step()},
      {"resumed", engine.resumed()},
      {"queue", engine.queue_backend()},
      {"threads", session.options().threads},
      {"isa", isa_name(session.options().engine.isa)},
      {"plan", describe(engine.plan())},
      {"total", traffic_of(counters.total)},
      {"current_step",
       {{"step", counters.current.step}, {"traffic", traffic_of(counters.current.traffic)}}}};
  if (!counters.recent.empty()) {
    const StepTraffic& last = counters.recent.back();
    value["last_step"] = {{"step", last.step}, {"traffic", traffic_of(last.traffic)}};
  }
  return text_of(value);
}

}  // namespace penstock::capi
