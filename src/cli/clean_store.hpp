#pragma once

/// Leftovers of stores: see cli/clean.hpp.

#include <memory>
#include <string_view>
#include <vector>

#include "cli/clean.hpp"

namespace penstock {

/// Whether a file of that name could be one of a store.
[[nodiscard]] bool is_store_name(std::string_view name);

/// What is found of stores in these directories together.
Result<std::vector<Leftover>> find_store_leftovers(
    const std::vector<std::shared_ptr<Directory>>& directories, const CleanOptions& options);

}  // namespace penstock
