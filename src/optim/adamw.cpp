#include "optim/adamw.hpp"

#include "plan/plan.hpp"

namespace penstock {

std::vector<SectionSpec> AdamWPolicy::sections() const {
  return fp32_sections();
}

void AdamWPolicy::on_step(const Record& record) {
  AdamW hyper = record.hyper;
  with_decay_ = adamw_scalars(hyper, record.updates, record.gradient_factor);
  hyper.weight_decay = 0.0;
  without_decay_ = adamw_scalars(hyper, record.updates, record.gradient_factor);
}

void AdamWPolicy::update(const TileRange& range) const {
  kernels_.adamw_split(range.decay ? with_decay_ : without_decay_, range.elements, range.hi,
                       range.lo, range.m, range.v, range.gradient);
}

}  // namespace penstock
