#include "train/fake_engine.hpp"

#include <algorithm>
#include <bit>

#include "base/random.hpp"
#include "train/shape.hpp"

namespace penstock::test {
namespace {

constexpr std::uint64_t kGap = 3;  // elements between tensors: offsets are odd, too

std::uint16_t to_bf16(float value) {  // finite values; nearest even
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

float from_bf16(std::uint16_t value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
}

Status out_of_order(const std::string& what) {
  return make_error(Errc::kState, "fake engine: " + what);
}

}  // namespace

FakeEngine::FakeEngine(const ModelSpec& spec, std::size_t workspace_bytes, std::uint64_t seed,
                       float spread)
    : spec_(spec), workspace_(workspace_bytes), groups_(spec.groups.size()) {
  acquired_.reserve(1 << 16);
  for (TensorId id = 0; id < spec_.tensors.size(); ++id) {
    const TensorSpec& tensor = spec_.tensors[id];
    std::vector<std::uint16_t>& group = groups_[tensor.group];
    if (!group.empty()) group.resize(group.size() + kGap);
    offsets_.push_back(group.size());
    const bool norm = tensor.init.kind == Init::Kind::kConstant;
    const float scale = is_matrix(tensor) ? spread : 0.2F;
    for (std::uint64_t i = 0; i < element_count(tensor); ++i) {
      const float value = (norm ? 1.0F : 0.0F) + scale * approximately_normal(seed, id, i);
      group.push_back(to_bf16(value));
    }
  }
}

std::vector<float> FakeEngine::contribution_of(TensorId tensor, std::uint32_t k) const {
  const auto found = gradients_.find({tensor, k});
  return found == gradients_.end() ? std::vector<float>{} : found->second;
}

std::vector<float> FakeEngine::gradient_of(TensorId tensor) const {
  std::vector<float> sum(element_count(spec_.tensors[tensor]), 0.0F);
  for (std::uint32_t k = 0; k < spec_.tensors[tensor].contributions; ++k) {
    const std::vector<float> part = contribution_of(tensor, k);
    for (std::size_t i = 0; i < part.size(); ++i) sum[i] += part[i];
  }
  return sum;
}

std::vector<float> FakeEngine::weights_of(TensorId tensor) const {
  std::vector<float> values(element_count(spec_.tensors[tensor]));
  const std::vector<std::uint16_t>& group = groups_[spec_.tensors[tensor].group];
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = from_bf16(group[offsets_[tensor] + i]);
  }
  return values;
}

std::uint64_t FakeEngine::tensor_offset(TensorId tensor) const {
  return offsets_[tensor];
}

std::uint64_t FakeEngine::tensor_elements(TensorId tensor) const {
  return element_count(spec_.tensors[tensor]);
}

Status FakeEngine::step_begin() {
  if (in_step_) return out_of_order("step_begin within a step");
  in_step_ = true;
  acquired_.clear();
  if (capture_) gradients_.clear();
  return ok();
}

Result<GroupLease> FakeEngine::acquire(GroupId group) {
  if (leases_ != 0) return out_of_order("two leases at a time").error();
  ++leases_;
  acquired_.push_back(group);
  return make_lease(group, 0, groups_[group].data());
}

void FakeEngine::release(GroupId) noexcept {
  --leases_;
}

Status FakeEngine::gradient(TensorId tensor, const void* values, WeightType type, std::uint32_t k,
                            std::uint32_t n) {
  if (!in_step_) return out_of_order("gradient outside a step");
  if (leases_ != 1 || acquired_.back() != spec_.tensors[tensor].group) {
    return out_of_order("gradient of a tensor whose group is not leased");
  }
  if (type != WeightType::kF32 || n != spec_.tensors[tensor].contributions || k >= n) {
    return out_of_order("gradient with wrong type or contribution");
  }
  if (!capture_) return ok();
  const auto* const first = static_cast<const float*>(values);
  const auto added = gradients_.emplace(std::pair{tensor, k},
                                        std::vector<float>(first, first + tensor_elements(tensor)));
  return added.second ? ok() : out_of_order("the same contribution twice");
}

Result<StepReport> FakeEngine::step_end(const StepInput&, std::span<const std::byte>) {
  if (!in_step_ || leases_ != 0) return out_of_order("step_end").error();
  in_step_ = false;
  StepReport report;
  report.step = ++steps_;
  return report;
}

Result<StepReport> FakeEngine::step_skip(std::span<const std::byte> blob) {
  return step_end({}, blob);
}

Status FakeEngine::export_master(TensorId tensor, float* out) {
  const std::vector<float> values = weights_of(tensor);
  std::copy(values.begin(), values.end(), out);
  return ok();
}

}  // namespace penstock::test
