#pragma once

/// What a safetensors file holds, as text or as JSON (schema penstock.safetensors/1).
///
/// The header is checked by all rules of the format; data is not read.
/// Threads: one. Errors: those of safetensors::read_header(), kArgument (no such tensor).

#include <string>

#include "base/result.hpp"
#include "cli/console.hpp"

namespace penstock {

/// `tensor`: only this one; empty: all.
Status inspect_safetensors(const std::string& path, const std::string& tensor, Console& console);

}  // namespace penstock
