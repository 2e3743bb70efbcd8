#pragma once

/// An engine in memory for tests: fixed weights, captured gradients, no updates.
///
/// It checks what the real one relies on: groups come in the order of the model's visits, one lease
/// at a time, every contribution once and between step_begin and step_end, nothing after a failure.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "base/counters.hpp"
#include "engine/engine.hpp"

namespace penstock::test {

/// Memory aligned to 64 bytes and exactly as long as asked for, so that a sanitizer sees overruns.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::size_t bytes)
      : bytes_(bytes), data_(static_cast<std::byte*>(::operator new(bytes, kAlign))) {}
  ~AlignedBytes() { ::operator delete(data_, kAlign); }
  AlignedBytes(const AlignedBytes&) = delete;
  AlignedBytes& operator=(const AlignedBytes&) = delete;
  [[nodiscard]] std::span<std::byte> span() { return {data_, bytes_}; }

 private:
  static constexpr std::align_val_t kAlign{64};
  std::size_t bytes_;
  std::byte* data_;
};

class FakeEngine final : public Engine {
 public:
  /// Weights far from the initial ones, so that every term of a formula matters: matrices normal
  /// with deviation `spread`, norm weights around 1, biases around 0; all a function of `seed`.
  FakeEngine(const ModelSpec& spec, std::size_t workspace_bytes, std::uint64_t seed, float spread);

  /// Captured gradients: contributions of the last step, and their sum in ascending order.
  [[nodiscard]] std::vector<float> gradient_of(TensorId tensor) const;
  [[nodiscard]] std::vector<float> contribution_of(TensorId tensor, std::uint32_t k) const;
  [[nodiscard]] std::vector<float> weights_of(TensorId tensor) const;
  [[nodiscard]] const std::vector<GroupId>& acquired() const { return acquired_; }
  [[nodiscard]] int leases() const { return leases_; }
  /// Capture of gradients can be switched off, for a test that counts allocations.
  void capture(bool on) { capture_ = on; }

  [[nodiscard]] const Plan& plan() const override { return plan_; }
  [[nodiscard]] std::uint64_t tensor_offset(TensorId tensor) const override;
  [[nodiscard]] std::uint64_t tensor_elements(TensorId tensor) const override;
  [[nodiscard]] std::span<std::byte> workspace() override { return workspace_.span(); }
  [[nodiscard]] bool resumed() const override { return false; }
  [[nodiscard]] std::uint64_t step() const override { return steps_; }
  [[nodiscard]] std::uint64_t updates() const override { return 0; }
  [[nodiscard]] std::uint64_t committed_step() const override { return 0; }
  [[nodiscard]] std::span<const std::byte> opened_blob() const override { return {}; }
  [[nodiscard]] const Counters& counters() const override { return counters_; }
  [[nodiscard]] std::string queue_backend() const override { return "none"; }
  [[nodiscard]] DriveRates drive_rates() const override { return {}; }
  [[nodiscard]] std::string drive_words() const override { return {}; }
  [[nodiscard]] std::uint64_t waited_ns() const override { return 0; }

  Status step_begin() override;
  Result<GroupLease> acquire(GroupId group) override;
  Status gradient(TensorId tensor, const void* values, WeightType type, std::uint32_t k,
                  std::uint32_t n) override;
  Result<StepReport> step_end(const StepInput& input, std::span<const std::byte> blob) override;
  Result<StepReport> step_skip(std::span<const std::byte> blob) override;
  Status eval_begin() override { return ok(); }
  Status eval_end() override { return ok(); }
  Status wait(TensorId, std::uint64_t) override { return ok(); }
  Result<bool> query(TensorId, std::uint64_t) override { return true; }
  Status flush() override { return ok(); }
  Status export_master(TensorId tensor, float* out) override;
  Status checkpoint(const CheckpointRequest&) override { return ok(); }
  Status tee(const StoreDirectories&) override { return ok(); }
  [[nodiscard]] TeeReport last_tee() const override { return {}; }
  Status drop_checkpoint(const std::string&) override { return ok(); }
  [[nodiscard]] std::vector<PinSummary> checkpoints() const override { return {}; }
  [[nodiscard]] std::uint32_t checkpoint_room() const override { return 0; }
  [[nodiscard]] std::optional<LifetimeBytes> written_in_life() const override { return {}; }
  [[nodiscard]] Status error() const override { return ok(); }

 private:
  void release(GroupId group) noexcept override;

  ModelSpec spec_;
  Plan plan_;
  Counters counters_;
  AlignedBytes workspace_;
  std::vector<std::uint64_t> offsets_;
  std::vector<std::vector<std::uint16_t>> groups_;  // bf16
  std::map<std::pair<TensorId, std::uint32_t>, std::vector<float>> gradients_;
  std::vector<GroupId> acquired_;
  std::uint64_t steps_ = 0;
  bool in_step_ = false, capture_ = true;
  int leases_ = 0;
};

}  // namespace penstock::test
