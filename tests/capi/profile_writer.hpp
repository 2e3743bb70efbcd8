#pragma once

/// A profile for the drive of a directory, which asks for threads. Apart, since the C++ wrapper and
/// the library have names in common.

#include <string>

namespace penstock::capi_testing {

bool write_profile(const std::string& file, const std::string& directory);

}  // namespace penstock::capi_testing
