#pragma once

/// Judges any implementation of an update rule by its values alone. The kernels must pass for every
/// rule; optimizers that are wrong in one way must not (update_mutant_test.cpp).

#include <string>
#include <vector>

#include "kernels/update_model.hpp"

namespace penstock::test {

/// What a check found; empty means it passed.
using Findings = std::vector<std::string>;

/// The rules with their options, one of each, by a name for messages.
struct NamedRule {
  const char* name;
  UpdateRule rule;
};
const std::vector<NamedRule>& named_rules();

/// Single steps from random states and copies of the new weights, long trajectories, decay alone
/// and movement under a constant gradient, for `rule` with several hyper-parameters.
Findings check_update(const UpdateRule& rule, const UpdateStep& step);

[[nodiscard]] std::string joined(const Findings& findings);

}  // namespace penstock::test
