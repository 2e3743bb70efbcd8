#pragma once

/// Exact AdamW on the fp32 ladder: hi, lo, m, v (Loshchilov & Hutter 2019, decoupled decay).

#include "optim/update_policy.hpp"

namespace penstock {

class AdamWPolicy final : public UpdatePolicy {
 public:
  explicit AdamWPolicy(Isa isa) : isa_(isa) {}
  [[nodiscard]] std::vector<SectionSpec> sections() const override;
  [[nodiscard]] Grain grain() const override { return Grain::kElement; }
  void on_step(const Record& record) override;
  void update(const TileRange& range) const override;

 private:
  struct Update {
    UpdateKernel kernel = nullptr;
    UpdateScalars scalars{};
  };

  Isa isa_;
  Update with_decay_, without_decay_;
};

}  // namespace penstock
