// A running session: what the engine cannot know of its callers is checked here.

#include <algorithm>
#include <cmath>
#include <limits>

#include "capi/session.hpp"
#include "capi/versioned.hpp"

namespace penstock::capi {
namespace {

constexpr std::uint64_t kTokenBits = 32;  // a token is {session, number of the lease}

Result<WeightType> type_of(penstock_dtype dtype, const void* data) {
  const auto aligned = [&](std::uintptr_t bytes) {
    return reinterpret_cast<std::uintptr_t>(data) % bytes == 0;
  };
  const bool is_wide = dtype == PENSTOCK_F32;
  if (!is_wide && dtype != PENSTOCK_F16 && dtype != PENSTOCK_BF16) {
    return argument(
        fmt::format("dtype is {}; it is PENSTOCK_F32, PENSTOCK_F16 or PENSTOCK_BF16", dtype));
  }
  if (data == nullptr) return argument("the gradient's array is NULL");
  if (!aligned(is_wide ? 4 : 2)) return argument("the gradient is not aligned to its elements");
  if (is_wide) return WeightType::kF32;
  return dtype == PENSTOCK_F16 ? WeightType::kF16 : WeightType::kBf16;
}

}  // namespace

/// Updates may need what a lease holds, so some calls would wait for the caller itself.
Status Session::check_quiet(const char* what) const {
  PENSTOCK_CHECK_OK(engine_->error());
  if (leases_.empty()) return ok();
  const GroupId group = leases_.back().lease.group();
  return wrong_state(fmt::format("{} while {} still held, of group \"{}\"; release first", what,
                                 leases_.size() == 1 ? std::string("a lease is")
                                                     : fmt::format("{} leases are", leases_.size()),
                                 model_.groups[group]));
}

Status Session::check_level1(const char* what) const {
  if (model_.level == Level::kStates) return ok();
  return wrong_state(fmt::format("{} is for level 1; at level 2 acquire waits", what));
}

Status Session::step_begin() {
  PENSTOCK_CHECK_OK(engine_->step_begin());
  in_step_ = true;
  return ok();
}

Status Session::acquire(penstock_group number, penstock_lease* lease) {
  PENSTOCK_CHECK_OK(check_struct(lease));
  PENSTOCK_CHECK_OK(engine_->error());
  PENSTOCK_TAKE(group, group_of(number));
  for (const HeldLease& held : leases_) {
    if (held.token == lease->token) {
      return wrong_state("the struct holds a lease; release it or use another struct");
    }
  }
  leases_.reserve(leases_.size() + 1);
  PENSTOCK_TAKE(taken, engine_->acquire(group));
  penstock_lease out = Versions<penstock_lease>::defaults();
  out.group = number;
  out.data = taken.data();
  out.bytes = engine_->plan().groups[group].elements * kHiBytes;
  out.version = taken.version();
  out.token = number_ << kTokenBits | next_token_++;
  leases_.push_back({out.token, std::move(taken)});
  write_struct(out, lease);
  return ok();
}

Status Session::release(penstock_lease* lease) {
  PENSTOCK_CHECK_OK(check_struct(lease));
  if (lease->token == 0) {
    return wrong_state("the lease is empty: never acquired, or released before");
  }
  if (lease->token >> kTokenBits != number_) {
    return argument("the lease is not of this engine; release it with the engine that gave it");
  }
  const auto held = std::find_if(leases_.begin(), leases_.end(),
                                 [&](const HeldLease& h) { return h.token == lease->token; });
  if (held == leases_.end()) return wrong_state("the lease was released before");
  leases_.erase(held);
  write_struct(Versions<penstock_lease>::defaults(), lease);
  return ok();
}

Status Session::gradient(penstock_tensor number, const void* data, penstock_dtype dtype,
                         std::uint32_t k, std::uint32_t n) {
  PENSTOCK_TAKE(tensor, tensor_of(number));
  PENSTOCK_TAKE(type, type_of(dtype, data));
  return engine_->gradient(tensor, data, type, k, n);
}

Status Session::step_end(const StepInput* input, std::span<const std::byte> blob,
                         penstock_step_report* report) {
  if (report != nullptr) PENSTOCK_CHECK_OK(check_struct(report));
  PENSTOCK_CHECK_OK(check_quiet("the step cannot end"));
  PENSTOCK_TAKE(ended,
                input != nullptr ? engine_->step_end(*input, blob) : engine_->step_skip(blob));
  in_step_ = false;
  if (report == nullptr) return ok();
  penstock_step_report out = Versions<penstock_step_report>::defaults();
  out.applied = ended.applied ? 1 : 0;
  out.commits = ended.commits ? 1 : 0;
  out.step = ended.step;
  out.updates = ended.updates;
  out.norm = ended.norm;
  out.clip = ended.clip;
  write_struct(out, report);
  return ok();
}

Status Session::eval(bool begin) {
  PENSTOCK_CHECK_OK(check_quiet(begin ? "an evaluation cannot begin" : "an evaluation cannot end"));
  PENSTOCK_CHECK_OK(begin ? engine_->eval_begin() : engine_->eval_end());
  in_eval_ = begin;
  return ok();
}

Status Session::wait(penstock_tensor number, std::uint64_t updates) {
  PENSTOCK_CHECK_OK(check_level1("wait"));
  PENSTOCK_TAKE(tensor, tensor_of(number));
  return engine_->wait(tensor, updates);
}

Status Session::query(penstock_tensor number, std::uint64_t updates, std::int32_t* ready) {
  if (ready == nullptr) return argument("the output is NULL");
  PENSTOCK_CHECK_OK(check_level1("query"));
  PENSTOCK_TAKE(tensor, tensor_of(number));
  PENSTOCK_TAKE(is_ready, engine_->query(tensor, updates));
  *ready = is_ready ? 1 : 0;
  return ok();
}

Status Session::flush() {
  PENSTOCK_CHECK_OK(check_quiet("nothing can be flushed"));
  if (in_step_ || in_eval_)
    return wrong_state("a step or an evaluation is under way; end it first");
  return engine_->flush();
}

Status Session::checkpoint(const char* name, std::uint32_t keep) {
  PENSTOCK_CHECK_OK(check_quiet("no checkpoint can be made"));
  if (name == nullptr) return engine_->checkpoint({"", std::max<std::uint32_t>(keep, 1)});
  if (*name == '\0') return argument("the name is empty; NULL makes a rotating checkpoint");
  return engine_->checkpoint({name, 1});
}

Status Session::drop_checkpoint(const char* name) {
  PENSTOCK_CHECK_OK(check_quiet("no checkpoint can be dropped"));
  if (name == nullptr) return argument("the name is NULL");
  return engine_->drop_checkpoint(name);
}

Status Session::copy_store(const char* directory) {
  PENSTOCK_CHECK_OK(check_quiet("no copy can be made"));
  if (directory == nullptr || *directory == '\0') return argument("the directory names nothing");
  return engine_->tee(directory);
}

Status Session::export_master(penstock_tensor number, float* out, std::uint64_t elements) {
  PENSTOCK_CHECK_OK(check_quiet("nothing can be exported"));
  if (in_step_ || in_eval_)
    return wrong_state("a step or an evaluation is under way; end it first");
  PENSTOCK_TAKE(tensor, tensor_of(number));
  if (out == nullptr) return argument("the output is NULL");
  if (reinterpret_cast<std::uintptr_t>(out) % sizeof(float) != 0) {
    return argument("the output is not aligned to floats");
  }
  if (elements != engine_->tensor_elements(tensor)) {
    return argument(fmt::format("room for {} elements, but tensor \"{}\" has {}", elements,
                                model_.tensors[tensor].name, engine_->tensor_elements(tensor)));
  }
  return engine_->export_master(tensor, out);
}

}  // namespace penstock::capi
