#pragma once

/// Checks of hyper-parameters, so that no formula meets what it is not defined for.
/// Errors: kArgument names the value and its range.

#include "capi/status.hpp"
#include "kernels/cpu/update.hpp"

namespace penstock::capi {

/// Those of the rule in range, those of other rules at zero: an option that has no effect is a
/// mistake that nobody would notice. eps is at least the smallest normal float: where gradients are
/// always zero, a smaller one would be flushed and divide 0 by 0.
Status check_hyper(const UpdateRule& rule);

/// A factor of gradients: finite and in the range of a float.
Status check_factor(const char* name, double factor);

}  // namespace penstock::capi
