#pragma once

/// Penstock for C++17 and later: owners over the C interface of penstock.h, header only.
///
/// Compiled into the caller, so it may throw and its layout is no part of the library's.
/// Owner:   Engine, Pool and Lease release what they hold; they are move-only. A Lease may outlive
///          its engine; it is then void.
/// Errors:  every failure throws Error, with the status and the sentence of penstock_last_error().
///          Destructors drop failures: call release() or destroy() where they matter.
/// Threads: as in penstock.h.

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "penstock/penstock.h"

namespace penstock {
inline namespace v0 {

/// A failed call: its status, and what() says why and what to do.
class Error : public std::runtime_error {
 public:
  Error(penstock_status status, const std::string& message)
      : std::runtime_error(message), status_(status) {}
  [[nodiscard]] penstock_status status() const noexcept { return status_; }

 private:
  penstock_status status_;
};

/// Throws unless the status is PENSTOCK_OK; call it on the thread that got the status.
inline void check(penstock_status status) {
  if (status != PENSTOCK_OK) throw Error(status, penstock_last_error());
}

/// The structs of penstock.h with their defaults set.
[[nodiscard]] inline penstock_engine_options engine_options() {
  penstock_engine_options value;
  check(penstock_engine_options_init(&value, sizeof value));
  return value;
}
[[nodiscard]] inline penstock_tensor_desc tensor_desc() {
  penstock_tensor_desc value;
  check(penstock_tensor_desc_init(&value, sizeof value));
  return value;
}
[[nodiscard]] inline penstock_step_input step_input() {
  penstock_step_input value;
  check(penstock_step_input_init(&value, sizeof value));
  return value;
}
[[nodiscard]] inline penstock_optimizer_args optimizer_args() {
  penstock_optimizer_args value;
  check(penstock_optimizer_args_init(&value, sizeof value));
  return value;
}
[[nodiscard]] inline penstock_optimizer_arrays optimizer_arrays() {
  penstock_optimizer_arrays value;
  check(penstock_optimizer_arrays_init(&value, sizeof value));
  return value;
}

/// The right to read a group's weights; ends with the object.
class Lease {
 public:
  Lease() { check(penstock_lease_init(&lease_, sizeof lease_)); }
  Lease(penstock_engine* engine, penstock_group group) : Lease() {
    check(penstock_acquire(engine, group, &lease_));
    engine_ = engine;
  }
  Lease(Lease&& other) noexcept
      : engine_(std::exchange(other.engine_, nullptr)), lease_(other.lease_) {
    other.clear();
  }
  Lease& operator=(Lease&& other) noexcept {
    if (this != &other) {
      drop();
      engine_ = std::exchange(other.engine_, nullptr);
      lease_ = other.lease_;
      other.clear();
    }
    return *this;
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease() { drop(); }

  void release() {
    if (engine_ != nullptr) check(penstock_release(std::exchange(engine_, nullptr), &lease_));
  }
  [[nodiscard]] bool valid() const noexcept { return engine_ != nullptr; }
  [[nodiscard]] penstock_group group() const noexcept { return lease_.group; }
  [[nodiscard]] std::uint64_t version() const noexcept { return lease_.version; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return lease_.bytes; }
  /// bf16, the whole group; a tensor starts at Engine::offset() elements.
  [[nodiscard]] const std::uint16_t* data() const noexcept {
    return static_cast<const std::uint16_t*>(lease_.data);
  }

 private:
  void drop() noexcept {
    if (engine_ != nullptr) (void)penstock_release(std::exchange(engine_, nullptr), &lease_);
  }
  void clear() noexcept {
    lease_.group = 0;
    lease_.data = nullptr;
    lease_.bytes = lease_.version = lease_.token = 0;
  }

  penstock_engine* engine_ = nullptr;
  penstock_lease lease_{};
};

/// A store, its budget and its steps.
class Engine {
 public:
  explicit Engine(const penstock_engine_options& options) {
    check(penstock_engine_create(&options, &engine_));
  }
  Engine(Engine&& other) noexcept : engine_(std::exchange(other.engine_, nullptr)) {}
  Engine& operator=(Engine&& other) noexcept {
    if (this != &other) {
      (void)penstock_engine_destroy(engine_);
      engine_ = std::exchange(other.engine_, nullptr);
    }
    return *this;
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine() { (void)penstock_engine_destroy(engine_); }

  /// The C handle, still owned here; NULL once moved from or destroyed.
  [[nodiscard]] penstock_engine* get() const noexcept { return engine_; }
  void destroy() { check(penstock_engine_destroy(std::exchange(engine_, nullptr))); }
  /// Throws the sticky failure, if there is one.
  void check_health() const { check(penstock_engine_error(engine_)); }

  // --- before open
  void set_host_budget(std::uint64_t bytes) {
    check(penstock_engine_set_budget(engine_, PENSTOCK_TIER_HOST, bytes));
  }
  [[nodiscard]] penstock_group add_group(const std::string& name) {
    penstock_group group = 0;
    check(penstock_group_register(engine_, name.c_str(), &group));
    return group;
  }
  [[nodiscard]] penstock_tensor add_tensor(const penstock_tensor_desc& desc) {
    penstock_tensor tensor = 0;
    check(penstock_tensor_register(engine_, &desc, &tensor));
    return tensor;
  }
  void set_order(const std::vector<penstock_group>& forward,
                 const std::vector<penstock_group>& backward = {}) {
    check(penstock_set_order(engine_, forward.data(), forward.size(), backward.data(),
                             backward.size()));
  }
  [[nodiscard]] std::uint64_t minimum_host_bytes() const {
    std::uint64_t bytes = 0;
    check(penstock_plan_minimum_bytes(engine_, PENSTOCK_TIER_HOST, &bytes));
    return bytes;
  }
  [[nodiscard]] std::string plan_json() const { return take_text(&penstock_plan_json); }
  void open() { check(penstock_engine_open(engine_)); }

  // --- facts
  [[nodiscard]] penstock_group group(const std::string& name) const {
    penstock_group found = 0;
    check(penstock_group_find(engine_, name.c_str(), &found));
    return found;
  }
  [[nodiscard]] penstock_tensor tensor(const std::string& name) const {
    penstock_tensor found = 0;
    check(penstock_tensor_find(engine_, name.c_str(), &found));
    return found;
  }
  [[nodiscard]] std::uint64_t elements(penstock_tensor tensor) const {
    std::uint64_t value = 0;
    check(penstock_tensor_elements(engine_, tensor, &value));
    return value;
  }
  [[nodiscard]] std::uint64_t offset(penstock_tensor tensor) const {
    std::uint64_t value = 0;
    check(penstock_tensor_offset(engine_, tensor, &value));
    return value;
  }
  struct Memory {
    void* data = nullptr;
    std::uint64_t bytes = 0;
  };
  [[nodiscard]] Memory workspace() {
    Memory memory;
    check(penstock_workspace(engine_, &memory.data, &memory.bytes));
    return memory;
  }
  [[nodiscard]] bool resumed() const {
    std::int32_t value = 0;
    check(penstock_resumed(engine_, &value));
    return value != 0;
  }
  /// A copy of the trainer's blob of the state that was opened.
  [[nodiscard]] std::vector<std::byte> opened_blob() const {
    const void* data = nullptr;
    std::uint64_t bytes = 0;
    check(penstock_opened_blob(engine_, &data, &bytes));
    const auto* first = static_cast<const std::byte*>(data);
    return bytes == 0 ? std::vector<std::byte>() : std::vector<std::byte>(first, first + bytes);
  }
  [[nodiscard]] std::uint64_t step() const { return take_number(&penstock_step); }
  [[nodiscard]] std::uint64_t updates() const { return take_number(&penstock_updates); }
  [[nodiscard]] std::uint64_t committed_step() const {
    return take_number(&penstock_committed_step);
  }
  [[nodiscard]] std::string stats_json() const { return take_text(&penstock_stats_json); }

  // --- steps
  void step_begin() { check(penstock_step_begin(engine_)); }
  [[nodiscard]] Lease acquire(penstock_group group) { return Lease(engine_, group); }
  void gradient(penstock_tensor tensor, const void* data, penstock_dtype dtype, std::uint32_t k = 0,
                std::uint32_t n = 1) {
    check(penstock_grad(engine_, tensor, data, dtype, k, n));
  }
  penstock_step_report step_end(const penstock_step_input& input, const void* blob = nullptr,
                                std::uint64_t blob_bytes = 0) {
    penstock_step_report report = empty_report();
    check(penstock_step_end(engine_, &input, blob, blob_bytes, &report));
    return report;
  }
  penstock_step_report step_skip(const void* blob = nullptr, std::uint64_t blob_bytes = 0) {
    penstock_step_report report = empty_report();
    check(penstock_step_skip(engine_, blob, blob_bytes, &report));
    return report;
  }
  void eval_begin() { check(penstock_eval_begin(engine_)); }
  void eval_end() { check(penstock_eval_end(engine_)); }
  void wait(penstock_tensor tensor, std::uint64_t updates) {
    check(penstock_wait(engine_, tensor, updates));
  }
  [[nodiscard]] bool query(penstock_tensor tensor, std::uint64_t updates) {
    std::int32_t ready = 0;
    check(penstock_query(engine_, tensor, updates, &ready));
    return ready != 0;
  }

  // --- state
  void flush() { check(penstock_flush(engine_)); }
  void checkpoint(const std::string& name) { check(penstock_checkpoint(engine_, name.c_str(), 0)); }
  /// A checkpoint named after its step; the newest `keep` of these stay.
  void rotate_checkpoints(std::uint32_t keep) {
    check(penstock_checkpoint(engine_, nullptr, keep));
  }
  void drop_checkpoint(const std::string& name) {
    check(penstock_checkpoint_drop(engine_, name.c_str()));
  }
  [[nodiscard]] std::string checkpoints_json() const {
    return take_text(&penstock_checkpoints_json);
  }
  /// The state of the last step, into a new store in `directory`, while the training goes on.
  void copy_store(const std::string& directory) {
    check(penstock_copy_store(engine_, directory.c_str()));
  }
  [[nodiscard]] std::string copy_json() const { return take_text(&penstock_copy_json); }
  [[nodiscard]] std::vector<float> export_master(penstock_tensor tensor) {
    std::vector<float> out(elements(tensor));
    check(penstock_export_master(engine_, tensor, out.data(), out.size()));
    return out;
  }

 private:
  template <class Get>
  [[nodiscard]] std::uint64_t take_number(Get get) const {
    std::uint64_t value = 0;
    check(get(engine_, &value));
    return value;
  }
  template <class Get>
  [[nodiscard]] std::string take_text(Get get) const {
    struct Owner {
      char* text = nullptr;
      ~Owner() { penstock_free(text); }
    } owner;
    check(get(engine_, &owner.text));
    return owner.text;
  }
  [[nodiscard]] static penstock_step_report empty_report() {
    penstock_step_report report;
    check(penstock_step_report_init(&report, sizeof report));
    return report;
  }

  penstock_engine* engine_ = nullptr;
};

/// Threads for penstock_cpu_optimizer_step.
class Pool {
 public:
  explicit Pool(std::uint32_t threads) { check(penstock_pool_create(threads, &pool_)); }
  Pool(Pool&& other) noexcept : pool_(std::exchange(other.pool_, nullptr)) {}
  Pool& operator=(Pool&& other) noexcept {
    if (this != &other) {
      (void)penstock_pool_destroy(pool_);
      pool_ = std::exchange(other.pool_, nullptr);
    }
    return *this;
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool() { (void)penstock_pool_destroy(pool_); }
  [[nodiscard]] penstock_pool* get() const noexcept { return pool_; }

 private:
  penstock_pool* pool_ = nullptr;
};

/// One fused update of the caller's arrays; false if a gradient is not finite and nothing changed.
[[nodiscard]] inline bool optimizer_step(const penstock_optimizer_args& args,
                                         const penstock_optimizer_arrays& arrays,
                                         const Pool* pool = nullptr) {
  std::int32_t applied = 0;
  check(penstock_cpu_optimizer_step(&args, &arrays, pool != nullptr ? pool->get() : nullptr,
                                    &applied));
  return applied != 0;
}

}  // namespace v0
}  // namespace penstock
