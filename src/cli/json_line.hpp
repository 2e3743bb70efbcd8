#pragma once

/// One line of `--json` output.

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace penstock {

/// Without a line end. Paths need not be UTF-8: what is not is replaced, as JSON knows nothing
/// else.
[[nodiscard]] std::string json_line(const nlohmann::json& value);

}  // namespace penstock
