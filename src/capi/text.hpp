#pragma once

/// Strings that the caller frees with penstock_free.
/// Errors: kNoMemory.

#include <string_view>

#include "capi/status.hpp"

namespace penstock::capi {

Status copy_text(std::string_view text, char** out);

}  // namespace penstock::capi
