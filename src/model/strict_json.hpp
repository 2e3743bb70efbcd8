#pragma once

/// JSON that came from somebody else: parsed with limits, duplicate keys refused.
///
/// Memory:  bounded by limits.bytes times a small factor; nothing is read beyond the limit.
/// Errors:  kArgument; the message names the source, line and column.
/// Threads: pure functions.

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "base/result.hpp"

namespace penstock {

struct JsonLimits {
  std::uint64_t bytes = std::uint64_t{1} << 20;
  std::uint32_t depth = 32;  ///< objects and arrays within each other
};

/// Parses `text` into `into`. `source` names it in messages ("/models/x/config.json").
/// Whole numbers beyond 64 bits become floating-point values, which an integer field refuses.
Status parse_strict_json(std::string_view text, std::string_view source, const JsonLimits& limits,
                         nlohmann::json& into);

/// The content of a regular file of at most `max_bytes`. kArgument: missing, unreadable, a
/// directory or a device, or larger.
Result<std::string> read_small_file(const std::string& path, std::uint64_t max_bytes);

/// A value as it stands in the file, cut to what fits a sentence.
[[nodiscard]] std::string json_excerpt(const nlohmann::json& value);

}  // namespace penstock
