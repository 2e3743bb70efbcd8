#pragma once

/// Checks of hyper-parameters, so that no formula meets what it is not defined for.
/// Errors: kArgument names the value and its range.

#include "capi/status.hpp"
#include "kernels/cpu/update.hpp"

namespace penstock::capi {

/// eps > 0, as a gradient that is always zero would otherwise divide 0 by 0.
Status check_hyper(const AdamW& hyper);

/// A factor of gradients: finite and in the range of a float.
Status check_factor(const char* name, double factor);

}  // namespace penstock::capi
