#pragma once

/// Leftovers of exports: see cli/clean.hpp.

#include <memory>
#include <string_view>
#include <vector>

#include "cli/clean.hpp"

namespace penstock {

/// Whether a file of that name could be one of an export that was not finished.
[[nodiscard]] bool is_export_name(std::string_view name);

/// Single files that were not finished, in this directory.
Result<std::vector<Leftover>> find_export_files(const std::shared_ptr<Directory>& directory);

/// This directory, if it is one that an export made and did not finish. `parent` is where it lies,
/// null where that was not looked at: the emptied directory stays then.
Result<std::vector<Leftover>> find_export_directory(const std::shared_ptr<Directory>& directory,
                                                    const std::shared_ptr<Directory>& parent);

}  // namespace penstock
