#include "optim/adamw.hpp"

#include "plan/plan.hpp"

namespace penstock {

std::vector<SectionSpec> AdamWPolicy::sections() const {
  return fp32_sections();
}

void AdamWPolicy::on_step(const Record& record) {
  UpdateRule rule = update_rule(record.hyper);
  const auto prepare = [&]() -> Update {
    return {update_kernel(isa_, rule, DType::kBf16, Master::kSplit),
            update_scalars(rule, record.updates, record.gradient_factor)};
  };
  with_decay_ = prepare();
  rule.weight_decay = 0.0;
  without_decay_ = prepare();
}

void AdamWPolicy::update(const TileRange& range) const {
  const Update& update = range.decay ? with_decay_ : without_decay_;
  UpdateArrays arrays;
  arrays.n = range.elements;
  arrays.hi = range.hi;
  arrays.lo = range.lo;
  arrays.m = range.m;
  arrays.v = range.v;
  arrays.gradient = range.gradient;
  update.kernel(update.scalars, arrays);
}

}  // namespace penstock
