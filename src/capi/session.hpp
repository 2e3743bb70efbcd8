#pragma once

/// What stands behind a penstock_engine: first a model being described, then a running engine.
///
/// Invariants
///   1. Everything but `facts_` is touched only with the session's lock held; the lock is taken by
///      with_session(), for the whole of a call.
///   2. engine() is null until opened; after that options and model never change.
///   3. leases_ holds exactly the leases that were handed out and not released; their tokens are
///      never used again.
///   4. Group and tensor numbers carry the session's: those of another session are told apart.

#include <atomic>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "capi/registry.hpp"
#include "capi/status.hpp"
#include "engine/engine.hpp"

namespace penstock::capi {

struct SessionOptions {
  EngineOptions engine;
  Level level = Level::kWeights;
  std::uint32_t threads = 0;  ///< 0: what the machine gives this process
  Logger logger;
};

/// Checks what the caller set. Errors: kArgument, kUnsupported.
Result<SessionOptions> make_session_options(const penstock_engine_options& options);

class Session final : public Object {
 public:
  static constexpr HandleKind kKind = HandleKind::kEngine;

  Session(std::uint64_t number, SessionOptions options);

  // --- before open
  Status set_budget(penstock_tier tier, std::uint64_t bytes);
  Result<penstock_group> add_group(const char* name);
  Result<penstock_tensor> add_tensor(const penstock_tensor_desc& desc);
  Status set_order(std::span<const penstock_group> forward,
                   std::span<const penstock_group> backward);
  Result<std::uint64_t> minimum_bytes();
  Result<Plan> plan();
  Status open();

  // --- names
  Result<penstock_group> find_group(const char* name) const;
  Result<penstock_tensor> find_tensor(const char* name) const;
  Result<GroupId> group_of(penstock_group group) const;
  Result<TensorId> tensor_of(penstock_tensor tensor) const;

  // --- after open
  Status step_begin();
  Status acquire(penstock_group group, penstock_lease* lease);
  Status release(penstock_lease* lease);
  Status gradient(penstock_tensor tensor, const void* data, penstock_dtype dtype, std::uint32_t k,
                  std::uint32_t n);
  Status step_end(const StepInput* input, std::span<const std::byte> blob,
                  penstock_step_report* report);
  Status eval(bool begin);
  Status wait(penstock_tensor tensor, std::uint64_t updates);
  Status query(penstock_tensor tensor, std::uint64_t updates, std::int32_t* ready);
  Status flush();
  Status checkpoint(const char* name, std::uint32_t keep);
  Status drop_checkpoint(const char* name);
  Status copy_store(const char* directory);
  Status export_master(penstock_tensor tensor, float* out, std::uint64_t elements);

  [[nodiscard]] Engine* engine() const noexcept { return engine_.get(); }
  /// The engine for facts, which take no lock; null until opened.
  [[nodiscard]] Engine* facts() const noexcept { return facts_.load(std::memory_order_acquire); }
  [[nodiscard]] const SessionOptions& options() const noexcept { return options_; }
  [[nodiscard]] const ModelSpec& model() const noexcept { return model_; }
  [[nodiscard]] std::mutex& mutex() noexcept { return mutex_; }

 private:
  struct HeldLease {
    std::uint64_t token = 0;
    GroupLease lease;
  };

  [[nodiscard]] std::uint64_t number_of(std::uint64_t kind, std::size_t index) const;
  Result<std::uint32_t> index_of(std::uint64_t number, std::uint64_t kind, std::size_t count) const;
  Status fill_weights(const penstock_tensor_desc& desc, TensorSpec& tensor);
  Status check_model() const;
  Status check_quiet(const char* what) const;
  Status check_level1(const char* what) const;

  const std::uint64_t number_;
  SessionOptions options_;
  ModelSpec model_;
  std::unordered_map<std::string, penstock_group> groups_;
  std::unordered_map<std::string, penstock_tensor> tensors_;
  std::uint64_t elements_ = 0;  // of all tensors

  std::mutex mutex_;
  bool in_step_ = false, in_eval_ = false;
  std::uint64_t next_token_ = 1;

  // In this order: leases go before the engine, which goes before its parts.
  std::unique_ptr<Storage> storage_;
  std::unique_ptr<Executor> executor_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
  std::unique_ptr<Engine> engine_;
  std::vector<HeldLease> leases_;
  std::atomic<Engine*> facts_{nullptr};
};

enum class Phase : std::uint8_t { kAny, kBeforeOpen, kOpen };

/// One call on an engine: finds it, waits for the calls before, checks the phase, runs
/// body(session) -> Status, and puts the call's name before an error.
template <class Body>
penstock_status with_session(penstock_engine* handle, const char* call, Phase phase,
                             Body&& body) noexcept {
  return guarded([&]() -> Status {
    PENSTOCK_TRY(session, find<Session>(handle), call);
    const std::lock_guard lock(session->mutex());
    const bool open = session->engine() != nullptr;
    if (phase == Phase::kBeforeOpen && open) {
      return wrong_state(std::string(call) + ": the engine is open; this comes before opening it");
    }
    if (phase == Phase::kOpen && !open) {
      return wrong_state(std::string(call) + ": open the engine first");
    }
    Status status = body(*session);
    if (!status) return std::move(status).error().in(call);
    return status;
  });
}

/// The same for facts: without waiting for a call in progress.
template <class Body>
penstock_status with_facts(penstock_engine* handle, const char* call, Body&& body) noexcept {
  return guarded([&]() -> Status {
    PENSTOCK_TRY(session, find<Session>(handle), call);
    Engine* engine = session->facts();
    if (engine == nullptr) return wrong_state(std::string(call) + ": open the engine first");
    Status status = body(*session, *engine);
    if (!status) return std::move(status).error().in(call);
    return status;
  });
}

}  // namespace penstock::capi
